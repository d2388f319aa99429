"""`stowplan explain`: the whole decision for one pod, on a recorded cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt
from rich.console import Console
from rich.markup import escape

from engine.model.decision import Decision, Verdict
from engine.model.time import Micros, date, micros
from engine.pipeline import Scope
from engine.quota import QuotaVerdict, judge, quotas_of
from engine.report import explanation
from engine.view import counted_requests
from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.loading import load_cluster, load_some_policies
from webhook.cli.pods import placement_request, read_manifest
from webhook.cli.render import show_patch, show_reasons, verdict_line
from webhook.cluster import Recording
from webhook.placement.placer import Placer

_NODES = 20
_INPUTS = 3
_SCOPE = Scope()


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
    """Show what would be decided for a pod.

    Args:
        pod: a manifest with one Pod, YAML or JSON; `-` reads standard input.
        cluster: files or folders as `kubectl get nodes,pods,namespaces -A -o json` prints them;
            with `elasticquotas` and `nodemetrics` too where the cluster has them.
        policies: policy files, or folders of them.
        namespace: the namespace of a pod that names none.
        now: the moment to judge the age of measurements at, as `2026-03-02T10:00:00Z`; when the
            cluster was recorded, if not given.
        nodes: how many candidates, and how many of the others, to list.
        inputs: of how many of these to show what the rules judged them by, as cpu limits of 10 of
            8 cores.
        patch: also print the JSON patch the webhook would answer with.
        json: print everything as JSON, and nothing else.
    """
    manifest = read_manifest(pod)
    policy_set = load_some_policies(policies)
    notes = console.errors()
    recording = load_cluster(cluster, notes)
    recording.state.track_sums(policy_set.sum_profiles)
    view = recording.state.view()
    moment, why = _moment(now, recording)

    request = placement_request(manifest, namespace=namespace, view=view)
    home, quota = request.pod.namespace, QuotaVerdict()
    placer = Placer(view=lambda: view, now=lambda: moment, scope=_SCOPE)
    decision, advice = placer.decide(request, policy_set)
    if home not in _SCOPE.excluded_namespaces:
        if home not in view.namespaces.labels:
            notes.print(f"namespace `{escape(home)}` is not recorded: no label of it is known")
        used = view.namespaces.requested.get(home, {})
        quota = judge(counted_requests(request.pod.shape), used, quotas_of(view, home))

    output = console.output()
    if json:
        told = explanation(decision, most_inputs=None)
        told["quota"] = {"allowed": quota.allowed, "message": quota.message}
        told["patch"], told["warnings"] = list(advice.operations), list(advice.warnings)
        output.print_json(data=told)
    else:
        judged = f"judged at {_text(moment)}, {why}"
        _show(output, decision, quota, judged, nodes=nodes, inputs=inputs)
        for warning in advice.warnings:
            output.print(f"[yellow]warning:[/] {escape(warning)}")
        if patch:
            output.print()
            show_patch(output, advice.operations)
    return Exit.OK if quota.allowed and decision.verdict is not Verdict.DENY else Exit.DENIED


def _moment(now: datetime | None, recording: Recording) -> tuple[Micros, str]:
    """Return the moment to judge at, and why it is that one."""
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
    """Print the verdict, then what it rests on."""
    told = explanation(decision, most_nodes=nodes, most_inputs=inputs)
    verdict = verdict_line(told["verdict"], told["pod"], told["message"])
    if quota.allowed:
        output.print(verdict)
    else:
        output.print(verdict_line(Verdict.DENY, told["pod"], quota.message))
        output.print(f"its quota aside: {verdict}")
    if decision.pod.node_name:
        output.print("hint: without `spec.nodeName` you see where it would go")
    output.print(judged)
    show_reasons(output, told)
