"""`stowplan explain`: the whole decision for one pod, on a recorded cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.types import NonNegativeInt
from msgspec import structs
from rich.console import Console
from rich.markup import escape

from engine.model.decision import Decision, Verdict
from engine.model.never_held import is_never_held
from engine.model.time import Micros, date, micros
from engine.pipeline import Scope
from engine.quota import QuotaVerdict, judge, queues_pods, quotas_of
from engine.report import DecisionReport, QuotaReport, decision_report
from engine.view import counted_requests
from webhook.cli import console
from webhook.cli.cluster_loading import load_cluster
from webhook.cli.exit_codes import Exit
from webhook.cli.held_explanation import ReleaseReport, release_report
from webhook.cli.pods import placement_request, read_manifest
from webhook.cli.policy_loading import load_policy_set
from webhook.cli.render import show_patch, show_reasons, verdict_line
from webhook.cluster import Recording
from webhook.placement.placer import Placer

_NODES = 20
_INPUTS = 3
_SCOPE = Scope()
_QUEUES = "the namespace queues: where `stowplan serve --hold` is on, the pod waits for its quota"


class ExplainReport(DecisionReport, frozen=True, kw_only=True):
    """A decision, with the verdict on its quota and with the answer of the webhook.

    Attributes:
        patch: of the answer; of a held pod that of its release.
        release: of a held pod; None for others.
    """

    quota: QuotaReport
    patch: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    release: ReleaseReport | None = None


def explain(
    pod: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    cluster: list[Path],
    policies: list[Path],
    namespace: str = "default",
    now: datetime | None = None,
    nodes: NonNegativeInt = _NODES,
    inputs: NonNegativeInt = _INPUTS,
    patch: bool = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show the decision for a pod.

    Args:
        pod: a manifest with one Pod, YAML or JSON; `-` reads standard input.
        cluster: files or folders with the output of `kubectl get nodes,pods,namespaces -A -o json`;
            also of `elasticquotas` and `nodemetrics` if the cluster has them.
        policies: policy files, or folders of them.
        namespace: the namespace of a pod that names none.
        now: the moment of the decision, such as `2026-03-02T10:00:00Z`, for the age of
            measurements; if not given, the moment of the recording.
        nodes: how many candidates, and how many of the others, to list.
        inputs: for how many of these to show the inputs of rules, such as cpu limits of 10 of 8
            cores.
        patch: also print the JSON patch of the webhook; of a held pod that of its release.
        json: print everything as JSON, and nothing else.
    """
    manifest = read_manifest(pod)
    policy_set = load_policy_set(policies)
    notes = console.errors()
    recording = load_cluster(cluster, notes)
    recording.state.track_sums(policy_set.sum_profiles)
    moment, origin = _moment(now, recording)

    request = placement_request(manifest, namespace=namespace, view=recording.state.view())
    recording.state.nominate(request.pod.key, "")  # it competes with others, not with itself
    view = recording.state.view()
    namespace, quota = request.pod.namespace, QuotaVerdict()
    placer = Placer(view=lambda: view, now=lambda: moment, scope=_SCOPE)
    decision, advice = placer.decide(request, policy_set)
    if namespace not in _SCOPE.excluded_namespaces:
        if namespace not in view.namespaces.labels:
            notes.print(f"namespace `{escape(namespace)}` is not recorded: no label of it is known")
        used = view.namespaces.requested.get(namespace, {})
        if not request.pod.is_queued:  # it waits instead of being denied
            quota = judge(counted_requests(request.pod.shape), used, quotas_of(view, namespace))

    queues = queues_pods(view, namespace, "Enforce") and not is_never_held(request.pod)
    operations, release = advice.operations, None
    if request.pod.is_held:
        release = release_report(request, placer, policy_set, recording.state, moment)
        operations = release.patch

    output = console.output()
    if json:
        report = ExplainReport(
            **structs.asdict(decision_report(decision, most_inputs=None)),
            quota=QuotaReport(quota.allowed, quota.message, queues),
            patch=tuple(operations),
            warnings=tuple(advice.warnings),
            release=release,
        )
        output.print_json(msgspec.json.encode(report).decode())
    else:
        judged = f"judged at {_text(moment)}, {origin}"
        if queues and not quota.allowed:
            judged = f"{_QUEUES}\n{judged}"
        if release is not None:
            judged = f"{release}\n{judged}"
        _show(output, decision, quota, judged, nodes=nodes, inputs=inputs)
        for warning in advice.warnings:
            output.print(f"[yellow]warning:[/] {escape(warning)}")
        if patch:
            output.print()
            show_patch(output, operations)
    return Exit.OK if quota.allowed and decision.verdict is not Verdict.DENY else Exit.DENIED


def _moment(now: datetime | None, recording: Recording) -> tuple[Micros, str]:
    """Return the moment of the decision, and its origin."""
    if now is not None:
        return micros(now), "as `--now` says"
    if recording.recorded_at:
        return recording.recorded_at, "the newest moment in the recording"
    return micros(datetime.now(UTC)), "now: the recording names no moment"


def _text(moment: Micros) -> str:
    return date(moment).isoformat().replace("+00:00", "Z")


def _show(
    output: Console,
    decision: Decision,
    quota: QuotaVerdict,
    judged: str,
    *,
    nodes: int,
    inputs: int,
) -> None:
    """Print the verdict, then its reasons."""
    report = decision_report(decision, most_nodes=nodes, most_inputs=inputs)
    verdict = verdict_line(report.verdict, report.pod, report.message)
    if quota.allowed:
        output.print(verdict)
    else:
        output.print(verdict_line(Verdict.DENY, report.pod, quota.message))
        output.print(f"apart from its quota: {verdict}")
    if decision.pod.node_name:
        output.print("hint: without `spec.nodeName` you see where it would go")
    output.print(judged)
    show_reasons(output, report)
