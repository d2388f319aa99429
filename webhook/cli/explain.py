"""`stowplan explain`: the whole decision for one pod, on a recorded cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter
from cyclopts.types import NonNegativeInt
from msgspec import structs
from rich.console import Console
from rich.markup import escape

from engine.binding import BINDING_REASON_ANNOTATION, SCHEDULER_NODE_ANNOTATION
from engine.errors import StowplanError
from engine.gang import gang_of
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.hold import HOLD_GATE, queued_condition_in
from engine.model.pod import Pod, is_never_held
from engine.model.policy_resource import PlacementAt
from engine.model.rule_outcomes import SCHEDULER
from engine.model.time import Micros, micros
from engine.pipeline import Scope
from engine.placement import REASON_ANNOTATION
from engine.policy import PolicySet
from engine.quota import QuotaVerdict, judge, queues_pods, quotas_of
from engine.quota.queueing import NamespaceQueues, QueuedPod, QueueRules, next_releases
from engine.release import EVICTING_REASONS, GANG_REASONS
from engine.report import DecisionReport, NodeNames, QuotaReport, decision_report
from engine.view import ClusterState, ClusterView, quota_requests
from webhook.cli import console
from webhook.cli.cluster_loading import (
    load_cluster,
    moment_of,
    moment_text,
    tell_missing,
)
from webhook.cli.exit_codes import Exit
from webhook.cli.options import (
    ClusterPaths,
    Context,
    DefaultNamespace,
    Json,
    Kubeconfig,
    Moment,
    PolicyPaths,
    described,
)
from webhook.cli.pods import PodCollector, Target, placement_request, read_manifest, target_of
from webhook.cli.policy_loading import load_policy_set
from webhook.cli.render import show, show_json, show_patch
from webhook.cluster import Recording
from webhook.pages import reason_blocks, ui, verdict_line
from webhook.placement.placer import Placer


class HoldReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What keeps a held pod from the scheduler."""

    waits_for: tuple[str, ...]  # the gates of others, which have to go first
    waits_for_quota: str = ""  # what keeps it in the queue of its quota, "" for nothing
    waits_for_gang: str = ""  # what its gang waits for, "" for a pod without a gang
    # who is evicted for it, or protected from that, as its condition says; "" where nobody is
    evictions: str = ""

    def __str__(self) -> str:
        if self.waits_for:
            return f"held, and waits for others to remove {', '.join(self.waits_for)}"
        if self.evictions:
            return f"held: {self.evictions}"
        if self.waits_for_quota:
            return f"held, and waits for quota: {self.waits_for_quota}"
        if self.waits_for_gang:
            return f"held, and waits for its {self.waits_for_gang}"
        return "held, until it is its turn"


def hold_report(request: PlacementRequest, view: ClusterView) -> HoldReport:
    """Return what keeps a held pod from the scheduler."""
    pod, raw = request.pod, bytes(request.raw)
    return HoldReport(
        waits_for=tuple(gate for gate in pod.scheduling_gates if gate != HOLD_GATE),
        waits_for_quota=_quota_wait(pod, raw, view) if pod.is_queued else "",
        waits_for_gang=_gang_wait(pod, raw, view),
        evictions=_evictions(raw),
    )


def _gang_wait(pod: Pod, raw: bytes, view: ClusterView) -> str:
    """Return what the gang of a pod waits for, "" for a pod without a gang.

    As its condition says: the other members may be on no recording.
    """
    gang = gang_of(pod, view)
    if gang is None:
        return ""
    condition = queued_condition_in(raw)
    if condition is not None and condition.reason in GANG_REASONS:
        return f"{condition.message} (as its condition says)"
    return f"gang `{gang.key}`, of which {gang.min_member} must run together"


def _evictions(raw: bytes) -> str:
    """Return who is evicted for a pod, or protected from that: plans are the leader's to make."""
    condition = queued_condition_in(raw)
    if condition is None or not condition.is_true or condition.reason not in EVICTING_REASONS:
        return ""
    return f"{condition.reason}: {condition.message} (as its condition says)"


def _quota_wait(pod: Pod, raw: bytes, view: ClusterView) -> str:
    """Return what keeps a pod in the queue of its quota, "" for nothing.

    It is judged as if it was the only one that waits. Its place is that of its condition: those
    before it may be on no recording.
    """
    queues = NamespaceQueues(QueueRules())
    queues.update(view)
    queue = queues.of(pod)
    if queue is None:
        return ""
    situation = queues.situation(view, under_way=(), assumed=())
    alone = QueuedPod(
        pod.key,
        queue.queue.key,
        quota_requests(pod.shape),
        Micros(0) if pod.created is None else micros(pod.created),
    )
    decision = next_releases(
        [alone], situation.quotas, situation.usage, situation.cohort, alone.since
    )
    wait = decision.waits.get(pod.key)
    condition = queued_condition_in(raw)
    place = "" if condition is None else condition.message.partition("; ")[0]
    if wait is None and not place:
        return ""
    why = "its quota has room for it" if wait is None else wait.message
    return f"{why} ({place}, as its condition says)" if place else why


class RuleOnNodes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a rule says of both nodes: of a filter why it rejects them, of a score the points."""

    policy: str  # the policy it belongs to, "scheduler" for the scheduler's own
    rule: str  # its name
    on_scheduler_node: str  # "" where a filter passes, or where a score gives none
    on_node: str  # likewise


class BindingExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    scheduler_node: str  # the node that the scheduler took
    node: str  # the node that the pod is on
    reason: str  # why, for programs
    message: str  # why, for people
    rules: tuple[RuleOnNodes, ...]  # what rules say of both nodes now, as if the pod was not there

    def __str__(self) -> str:
        why = self.message or self.reason
        if self.node == self.scheduler_node:
            return f"bound to {self.node}, as the scheduler chose: {why}"
        return (
            f"bound to {self.node} instead of {self.scheduler_node}, the scheduler's choice: {why}"
        )


def binding_explanation(
    annotations: Mapping[str, str], node: str, decision: Decision
) -> BindingExplanation | None:
    """Return what became of a pod at its binding, None where nothing was decided then."""
    scheduler_node = annotations.get(SCHEDULER_NODE_ANNOTATION, "")
    if not (scheduler_node and node):
        return None
    return BindingExplanation(
        scheduler_node=scheduler_node,
        node=node,
        reason=annotations.get(BINDING_REASON_ANNOTATION, ""),
        message=annotations.get(REASON_ANNOTATION, ""),
        rules=tuple(_rules(decision, scheduler_node, node)),
    )


def _binding_blocks(found: BindingExplanation) -> Iterator[ui.Block]:
    """Yield both nodes, rule by rule; of filters only those that reject one of them."""
    yield ui.Paragraph(str(found))
    if found.rules and found.node != found.scheduler_node:
        titles = ("policy", "rule", found.scheduler_node, found.node)
        yield ui.Table(
            title=ui.Span("what rules say of both nodes now, without the pod:", ui.Style.QUIET),
            columns=[ui.Column(title) for title in titles],
            rows=[
                (each.policy, each.rule, each.on_scheduler_node or "-", each.on_node or "-")
                for each in found.rules
            ],
        )


def _rules(decision: Decision, scheduler_node: str, node: str) -> Iterator[RuleOnNodes]:
    names = {name: row for row, name in enumerate(decision.names)}
    rows = names.get(scheduler_node), names.get(node)
    for outcome in decision.filters:
        texts = [
            outcome.reason(row) if row is not None and outcome.rejects[row] else "" for row in rows
        ]
        if any(texts):
            yield _on_nodes(outcome.policy, outcome.rule, texts)
    places = {int(row): place for place, row in enumerate(decision.ranking.rows.tolist())}
    for score in decision.scored:
        at = [None if row is None else places.get(row) for row in rows]
        texts = ["" if place is None else f"{int(score.normalized[place])} points" for place in at]
        yield _on_nodes(score.policy, score.rule, texts)


def _on_nodes(policy: str, rule: str, texts: list[str]) -> RuleOnNodes:
    policy = "scheduler" if policy == SCHEDULER else policy
    return RuleOnNodes(policy=policy, rule=rule, on_scheduler_node=texts[0], on_node=texts[1])


_NODES = 20
_INPUTS = 3
_SCOPE = Scope()
_OBJECT = re.compile(r"[A-Za-z][A-Za-z0-9.]*/[a-z0-9][-.a-z0-9]*")  # as kubectl takes it
_QUEUES = "the namespace queues: where `stowplan serve --hold` is on, the pod waits for its quota"


class _Live(NamedTuple):
    """How a cluster is reached, and the Deployment of stowplan in it."""

    kubeconfig: Path | None
    context: str | None
    installation: str


class ExplainReport(DecisionReport, frozen=True, kw_only=True):
    """A decision, with the verdict on its quota and with the answer of the webhook."""

    quota: QuotaReport
    patch: tuple[dict[str, Any], ...]  # of the answer
    warnings: tuple[str, ...]
    hold: HoldReport | None = None  # of a held pod; None for others
    # of a pod of a live cluster that was decided at its binding; None for others
    bound: BindingExplanation | None = None


def explain(
    pod: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="Manifest, or KIND/NAME of a pod or workload there, such as `deploy/web`.",
        ),
    ],
    /,
    *,
    cluster: ClusterPaths | None = None,
    policies: PolicyPaths = None,
    live: Annotated[bool, described("Read the cluster of the kubeconfig.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    installation: Annotated[
        str, described("Whose policies `--live` reads, as `NAMESPACE/RELEASE`.")
    ] = "stowplan-system/stowplan",
    namespace: DefaultNamespace = "default",
    now: Moment = None,
    nodes: Annotated[NonNegativeInt, described("Most nodes that are shown.")] = _NODES,
    inputs: Annotated[
        NonNegativeInt, described("Nodes of which is shown what rules read.")
    ] = _INPUTS,
    patch: Annotated[bool, described("Print the JSON patch of the pod, too.")] = False,
    json: Json = False,
) -> int:
    """Show the decision for a pod."""
    notes = console.errors()
    if live:
        source = _Live(kubeconfig, context, installation)
        manifest, policy_set, recording = _live(source, pod, cluster, policies, namespace, notes)
    else:
        recorded = _given(cluster, "--cluster")
        target = target_of(pod) if _is_object(pod) else None
        manifest = read_manifest(Path(pod)) if target is None else {}
        policy_set = load_policy_set(_given(policies, "--policies"))
        pods = PodCollector()
        recording = load_cluster(recorded, notes, observers=[pods] if target else ())
        tell_missing(recording, notes)
        if target is not None:
            manifest = pods.manifest(target, namespace, recorded)
            _tell_pod(target, manifest, notes)
    recording.state.track_sums(policy_set.sum_profiles)
    moment, origin = moment_of(recording, now)

    node = (manifest.get("spec") or {}).get("nodeName") or ""
    manifest = _as_created(manifest, policy_set, recording.state, notes)
    view = recording.state.view()
    request = placement_request(manifest, namespace=namespace, view=view, notes=notes)
    recording.state.nominate(request.pod.key, "")  # it competes with others, not with itself
    view = recording.state.view()
    namespace = request.pod.namespace
    placer = Placer(view=lambda: view, now=lambda: moment, scope=_SCOPE)
    decision, advice = placer.decide(request, policy_set)
    quota = _quota_verdict(request.pod, view, notes)
    queues = queues_pods(view, namespace, "Enforce") and not is_never_held(request.pod)
    hold = hold_report(request, view) if request.pod.is_held else None
    bound = binding_explanation(request.pod.annotations, node, decision)
    output = console.output()
    if json:
        report = ExplainReport(
            **structs.asdict(decision_report(decision, most_inputs=None)),
            quota=QuotaReport(quota.allowed, quota.message, queues),
            patch=tuple(advice.operations),
            warnings=tuple(advice.warnings),
            hold=hold,
            bound=bound,
        )
        show_json(report)
    else:
        judged = [] if hold is None else [str(hold)]
        judged += [_QUEUES] if queues and not quota.allowed else []
        judged.append(f"as of {moment_text(moment)} ({origin})")
        if bound is not None:
            show(_binding_blocks(bound), output)
            output.print()
        show(_decision_blocks(decision, quota, judged, nodes, inputs, node), output)
        show(map(_warning, advice.warnings), output)
        if patch:
            output.print()
            show_patch(output, advice.operations)
    return Exit.OK if quota.allowed and decision.verdict is not Verdict.DENY else Exit.DENIED


def _warning(text: str) -> ui.Paragraph:
    return ui.Paragraph((ui.Span("warning:", ui.Style.DOUBT), f" {text}"))


def _is_object(pod: str) -> bool:
    """Return whether a text names an object of the cluster, and no file."""
    return _OBJECT.fullmatch(pod) is not None and not Path(pod).exists()


def _tell_pod(target: Target, manifest: dict[str, Any], notes: Console) -> None:
    """Say which pod stands for a workload."""
    if target.workload is None:
        return
    metadata = manifest["metadata"]
    which = (
        f"its newest pod, {metadata['name']}" if metadata.get("uid") else "a pod of its template"
    )
    notes.print(f"{target} stands for {which}", markup=False, soft_wrap=True)


def _as_created(
    manifest: dict[str, Any], policies: PolicySet, state: ClusterState, notes: Console
) -> dict[str, Any]:
    """Return a pod that exists as its creation sent it, and no longer count it; others as they are.

    A held pod stays as it is: it is still to be placed. A generated name is not known before
    admission, so policies see it alone where they decide later.
    """
    metadata, spec = (manifest.get(key) or {} for key in ("metadata", "spec"))
    gates = spec.get("schedulingGates") or ()
    if not metadata.get("uid") or any(gate.get("name") == HOLD_GATE for gate in gates):
        return manifest
    state.delete_pod(f"{metadata.get('namespace')}/{metadata.get('name')}")
    if node := spec.get("nodeName"):
        notes.print(f"it runs on {escape(node)}, and is decided as if it was created now")
    created = {key: value for key, value in manifest.items() if key != "status"}
    created["spec"] = {key: value for key, value in spec.items() if key != "nodeName"}
    is_advised = all(policy.placement.at is PlacementAt.ADMISSION for policy in policies)
    if metadata.get("generateName") and is_advised:
        created["metadata"] = {**metadata, "name": ""}
    return created


def _quota_verdict(pod: Pod, view: ClusterView, notes: Console) -> QuotaVerdict:
    """Return the verdict on the quotas of a pod; one that waits for its quota is not denied."""
    namespace = pod.namespace
    if namespace in _SCOPE.excluded_namespaces:
        return QuotaVerdict()
    if view.namespaces.labels and namespace not in view.namespaces.labels:
        notes.print(f"namespace `{escape(namespace)}` is not recorded: no label of it is known")
    if pod.is_queued:
        return QuotaVerdict()
    used = view.namespaces.requested.get(namespace, {})
    return judge(quota_requests(pod.shape), used, quotas_of(view, namespace))


def _given(paths: list[Path] | None, option: str) -> list[Path]:
    if paths is None:
        raise StowplanError(
            f"option `{option}` is missing\nhint: see `stowplan explain --help`; --live reads the"
            " cluster of a kubeconfig"
        )
    return paths


def _live(
    source: _Live,
    pod: str,
    cluster: list[Path] | None,
    policies: list[Path] | None,
    namespace: str,
    notes: Console,
) -> tuple[dict[str, Any], PolicySet, Recording]:
    # With it comes a client of the Kubernetes API, which most explanations do not need.
    from webhook.cli.live_cluster import read_live  # noqa: PLC0415

    if cluster is not None:
        raise StowplanError("--live reads the cluster itself\nhint: drop --cluster, or --live")
    is_file = pod == "-" or Path(pod).exists()
    given = read_manifest(Path(pod)) if is_file else None
    policy_set = load_policy_set(policies) if policies else None
    read = read_live(
        *source,
        target="" if is_file else pod,
        namespace=namespace,
        reads_policies=policy_set is None,
        notes=notes,
    )
    manifest = read.manifest if given is None else given
    return manifest, read.policies if policy_set is None else policy_set, read.recording


def _decision_blocks(
    decision: Decision,
    quota: QuotaVerdict,
    judged: Sequence[str],
    nodes: int,
    inputs: int,
    runs_on: str,
) -> Iterator[ui.Block]:
    report = decision_report(decision, most_nodes=nodes, most_inputs=inputs, node=runs_on)
    known = zip(decision.names, decision.valid.tolist(), strict=True)
    names = NodeNames.of(name for name, is_valid in known if is_valid)
    verdict = verdict_line(report.verdict, report.pod, names.in_text(report.message))
    if quota.allowed:
        yield verdict
    else:
        yield verdict_line(Verdict.DENY, report.pod, quota.message)
        yield ui.Paragraph(("apart from its quota: ", verdict.text))
    if decision.pod.node_name:
        yield ui.Paragraph("hint: without `spec.nodeName` you see where it would go")
    yield from map(ui.Paragraph, judged)
    of = runs_on if report.standing else ""
    yield from reason_blocks(report, names, node=of)
