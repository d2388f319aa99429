"""`stowplan explain`: the whole decision for one pod, on a recorded cluster."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter
from cyclopts.types import NonNegativeInt
from msgspec import structs
from rich.console import Console
from rich.markup import escape

from engine.errors import StowplanError
from engine.model.decision import Decision, Verdict
from engine.model.hold import HOLD_GATE
from engine.model.never_held import is_never_held
from engine.model.placement_options import PlacementAt
from engine.model.pod import Pod
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.quota import QuotaVerdict, judge, queues_pods, quotas_of
from engine.report import DecisionReport, NodeNames, QuotaReport, decision_report
from engine.view import ClusterState, ClusterView, quota_requests
from webhook.cli import console
from webhook.cli.binding_explanation import (
    BindingExplanation,
    binding_explanation,
    show_binding,
)
from webhook.cli.cluster_loading import (
    ClusterPaths,
    load_cluster,
    moment_of,
    moment_text,
    tell_missing,
)
from webhook.cli.exit_codes import Exit
from webhook.cli.held_explanation import HoldReport, hold_report
from webhook.cli.pods import PodCollector, placement_request, read_manifest
from webhook.cli.policy_loading import load_policy_set
from webhook.cli.render import show_patch, show_reasons, verdict_line
from webhook.cluster import Recording
from webhook.placement.placer import Placer

_NODES = 20
_INPUTS = 3
_SCOPE = Scope()
_OBJECT = re.compile(r"[a-z]+/[a-z0-9][-.a-z0-9]*")  # as kubectl takes it
_QUEUES = "the namespace queues: where `stowplan serve --hold` is on, the pod waits for its quota"


class _Live(NamedTuple):
    """How a cluster is reached, and the Deployment of stowplan in it."""

    kubeconfig: Path | None
    context: str | None
    installation: str


class ExplainReport(DecisionReport, frozen=True, kw_only=True):
    """A decision, with the verdict on its quota and with the answer of the webhook.

    Attributes:
        patch: of the answer.
        hold: of a held pod; None for others.
        bound: of a pod of a live cluster that was decided at its binding; None for others.
    """

    quota: QuotaReport
    patch: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    hold: HoldReport | None = None
    bound: BindingExplanation | None = None


def explain(
    pod: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    cluster: ClusterPaths | None = None,
    policies: list[Path] | None = None,
    live: bool = False,
    kubeconfig: Path | None = None,
    context: str | None = None,
    installation: str = "stowplan-system/stowplan",
    namespace: Annotated[str, Parameter(name=("--namespace", "-n"))] = "default",
    now: datetime | None = None,
    nodes: NonNegativeInt = _NODES,
    inputs: NonNegativeInt = _INPUTS,
    patch: bool = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show the decision for a pod.

    Args:
        pod: a manifest with one Pod, or with a Deployment or another workload, of which one pod is
            decided; YAML or JSON; `-` reads standard input. Also a pod of the cluster, as kubectl
            takes it: `pod/web-0`; with `--live` also a workload: `deploy/web`. A pod that exists is
            decided as if it was created now.
        cluster: files or folders with the output of `kubectl get nodes,pods,namespaces -A -o json`;
            also of `elasticquotas` and `nodemetrics` if the cluster has them.
        policies: policy files, or folders of them; with `--live` those of the cluster, if not
            given.
        live: decide on the cluster of the kubeconfig as it is now; it is only read from.
        kubeconfig: how to reach it; `$KUBECONFIG` or the default one, if not given, or in a pod its
            service account.
        context: of the kubeconfig; its current one, if not given.
        installation: `NAMESPACE/NAME` of the Deployment whose ConfigMap of policies is read.
        namespace: the namespace of a pod that names none.
        now: the moment of the decision, such as `2026-03-02T10:00:00Z`, for the age of
            measurements; if not given, the moment of the recording.
        nodes: how many candidates, and how many of the others, to list.
        inputs: for how many of these to show the inputs of rules, such as cpu limits of 10 of 8
            cores.
        patch: also print the JSON patch of the webhook.
        json: print everything as JSON, and nothing else.
    """
    notes = console.errors()
    if live:
        source = _Live(kubeconfig, context, installation)
        manifest, policy_set, recording = _live(source, pod, cluster, policies, namespace, notes)
    else:
        recorded, is_object = _given(cluster, "--cluster"), _is_object(pod)
        manifest = {} if is_object else read_manifest(Path(pod))
        policy_set = load_policy_set(_given(policies, "--policies"))
        pods = PodCollector()
        recording = load_cluster(recorded, notes, observers=[pods] if is_object else ())
        tell_missing(recording, notes)
        if is_object:
            manifest = pods.manifest(pod, namespace)
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
        output.print_json(msgspec.json.encode(report).decode())
    else:
        judged = f"as of {moment_text(moment)} ({origin})"
        if queues and not quota.allowed:
            judged = f"{_QUEUES}\n{judged}"
        if hold is not None:
            judged = f"{hold}\n{judged}"
        if bound is not None:
            show_binding(output, bound)
            output.print()
        _show(output, decision, quota, judged, nodes=nodes, inputs=inputs)
        for warning in advice.warnings:
            output.print(f"[yellow]warning:[/] {escape(warning)}")
        if patch:
            output.print()
            show_patch(output, advice.operations)
    return Exit.OK if quota.allowed and decision.verdict is not Verdict.DENY else Exit.DENIED


def _is_object(pod: str) -> bool:
    """Return whether a text names an object of the cluster, and no file."""
    return _OBJECT.fullmatch(pod) is not None and not Path(pod).exists()


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
    """Return the pod, the policies and the cluster of `--live`."""
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
    known = zip(decision.names, decision.valid.tolist(), strict=True)
    names = NodeNames.of(name for name, is_valid in known if is_valid)
    verdict = verdict_line(report.verdict, report.pod, names.in_text(report.message))
    if quota.allowed:
        output.print(verdict)
    else:
        output.print(verdict_line(Verdict.DENY, report.pod, quota.message))
        output.print(f"apart from its quota: {verdict}")
    if decision.pod.node_name:
        output.print("hint: without `spec.nodeName` you see where it would go")
    output.print(judged)
    show_reasons(output, report, names)
