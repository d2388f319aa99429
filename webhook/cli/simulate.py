"""`stowplan simulate`: what policies would have done to a recorded cluster, and what-ifs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from engine.builtin_admission import BuiltinAdmission
from engine.errors import StowplanError
from engine.model.pod import Pod
from engine.model.policy_resource import PlacementAt
from engine.policy import PolicySet
from engine.report import ArmPlacement, ArrivalSource
from engine.simulation import (
    AddNodes,
    Arm,
    Arrivals,
    Change,
    DrainNode,
    RecordedCluster,
    ScaleDeployment,
    Simulation,
    can_solve,
    capacity_buffer,
    daemon_nodes,
    generated_arrivals,
    manifest_arrivals,
    recorded_arrivals,
    repack,
    simulate,
    what_if,
)
from webhook.cli import console
from webhook.cli.cluster_loading import load_cluster, tell_missing
from webhook.cli.console import require_place_for
from webhook.cli.exit_codes import Exit
from webhook.cli.options import ClusterPaths, Json
from webhook.cli.pods import PodCollector, read_pods
from webhook.cli.policy_loading import load_policy_set
from webhook.cli.render import show, show_json
from webhook.pages import repack_blocks, report_page, simulation_blocks

_PLACEMENTS = {str(each): each for each in (ArmPlacement.ADVICE, ArmPlacement.BINDING)}
_FORM = f"[NAME=]PATH[,{'|,'.join(_PLACEMENTS)}]"
_NAMESPACE = "default"
_MOST_DIGITS = 5  # of a number of nodes or pods


def simulate_command(
    *,
    cluster: ClusterPaths,
    arm: Annotated[
        list[str] | None,
        Parameter(help=f"Policies to compare with the scheduler alone, as `{_FORM}`."),
    ] = None,
    arrivals: Annotated[
        str,
        Parameter(
            help="Pods that arrive: `recording`, `generated`, or a file or folder of manifests;"
            " by default those of the recording, with a change waiting, moved and new ones."
        ),
    ] = "",
    add_nodes: Annotated[
        list[str] | None, Parameter(help="Nodes to add, as `N` or `N=NODE`: N more like NODE.")
    ] = None,
    drain: Annotated[list[str] | None, Parameter(help="Node to cordon and empty.")] = None,
    scale: Annotated[
        list[str] | None,
        Parameter(help="Deployment to scale, as `NAMESPACE/DEPLOYMENT=N`."),
    ] = None,
    autoscale: Annotated[
        bool,
        Parameter(negative="", help="Let nodes go and come on a generated day."),
    ] = False,
    buffer: Annotated[
        list[str] | None,
        Parameter(
            name="--capacity-buffer",
            help="Capacity buffer where nodes go and come, as `NAMESPACE/DEPLOYMENT=N`.",
        ),
    ] = None,
    repack: Annotated[
        bool, Parameter(negative="", help="Plan which running pods would have to move.")
    ] = False,
    repack_seconds: Annotated[
        PositiveFloat, Parameter(help="Most seconds that the solver takes for the plan.")
    ] = 10,
    free_nodes: Annotated[
        NonNegativeInt, Parameter(help="Nodes that the plan is to free of pods.")
    ] = 0,
    seed: Annotated[NonNegativeInt, Parameter(help="The same seed gives the same report.")] = 1,
    html: Annotated[Path | None, Parameter(help="Write a report with plots to this file.")] = None,
    json: Json = False,
) -> int:
    """Simulate arrivals on a recorded cluster."""
    if repack:
        if arm or arrivals or add_nodes or drain or scale or autoscale or buffer or html:
            raise StowplanError(
                "--repack: it plans for the cluster as it is, and goes with `--repack-seconds`,"
                " `--free-nodes`, `--seed` and `--json` alone"
            )
        return repack_cluster(
            cluster, seconds=repack_seconds, free_nodes=free_nodes, seed=seed, json=json
        )
    if free_nodes:
        raise StowplanError("--free-nodes: it needs `--repack`")
    if html is not None:
        require_place_for(html)
    if autoscale and arrivals != ArrivalSource.GENERATED:
        raise StowplanError("--autoscale: it needs `--arrivals generated`, a day of pods")
    if buffer and not autoscale:
        raise StowplanError("--capacity-buffer: it needs `--autoscale`")
    notes = console.errors()
    arms = [_arm(text) for text in arm or ()]
    changes = _changes(add_nodes or (), drain or (), scale or ())
    recorded = _recorded(cluster)
    arriving = _arrivals(arrivals, recorded, seed, is_changed=bool(changes))
    simulation = Simulation(
        scenario=what_if(recorded, changes, arriving),
        arms=arms,
        seed=seed,
        autoscale=autoscale,
        buffer=_buffer(recorded, buffer or ()),
    )
    _require_names(simulation.all_arms)
    gc.freeze()  # the recording stays: the collector of garbage need not look at it again
    with console.progress("simulating", simulation.steps) as advance:
        report = simulate(simulation, progress=advance)
    if json:
        show_json(report)
    else:
        show(simulation_blocks(report))
    if html is not None:
        html.write_text(report_page(report), encoding="utf-8")
        notes.print(f"report: {html.resolve().as_uri()}", markup=False, soft_wrap=True)
    return Exit.OK


def _recorded(paths: Sequence[Path]) -> RecordedCluster:
    notes, collector = console.errors(), PodCollector()
    recording = load_cluster(paths, notes, observers=[collector])
    tell_missing(recording, notes)
    pods = list(collector.pods.values())
    return RecordedCluster.of(recording.state.view(), pods, recording.recorded_at)


def _arm(text: str) -> Arm:
    """Return the arm that `[NAME=]PATH[,advice|,binding]` stands for."""
    source, comma, ending = text.rpartition(",")
    if not comma or ending not in _PLACEMENTS:
        source, ending = text, ""
    name, equals, path = source.partition("=")
    if not equals:
        name, path = Path(source).stem, source
    if not (name and path):
        raise StowplanError(f"--arm: expected `{_FORM}`, not `{text}`")
    if comma and not ending and text.rpartition(",")[2].isalpha():
        known = ", ".join(f"`{each}`" for each in _PLACEMENTS)
        raise StowplanError(f"--arm: `{text.rpartition(',')[2]}` is none of {known}")
    policies = load_policy_set([Path(path)])
    placement = _PLACEMENTS.get(ending) or _placement_of(policies)
    return Arm(name=name, placement=placement, policies=policies)


def _require_names(arms: Sequence[Arm]) -> None:
    [(name, count)] = Counter(arm.name for arm in arms).most_common(1)
    if count > 1:
        hint = "name one of them, as `NAME=PATH`"
        raise StowplanError(f"--arm: two arms are named `{name}`: {hint}")


def _placement_of(policies: PolicySet) -> ArmPlacement:
    at_binding = any(policy.placement.at is PlacementAt.BINDING for policy in policies)
    return ArmPlacement.BINDING if at_binding else ArmPlacement.ADVICE


def _changes(add_nodes: Sequence[str], drain: Sequence[str], scale: Sequence[str]) -> list[Change]:
    """Return the changes of a what-if: nodes come before others go, then Deployments grow."""
    changes: list[Change] = []
    for text in add_nodes:
        count, _, like = text.partition("=")
        changes.append(AddNodes(_count("--add-nodes", count, text, "`N` or `N=NODE`"), like))
    changes += map(DrainNode, drain)
    changes += (ScaleDeployment(*_replicas("--scale", text)) for text in scale)
    return changes


def _buffer(cluster: RecordedCluster, texts: Sequence[str]) -> list[Pod]:
    buffers = (_replicas("--capacity-buffer", text) for text in texts)
    return [pod for buffer in buffers for pod in capacity_buffer(cluster, *buffer)]


def _replicas(flag: str, text: str) -> tuple[str, str, int]:
    """Return the namespace and the name of a Deployment, and a number of replicas."""
    deployment, _, replicas = text.rpartition("=")
    namespace, slash, name = deployment.partition("/")
    form = "`NAMESPACE/DEPLOYMENT=N`"
    if not (namespace and slash and name):
        raise StowplanError(f"{flag}: expected {form}, not `{text}`")
    return namespace, name, _count(flag, replicas, text, form)


def _count(flag: str, digits: str, text: str, form: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise StowplanError(f"{flag}: expected {form}, not `{text}`")
    if len(digits) > _MOST_DIGITS:
        raise StowplanError(f"{flag}: at most {'9' * _MOST_DIGITS}, not `{text}`")
    return int(digits)


def _arrivals(
    text: str, cluster: RecordedCluster, seed: int, *, is_changed: bool
) -> Arrivals | None:
    """Return the arrivals that `--arrivals` names; None for those that changes concern."""
    if not text and is_changed:
        return None
    if text in {"", ArrivalSource.RECORDING}:
        return recorded_arrivals(cluster.pods)
    if text == ArrivalSource.GENERATED:
        return generated_arrivals(cluster.pods, seed)
    priorities = {each.pod.priority_class_name: each.pod.priority for each in cluster.pods}
    pods = read_pods(
        Path(text),
        namespace=_NAMESPACE,
        admission=BuiltinAdmission(cluster.extras, priorities),
        nodes_for=lambda pod: daemon_nodes(pod, cluster.empty_state().view(), cluster.now),
    )
    return manifest_arrivals(pods)


def repack_cluster(
    cluster: ClusterPaths, *, seconds: float, free_nodes: int, seed: int, json: bool
) -> int:
    """Plan moves on a recorded cluster, and print them."""
    if not can_solve():
        raise StowplanError("`--repack` needs OR-Tools\nhint: pip install 'stowplan[solver]'")
    recorded, notes = _recorded(cluster), console.errors()
    columns = (
        SpinnerColumn(),
        TextColumn(f"packing, at most {seconds:g} s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        bar.add_task("", total=None)
        report = repack(recorded, seconds=seconds, free_nodes=free_nodes, seed=seed)
    if json:
        show_json(report)
    else:
        show(repack_blocks(report))
    return Exit.OK
