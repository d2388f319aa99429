"""A simulation from its arguments to its report: `simulate` is the table of contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from engine.model.pod import Pod
from engine.model.time import SECOND, date
from engine.report import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    ArrivalsSummary,
    PodFate,
    PodName,
    PodOutcome,
    SimulatedCluster,
    SimulationReport,
    UnplacedReason,
)
from engine.simulation.arms import Arm, ArmCluster, ArmDecider, Creation, Landing
from engine.simulation.arrivals import RESOURCES, Arrival, Arrivals, Load, Scenario, owner_name
from engine.simulation.autoscaler import Autoscaler
from engine.simulation.figures import hot_nodes, node_levels, spreads
from engine.simulation.replay import Replay, ReplayResult
from engine.simulation.scheduler import SchedulerModel
from engine.view import IntColumn

_ARRIVALS = {
    ArrivalSource.RECORDING: (
        "The recorded pods arrive in order of their creation on nodes that were emptied of them;"
        " pods of DaemonSets and static pods stay. Nobody is evicted, and no quota is judged."
    ),
    ArrivalSource.MANIFESTS: (
        "The pods of the manifests arrive at once, in order, on the cluster as it is."
    ),
    ArrivalSource.GENERATED: (
        "All recorded pods are there at the beginning, and as many like them come over the day, at"
        " a rate that rises to 1.75 times its mean at 14:00 and falls to a quarter of it at 2:00; a"
        " pod lives for a day on average, exponentially distributed. Figures are of the moment when"
        " most pods run."
    ),
    ArrivalSource.CHANGES: (
        "Pods that wait, that have to move and that are new arrive at once, in this order, on the"
        " cluster as it is. Disruption budgets keep no pod on a drained node."
    ),
}

_PLACEMENTS = {
    ArmPlacement.STOCK: (
        "stock: a model of kube-scheduler 1.36 with its default plugins, weights and sampling."
    ),
    ArmPlacement.ADVICE: (
        "advice: policies write preferred and required affinity on a pod, and the model of the"
        " scheduler binds it."
    ),
    ArmPlacement.BINDING: (
        "binding: the model of the scheduler takes a node, and policies keep it, replace it or deny"
        " the binding, on what all pods before left; a denied pod is tried again once nodes are"
        " measured anew. Bindings on their way, and room that is kept for them, are not modelled."
    ),
    ArmPlacement.RECORDED: "recorded: each pod is on the node that it was recorded on.",
}

_LOAD = (
    "The load of a recorded pod is what its node's report measured of it; where nodes alone are"
    " measured, its part of the usage of its node by requests. It is the same on every node and in"
    " every arm. Pods of manifests, and those on nodes without a report, have the estimate of"
    " LoadAware: 85 % of cpu and 70 % of memory that they request or are limited to."
)

_AUTOSCALING = (
    "Nodes go and come once a minute, never more than are recorded: those with the label"
    " `karpenter.sh/nodepool` as Karpenter consolidates, without a replacement, the others as"
    " Cluster Autoscaler scales down by default. A node goes when its pods can all run on others,"
    " one in a minute and ten that are empty; for a pod that waits the smallest node that can take"
    " it comes, at once. Of a node that is gone nothing counts. Budgets allow what they allowed"
    " when they were recorded."
)

_BUFFER = (
    "Room is kept for the pods of a capacity buffer: no node goes whose room they need, and one"
    " comes where they fit no more. Any pod may take the room."
)

_REPORTS = "Policies see the usage of nodes as it was measured at most 60 s before."


def notes_of(
    arrivals: Arrivals,
    placements: Sequence[ArmPlacement],
    *,
    autoscale: bool = False,
    buffer: Sequence[Pod] = (),
) -> tuple[str, ...]:
    """Return the notes on a simulation; `autoscale`: whether nodes come and go."""
    autoscaling = (_AUTOSCALING,) if autoscale else ()
    return (*_notes(arrivals, placements), *autoscaling, *((_BUFFER,) if buffer else ()))


def _notes(arrivals: Arrivals, placements: Sequence[ArmPlacement]) -> Iterator[str]:
    yield _ARRIVALS[arrivals.source]
    yield from (_PLACEMENTS[placement] for placement in dict.fromkeys(placements))
    yield _LOAD
    yield _REPORTS
    if arrivals.are_created:
        yield (
            "New pods are made as the API server makes them, by LimitRanges, PriorityClasses and"
            " RuntimeClasses of the recording, and judged by ResourceQuotas and ElasticQuotas;"
            " these in the mode Enforce where a namespace names no other. Pods that wait have been"
            " let in. Not modelled: bounds of LimitRanges, ResourceQuotas with other scopes than"
            " BestEffort, NotBestEffort and PriorityClass, and other webhooks."
        )
        yield (
            "Where no node takes a pod, others are evicted for it by the rules of quotas that"
            " reclaim, else by priority; gangs are placed pod by pod."
        )
    yield "Volumes and devices are not known: a pod that needs them may have fewer nodes."


DEFAULT_THRESHOLDS: Final = {"cpu": 65.0, "memory": 95.0}
"""Of load in percent: those of Koordinator's LoadAware."""

_ZONE: Final = "topology.kubernetes.io/zone"
_MOST_OUTCOMES: Final = 1_000  # pods that are reported one by one
_MOST_REASONS: Final = 20
_STOCK: Final = Arm(name="stock", placement=ArmPlacement.STOCK)
_RECORDED: Final = Arm(name="recorded", placement=ArmPlacement.RECORDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What is to be simulated.

    Attributes:
        scenario: the cluster, and who arrives.
        arms: what is compared with the scheduler alone, which is always the first arm.
        seed: of ties of the scheduler.
        thresholds: of hot nodes, percent of load by resource.
        autoscale: whether nodes go and come by the rules of their autoscaler.
        buffer: pods that the autoscaler keeps room for, the placeholders of CapacityBuffers.
    """

    scenario: Scenario
    arms: Sequence[Arm] = ()
    seed: int = 1
    thresholds: Mapping[str, float] = field(default_factory=lambda: DEFAULT_THRESHOLDS)
    autoscale: bool = False
    buffer: Sequence[Pod] = ()

    @property
    def all_arms(self) -> tuple[Arm, ...]:
        """The scheduler alone, the others, and the recording itself where that is replayed."""
        replays = self.scenario.arrivals.source is ArrivalSource.RECORDING
        recorded = (_RECORDED,) if replays and not self.scenario.changes else ()
        return (_STOCK, *self.arms, *recorded)

    @property
    def steps(self) -> int:
        """How many pods are placed in all arms together."""
        return len(self.all_arms) * len(self.scenario.arrivals.pods)


def simulate(
    simulation: Simulation, *, progress: Callable[[int], None] = lambda _: None
) -> SimulationReport:
    """Return how a cluster fills under each arm; the same arguments give the same report.

    Args:
        simulation: what is to be simulated.
        progress: called now and then with the number of pods placed since the last call.
    """
    cluster, arrivals = simulation.scenario.cluster, simulation.scenario.arrivals
    nodes, loads = tuple(node.name for node in cluster.nodes), cluster.loads()
    results = [_run(arm, simulation, nodes, loads, progress) for arm in simulation.all_arms]
    baseline = results[0][1].nodes  # -1 for a pod without a node
    fixed = sum(
        bool(each.pod.node_name) and each.pod.key not in arrivals.moves for each in cluster.pods
    )
    return SimulationReport(
        cluster=SimulatedCluster(
            recorded_at=date(cluster.now).isoformat().replace("+00:00", "Z"),
            nodes=nodes,
            zones=tuple(node.labels.get(_ZONE, "") for node in cluster.nodes),
            fixed_pods=fixed,
            resources=RESOURCES,
            thresholds=simulation.thresholds,
        ),
        arrivals=ArrivalsSummary(
            source=arrivals.source,
            pods=len(arrivals.pods),
            seconds=max((each.at for each in arrivals.pods), default=0) // SECOND,
            waiting=sum(map(_waited, arrivals.pods)) if arrivals.are_created else 0,
            moved=sum(1 for each in arrivals.pods if each.recorded_on)
            if arrivals.are_created
            else 0,
        ),
        changes=simulation.scenario.changes,
        figures_at=arrivals.figures_at // SECOND,
        seed=simulation.seed,
        arms=tuple(
            _report(arm, result, decider, simulation, _moves(baseline, result.nodes))
            for arm, (decider, result) in zip(simulation.all_arms, results, strict=True)
        ),
        notes=notes_of(
            arrivals,
            [arm.placement for arm in simulation.all_arms],
            autoscale=simulation.autoscale,
            buffer=simulation.buffer,
        ),
    )


def _run(
    arm: Arm,
    simulation: Simulation,
    nodes: tuple[str, ...],
    loads: Mapping[str, Load],
    progress: Callable[[int], None],
) -> tuple[ArmDecider, ReplayResult]:
    arrivals = simulation.scenario.arrivals
    profiles = () if arm.policies is None else arm.policies.sum_profiles
    cluster = ArmCluster(simulation.scenario.cluster, arrivals.moves, loads, profiles)
    creation = None
    if arrivals.are_created:
        creation = Creation(arm.policies, simulation.scenario.cluster, arrivals.moves)
    decider = ArmDecider(arm, SchedulerModel(simulation.seed), arrivals.request)
    replay = Replay(
        arrivals,
        cluster,
        decider,
        creation,
        nodes=nodes,
        thresholds=simulation.thresholds,
        autoscaler=Autoscaler(simulation.scenario.cluster.nodes, cluster, simulation.buffer)
        if simulation.autoscale
        else None,
    )
    return decider, replay.run(progress)


def _moves(before: IntColumn, after: IntColumn) -> int:
    return int(np.count_nonzero((before != after) & (before >= 0) & (after >= 0)))


def _report(
    arm: Arm, result: ReplayResult, decider: ArmDecider, simulation: Simulation, moves: int
) -> ArmReport:
    arrivals = simulation.scenario.arrivals
    outcomes: tuple[PodOutcome, ...] = ()
    if arrivals.are_created:
        landings = zip(arrivals.pods, result.landings[:_MOST_OUTCOMES], strict=False)
        outcomes = tuple(_outcome(arrival, landing) for arrival, landing in landings)
    return ArmReport(
        name=arm.name,
        placement=arm.placement,
        policies=tuple(policy.name for policy in arm.policies or ()),
        landed=int(np.count_nonzero(result.nodes >= 0)),
        unplaced=len(result.waiting),
        refused=sum(landing.is_refused for landing in result.landings),
        moves=moves,
        nodes_used=result.nodes_used,
        least_nodes_used=result.bounds.used,
        crowd=result.crowd,
        hot_nodes=hot_nodes(result.levels, simulation.thresholds),
        least_hot_nodes=result.bounds.hot,
        hottest=result.hottest,
        spreads=spreads(result.levels, result.least_spreads),
        levels=node_levels(result.levels),
        rejections=decider.rejections,
        reasons=_reasons(arrivals.pods, result.landings),
        samples=result.samples,
        outcomes=outcomes,
        bindings=decider.bindings,
        node_time=result.node_time,
    )


def _reasons(
    arrivals: Sequence[Arrival], landings: Sequence[Landing]
) -> tuple[UnplacedReason, ...]:
    """Return why pods have no node, most pods first."""
    counts, examples = Counter[tuple[str, str]](), dict[tuple[str, str], PodName]()
    for arrival, landing in zip(arrivals, landings, strict=True):
        if not landing.node:
            key = landing.reason, owner_name(arrival.pod, arrival.raw)
            counts[key] += 1
            examples.setdefault(key, _name(arrival))
    return tuple(
        UnplacedReason(reason=reason, pods=pods, example=examples[reason, owner], owner=owner)
        for (reason, owner), pods in counts.most_common(_MOST_REASONS)
    )


def _outcome(arrival: Arrival, landing: Landing) -> PodOutcome:
    if landing.is_refused:
        fate = PodFate.REFUSED
    elif not landing.node:
        fate = PodFate.NOWHERE
    else:
        fate = PodFate.RECLAIMED if landing.victims else PodFate.PLACED
    return PodOutcome(
        pod=_name(arrival),
        fate=fate,
        owner=owner_name(arrival.pod, arrival.raw),
        waited=_waited(arrival),
        moved_from=arrival.recorded_on,
        node=landing.node,
        message=landing.reason,
        victims=landing.victims,
    )


def _name(arrival: Arrival) -> PodName:
    return PodName(arrival.pod.namespace, arrival.pod.display_name)


def _waited(arrival: Arrival) -> bool:
    return arrival.exists and not arrival.recorded_on
