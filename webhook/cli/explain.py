"""`stowplan explain`: the whole decision for one pod, on a recorded cluster."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from engine.explain import explanation
from engine.model.decision import Verdict
from engine.model.time import micros
from engine.pipeline import decide
from engine.placement import patch_for
from engine.policy import load_policies
from engine.quota import QuotaLedger
from webhook.cli.exit_codes import Exit
from webhook.cli.loading import load_cluster
from webhook.cli.pods import placement_request, read_manifest
from webhook.cli.render import show_decision, show_patch

_NODES = 20


def explain(
    pod: Path,
    /,
    *,
    cluster: list[Path],
    policies: list[Path],
    namespace: str = "default",
    now: datetime | None = None,
    nodes: int = _NODES,
    patch: bool = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show what would be decided for a pod, and why, node by node.

    Nothing is sent anywhere: the decision is made here, exactly as the webhook makes it.

    Args:
        pod: a manifest with one Pod, YAML or JSON; `-` reads standard input.
        cluster: files or folders as `kubectl get nodes,pods,namespaces -A -o yaml` prints them;
            with `elasticquotas` and `nodemetrics` too where the cluster has them.
        policies: policy files, or folders of them.
        namespace: the namespace of a pod that names none.
        now: the moment to judge the age of measurements at; when the cluster was recorded, if
            not given.
        nodes: how many candidates, and how many of the others, to list.
        patch: also print the JSON patch the webhook would answer with.
        json: print everything as JSON.
    """
    console, errors = Console(), Console(stderr=True)
    policy_set = load_policies(policies)
    recording = load_cluster(cluster, errors)
    moment = recording.recorded_at if now is None else micros(now)
    state = recording.state
    state.track(policy_set.load_profiles)
    view = state.view()

    manifest = read_manifest(pod)
    home = str((manifest.get("metadata") or {}).get("namespace") or namespace)
    request = placement_request(
        manifest,
        namespace=home,
        namespace_labels=view.namespace_labels.get(home, {"kubernetes.io/metadata.name": home}),
    )
    decision = decide(request, policy_set, view, moment)
    quota = QuotaLedger().admit(request.pod, view, moment, uid="", dry_run=True)
    operations = patch_for(decision, request, view).operations

    if json:
        told = explanation(decision)
        told["quota"] = {"allowed": quota.allowed, "message": quota.message}
        told["patch"] = list(operations)
        console.print_json(data=told)
    else:
        show_decision(console, explanation(decision, most_nodes=nodes))
        if not quota.allowed:
            console.print(f"[bold red]Denied by ElasticQuota[/]: {quota.message}")
        if patch:
            show_patch(console, operations)
    denied = decision.verdict is Verdict.DENY or not quota.allowed
    return Exit.DENIED if denied else Exit.OK
