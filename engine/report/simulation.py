"""What a simulation found: how a cluster fills under several arms, and what answers a what-if.

Percentages are of the allocatable amount of a node, rounded to a tenth; they may exceed 100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from engine.errors import counted
from engine.model.rule_outcomes import Measure
from engine.report.decision import PodName
from engine.report.nodes import Crowd


class ArmPlacement(StrEnum):
    """Who decides for the pods of an arm."""

    RECORDED = "recorded"  # nobody: each is on the node that it was recorded on
    STOCK = "stock"  # the model of the scheduler
    ADVICE = "advice"  # the same, with the advice of policies on the pods
    BINDING = "binding"  # the model of the scheduler, and then policies keep or replace its node


class ArrivalSource(StrEnum):
    """Where the pods come from."""

    RECORDING = "recording"  # those of the recording, in order of creation, on emptied nodes
    MANIFESTS = "manifests"
    GENERATED = "generated"  # a day of pods like those of the recording
    CHANGES = "changes"  # those that a what-if moves or adds, and those that wait


class SimulatedCluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster that was simulated, after the changes of a what-if.

    Attributes:
        recorded_at: ISO 8601; "" where the recording names no moment.
        nodes: names, in the order of all columns of the report.
        zones: of the same nodes; "" for those that have none.
        fixed_pods: that stay where they are, such as those of DaemonSets.
        resources: that figures are given of, such as `cpu`.
        thresholds: of load in percent, by resource; a node above any of them is hot.
    """

    recorded_at: str
    nodes: tuple[str, ...]
    zones: tuple[str, ...]
    fixed_pods: int
    resources: tuple[str, ...]
    thresholds: Mapping[str, float]


class ArrivalsSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods that were placed.

    Attributes:
        source: where they come from.
        pods: how many.
        seconds: between the first and the last.
        waiting: of a what-if, those of the pods that are pending now.
        moved: of a what-if, those that run and have to go elsewhere; the others are new.
    """

    source: ArrivalSource
    pods: int
    seconds: int
    waiting: int = 0
    moved: int = 0


class Spread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One measure of one resource over the nodes, in percent.

    Attributes:
        spread: the standard deviation of the population, in percentage points.
        p50: the median.
        p90: nine in ten nodes have no more.
        least: the least spread that the same amounts could have on these nodes, were pods divisible
            and fitted anywhere; None where it is not known.
    """

    measure: Measure
    resource: str
    mean: float
    spread: float
    p50: float
    p90: float
    max: float
    least: float | None = None


class NodeLevels(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One measure of one resource, node by node, in percent."""

    measure: Measure
    resource: str
    percent: tuple[float, ...]


class RuleRejections(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a filter of a policy rejected.

    Attributes:
        pods: for which it was the first to reject some node.
        nodes: how many nodes, added up over those pods.
        example: the reason it gave first.
    """

    policy: str
    rule: str
    pods: int
    nodes: int
    example: str


class UnplacedReason(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods of one owner without a node for the same reason; `example` is the first of them.

    Attributes:
        owner: `namespace/name` of what made them; "" for nothing.
    """

    reason: str
    pods: int
    example: PodName
    owner: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One moment of an arm.

    Attributes:
        seconds: since the first arrival.
        running: simulated pods on nodes.
        waiting: simulated pods without a node.
    """

    seconds: int
    running: int
    waiting: int
    hot_nodes: int
    spreads: tuple[Spread, ...]


class Victim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that would be evicted for another, and why it may be."""

    pod: PodName
    node: str
    reason: str


class PodFate(StrEnum):
    """What becomes of a pod in a what-if."""

    PLACED = "placed"
    RECLAIMED = "reclaimed"  # placed once others are evicted for it
    NOWHERE = "nowhere"
    REFUSED = "refused"  # by its quota, or by a policy


class PodOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What becomes of a pod in a what-if.

    Attributes:
        owner: `namespace/name` of what made it, such as a ReplicaSet; "" for nothing.
        waited: whether it is pending now, and so not what a change is about.
        moved_from: the node that it runs on now; "" for a new one, or one that waits.
        node: where it goes; "" for nowhere.
        message: why it goes nowhere, or is refused; "" for one that is placed.
        victims: who is evicted for it.
    """

    pod: PodName
    fate: PodFate
    owner: str = ""
    waited: bool = False
    moved_from: str = ""
    node: str = ""
    message: str = ""
    victims: tuple[Victim, ...] = ()


class BindingCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the bindings that policies decided.

    Attributes:
        moved: pods that got another node than the scheduler took.
        kept: pods that got the scheduler's.
        denied: tries of pods that stayed pending.
    """

    moved: int = 0
    kept: int = 0
    denied: int = 0


class NodeTime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What nodes cost that come and go, and what pods bear for it.

    Attributes:
        node_hours: added up over the nodes that are there.
        core_hours: the same of their allocatable cpu.
        evictions: pods that lost their node because it went.
        waiting_hours: added up over the pods without a node.
        longest_wait: of a pod for a node, seconds.
    """

    node_hours: float
    core_hours: float
    evictions: int
    waiting_hours: float
    longest_wait: int


class HottestNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The hot node that is furthest above a threshold, and who uses most of it.

    Attributes:
        resource: whose threshold it is.
        percent: of the resource in use on the node.
        owner: `namespace/name` of what made the simulated pods that use most, or of the pod that
            nothing made; "" where none is there.
        owner_pods: how many of them.
        owner_percent: of the resource in use by them.
    """

    node: str
    resource: str
    percent: float
    owner: str = ""
    owner_pods: int = 0
    owner_percent: float = 0.0


class ArmReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the cluster fills under one arm.

    Attributes:
        name: as given.
        placement: who decides.
        policies: names, none for an arm without policies.
        landed: pods that got a node.
        unplaced: pods that no node fits, at the moment of the figures.
        refused: pods that a policy or their quota refused.
        moves: pods that landed on another node than in the first arm; one that has no node in
            either of the two does not count.
        nodes_used: nodes that run a simulated pod.
        least_nodes_used: the fewest that have room for these pods, were they divisible and fitted
            anywhere; None where it is not known.
        crowd: the most replicas of one owner on one node, of owners of simulated pods that belong
            to no DaemonSet.
        hot_nodes: nodes whose load is above a threshold.
        least_hot_nodes: the fewest that these pods would make hot, likewise.
        hottest: the hottest of the hot nodes; None where none is hot.
        spreads: of each measure and resource, at the moment of the figures.
        levels: node by node, at the same moment.
        rejections: of the filters of its policies, most nodes first.
        reasons: why pods have no node, most pods first.
        samples: over time, the first and the last moment among them; none where pods do not end.
        outcomes: of a what-if, pod by pod; none of other simulations.
        bindings: what became of them; None where policies decide at another moment.
        node_time: what nodes cost; None where they neither come nor go.
    """

    name: str
    placement: ArmPlacement
    policies: tuple[str, ...]
    landed: int
    unplaced: int
    refused: int
    moves: int
    nodes_used: int
    crowd: Crowd
    hot_nodes: int
    spreads: tuple[Spread, ...]
    levels: tuple[NodeLevels, ...]
    rejections: tuple[RuleRejections, ...] = ()
    reasons: tuple[UnplacedReason, ...] = ()
    samples: tuple[Sample, ...] = ()
    outcomes: tuple[PodOutcome, ...] = ()
    bindings: BindingCounts | None = None
    node_time: NodeTime | None = None
    least_nodes_used: int | None = None
    least_hot_nodes: int | None = None
    hottest: HottestNode | None = None


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A simulation.

    Attributes:
        changes: what a what-if changes, such as `add 5 nodes like node1`.
        figures_at: seconds from the first arrival to the moment of all figures: the end, or where
            pods end, when most run.
        seed: of ties of the scheduler, and of generated pods.
        arms: the first is what others are compared with.
        notes: how it was done, and what it leaves out, in sentences.
    """

    cluster: SimulatedCluster
    arrivals: ArrivalsSummary
    changes: tuple[str, ...] = ()
    figures_at: int
    seed: int
    arms: tuple[ArmReport, ...]
    notes: tuple[str, ...]


_WITHOUT_POLICIES: Final = (ArmPlacement.RECORDED, ArmPlacement.STOCK)

# A figure is worse by more than a little if it grows by both; less may be chance.
_MUCH_MORE: Final = 2
_MUCH_MORE_PERCENT: Final = 20


def arms_of_policies(report: SimulationReport) -> Sequence[ArmReport]:
    """Return the arms that are compared with the first one."""
    return [arm for arm in report.arms if arm.placement not in _WITHOUT_POLICIES]


def answers(report: SimulationReport) -> tuple[str, ...]:
    """Return a sentence for each arm with policies; for the first arm if there is none."""
    if not report.arms:
        return ()
    first, arms = report.arms[0], arms_of_policies(report)
    hot = first_hot_nodes(report)
    compared = tuple(_compared(first, hot, arm) for arm in arms)
    return compared or (_alone(first, recorded_hot_nodes(report)),)


def remarks(report: SimulationReport) -> tuple[str, ...]:
    """Return sentences on what each arm with policies makes worse, and which nodes stay hot."""
    arms = arms_of_policies(report)
    found = (each for arm in arms for each in (_worse(report.arms[0], arm), _still_hot(arm)))
    return tuple(filter(None, found))


def recorded_hot_nodes(report: SimulationReport) -> int | None:
    """Return the hot nodes of the recording; None where the first arm has as many."""
    recorded = (arm for arm in report.arms if arm.placement is ArmPlacement.RECORDED)
    found = next((arm.hot_nodes for arm in recorded), None)
    return None if found == report.arms[0].hot_nodes else found


def first_hot_nodes(report: SimulationReport) -> str:
    """Return the hot nodes of the first arm, with those of the recording where they differ."""
    recorded, hot = recorded_hot_nodes(report), report.arms[0].hot_nodes
    if recorded is None:
        return f"{hot:,}"
    return f"{hot:,} ({report.arms[0].name}; {recorded:,} as recorded)"


def spread_of(arm: ArmReport, measure: Measure, resource: str) -> Spread | None:
    """Return a measure of a resource over the nodes of an arm; None where it has none."""
    found = (each for each in arm.spreads if (each.measure, each.resource) == (measure, resource))
    return next(found, None)


def _compared(first: ArmReport, first_hot: str, arm: ArmReport) -> str:
    hot = _trend(("stay", "rise", "fall"), first.hot_nodes, arm.hot_nodes, first_hot)
    found = [f"hot nodes {hot}"]
    before, after = (spread_of(each, Measure.LOAD, "cpu") for each in (first, arm))
    if before is not None and after is not None:
        old, new = round(before.max), round(after.max)
        trend = _trend(("stays", "rises", "falls"), old, new, f"{old:,}")
        found.append(f"the fullest node {trend} % of cpu in use")
    pods = counted(arm.landed + arm.unplaced + arm.refused, "pod")
    match arm.moves:
        case 0:
            found.append("no pod goes elsewhere")
        case 1:
            found.append(f"1 of {pods} goes elsewhere")
        case moves:
            found.append(f"{moves:,} of {pods} go elsewhere")
    lost = arm.unplaced + arm.refused - first.unplaced - first.refused
    if lost:
        more = "more" if lost > 0 else "fewer"
        found.append(f"{counted(abs(lost), f'{more} pod has', f'{more} pods have')} no node")
    return f"With {arm.name}, {', '.join(found[:-1])}, and {found[-1]}."


def _trend(verbs: tuple[str, str, str], old: int, new: int, shown: str) -> str:
    stays, rises, falls = verbs
    if old == new:
        return f"{stays} at {shown}"
    return f"{rises if new > old else falls} from {shown} to {new:,}"


def _alone(arm: ArmReport, recorded: int | None) -> str:
    without = arm.unplaced + arm.refused
    nodes = f"{counted(arm.hot_nodes, 'hot node')} under {arm.name} alone"
    if recorded is not None:
        nodes += f", {recorded:,} as recorded"
    return f"{counted(arm.landed, 'pod')} would get a node, {without:,} would not; {nodes}."


def _worse(first: ArmReport, arm: ArmReport) -> str:
    worse = [
        f"{what} from {old:g} to {new:g}"
        for what, old, new in _costs(first, arm)
        if new - old >= _MUCH_MORE and (new - old) * 100 >= old * _MUCH_MORE_PERCENT
    ]
    return f"Worse under {arm.name}: {', '.join(worse)}." if worse else ""


def _costs(first: ArmReport, arm: ArmReport) -> Iterator[tuple[str, float, float]]:
    """Yield figures of which less is better, in the first arm and in another."""
    # Whoever fills fewer nodes makes them uneven on purpose.
    if arm.nodes_used >= first.nodes_used:
        alike: dict[tuple[str, float, float], list[str]] = {}
        for new in arm.spreads:
            if old := spread_of(first, new.measure, new.resource):
                alike.setdefault((new.resource, old.spread, new.spread), []).append(new.measure)
        for (resource, before, after), measures in alike.items():
            yield f"spread of {resource} {' and '.join(measures)}", before, after
    yield "most replicas of one owner on one node", first.crowd.pods, arm.crowd.pods
    if first.node_time and arm.node_time:
        old_time, new_time = first.node_time, arm.node_time
        yield "node hours", old_time.node_hours, new_time.node_hours
        yield "pods evicted as nodes went", old_time.evictions, new_time.evictions
        yield "hours that pods waited", old_time.waiting_hours, new_time.waiting_hours


def _still_hot(arm: ArmReport) -> str:
    """Return which node is hot and by what; "" where no fewer are known to be possible."""
    hot, least = arm.hottest, arm.least_hot_nodes
    if hot is None or least is None or arm.hot_nodes <= least:
        return ""
    text = f"Still hot under {arm.name}: {hot.node}, {hot.percent:g} % of {hot.resource} in use"
    if hot.owner:
        pods = counted(hot.owner_pods, "pod")
        text += f", the most by {hot.owner} ({pods}, {hot.owner_percent:g} %)"
    more = arm.hot_nodes - 1
    return f"{text}; and {counted(more, 'more node', 'more nodes')}." if more else f"{text}."
