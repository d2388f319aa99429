"""NetworkOverhead: keep pods near the pods they communicate with, by network cost.

Source: scheduler-plugins, pkg/networkaware/networkoverhead. The dependencies of a pod are in the
AppGroup that its label names, costs are in a NetworkTopology, and the place of a node in its region
and zone labels. Bandwidth is ignored. The result for a node depends on its labels and on the places
of the group's pods in the whole cluster.

Differences from upstream:

- **Missing objects**: without the AppGroup or the NetworkTopology all nodes pass with equal scores.
  Upstream crashes.
- **Unknown nodes**: a pod whose node is unknown does not count. Upstream rejects the new pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import numpy as np
from pydantic import field_validator

from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs, Unit
from engine.model.scheduler_plugins import (
    AppGroup,
    Dependency,
    NetworkTopology,
    Place,
    place_of,
)
from engine.model.well_known import REGION_LABEL, ZONE_LABEL
from engine.plugins.base import (
    PASS,
    Args,
    Cycle,
    Filter,
    Plugin,
    Score,
    Scores,
    for_every_pod,
    result_of,
)
from engine.plugins.lib.arithmetic import inverse_minmax
from engine.view import ClusterView, DictionaryColumn, Domain, IntColumn

_MAX_COST: Final = 100
_SAME_ZONE_COST: Final = 1
_NOWHERE: Final = Place("", "")
_Found = TypeVar("_Found", AppGroup, NetworkTopology)

_COUNTS: Final = 2**31  # more pods than there are; a code holds two counts


class NetworkOverheadArgs(Args):
    """NetworkOverheadArgs, with upstream's defaults.

    Attributes:
        namespaces: the namespaces to search for AppGroups and the NetworkTopology, in order.
        weights_name: the set of costs of the NetworkTopology that counts.
        network_topology_name: the name of the NetworkTopology.
    """

    namespaces: tuple[str, ...] = ("default",)
    weights_name: str = "UserDefined"
    network_topology_name: str = "nt-default"

    @field_validator("namespaces")
    @classmethod
    def _at_least_one(cls, namespaces: tuple[str, ...]) -> tuple[str, ...]:
        return namespaces or ("default",)


class _Relation(NamedTuple):
    """The relation of a node to one pod of a dependency, or its sum over all such pods."""

    satisfied: int = 0
    violated: int = 0
    cost: int = 0


_SAME_NODE: Final = _Relation(satisfied=1)
_FROM_NOWHERE: Final = _Relation(violated=1, cost=_MAX_COST)
_SAME_ZONE: Final = _Relation(satisfied=1, cost=_SAME_ZONE_COST)
_UNKNOWN: Final = _Relation(cost=_MAX_COST)


class Overheads:
    """Costs and dependencies of a pod on each node."""

    def __init__(self, args: NetworkOverheadArgs) -> None:
        self._args = args

    def of(self, cycle: Cycle) -> IntColumn | None:
        """Return the fields of `_Relation` for each node, (3, n); None if all nodes are equal."""
        view, workload = cycle.view, cycle.pod.shape.workload
        if workload is None:
            return None
        group, selector = workload
        app_group = self._find(view, AppGroup, group)
        network = self._find(view, NetworkTopology, self._args.network_topology_name)
        if app_group is None or network is None:
            return None
        peers = _Peers(view, group, app_group.dependencies.get(selector, ()))
        return self._table(view, network, peers) if peers.in_places else None

    def _table(self, view: ClusterView, network: NetworkTopology, peers: _Peers) -> IntColumn:
        by_label = network.costs.get(self._args.weights_name, {})
        places = _places(view)
        by_place = np.zeros((len(places.values), len(_Relation._fields)), np.int64)
        for code in np.flatnonzero(places.counts).tolist():
            origin = places.values[code] or _NOWHERE
            by_place[code] = _to_all(peers.in_places, origin, _costs_from(origin, by_label))
        table = by_place.T.take(places.codes, axis=1)
        # Places ignore nodes: pods on the node itself were counted as on another one.
        rows = [view.rows[name] for name in peers.on_nodes if name in view.rows]
        counts = [count for name, count in peers.on_nodes.items() if name in view.rows]
        is_nowhere = places.codes[rows] == places.book.find(_NOWHERE)
        elsewhere = np.where(is_nowhere, _column(_FROM_NOWHERE), _column(_SAME_ZONE))
        table[:, rows] += np.array(counts, np.int64) * (_column(_SAME_NODE) - elsewhere)
        return table

    def _find(self, view: ClusterView, kind: type[_Found], name: str) -> _Found | None:
        found = (view.lookup(kind, f"{space}/{name}") for space in self._args.namespaces)
        return next((item for item in found if item is not None), None)


class NetworkOverheadFilter(Filter):
    """Rejects nodes on which more dependencies of the pod are violated than satisfied."""

    def __init__(self, args: NetworkOverheadArgs) -> None:
        self._overheads = Overheads(args)

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or the counts of violated and satisfied dependencies in one number."""
        table = self._overheads.of(cycle)
        if table is None:
            return FilterResult.passing(len(cycle.view))
        satisfied, violated, _ = table
        return result_of(np.where(violated > satisfied, violated * _COUNTS + satisfied, PASS))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        violated, satisfied = divmod(code, _COUNTS)
        what = "node(s) does not meet several network requirements from Workload dependencies"
        return (f"{what}: Satisfied: {satisfied} Violated: {violated}",)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        table = self._overheads.of(cycle)
        if table is None:
            return ()
        satisfied, violated, _ = table[:, row].tolist()
        return (
            *_place(cycle.view, row),
            RuleInput("satisfied", satisfied, Unit.COUNT),
            RuleInput("violated", violated, Unit.COUNT),
        )


class NetworkOverheadScore(Score):
    """Prefers nodes with the least total cost to the dependencies of the pod."""

    def __init__(self, args: NetworkOverheadArgs) -> None:
        self._overheads = Overheads(args)

    def score(self, cycle: Cycle) -> Scores:
        """Return the sum of costs: the less the better."""
        table = self._overheads.of(cycle)
        return Scores(np.zeros(len(cycle.view), np.int64) if table is None else table[2])

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return MAX_SCORE for the least cost, 0 for the greatest; 0 for all that cost nothing."""
        return inverse_minmax(scores) if scores.any() else scores

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        table = self._overheads.of(cycle)
        if table is None:
            return ()
        return (*_place(cycle.view, row), RuleInput("cost", int(table[2, row])))


class _Peers:
    """The pods that a pod communicates with."""

    def __init__(self, view: ClusterView, group: str, dependencies: tuple[Dependency, ...]) -> None:
        # how many there are by the name of the node, once for each dependency on them
        self.on_nodes: Counter[str] = Counter()
        # the same by place and dependency
        self.in_places: Counter[tuple[Place, Dependency]] = Counter()
        rows, places = view.whole.rows, _places(view.whole)
        for dependency in dependencies:
            on_nodes = view.workloads.get((group, dependency.selector), {})
            codes = places.codes[[rows[name] for name in on_nodes]]
            counts = np.bincount(codes, list(on_nodes.values()))
            for code in np.flatnonzero(counts).tolist():
                place = places.values[code]
                if place is not None:
                    self.in_places[place, dependency] += int(counts[code])
            self.on_nodes.update(on_nodes)


def _to_all(
    in_places: Mapping[tuple[Place, Dependency], int],
    origin: Place,
    costs: Mapping[tuple[str, str], int],
) -> _Relation:
    """Return the relation of a node at `origin` to all pods on other nodes."""
    satisfied = violated = cost = 0
    for (target, dependency), count in in_places.items():
        relation = _relation(origin, target, dependency, costs)
        satisfied += count * relation.satisfied
        violated += count * relation.violated
        cost += count * relation.cost
    return _Relation(satisfied, violated, cost)


def _relation(
    origin: Place, target: Place, dependency: Dependency, costs: Mapping[tuple[str, str], int]
) -> _Relation:
    """Return the relation of a node at `origin` to a pod on another node at `target`."""
    if target == _NOWHERE:
        return _FROM_NOWHERE
    if origin == target:
        return _SAME_ZONE
    if origin.region == target.region:
        cost = costs.get((origin.zone, target.zone))
    else:
        cost = costs.get((origin.region, target.region))
    if cost is None:
        return _UNKNOWN
    is_near = cost <= dependency.max_network_cost
    return _Relation(satisfied=int(is_near), violated=int(not is_near), cost=cost)


def _costs_from(
    origin: Place, by_label: Mapping[str, Mapping[str, Mapping[str, int]]]
) -> dict[tuple[str, str], int]:
    """Return the costs from a region and from a zone; of both by one name the zone's count."""
    named = {REGION_LABEL: origin.region, ZONE_LABEL: origin.zone}
    return {
        (name, destination): cost
        for label, name in named.items()
        if name
        for destination, cost in by_label.get(label, {}).get(name, {}).items()
    }


def _places(view: ClusterView) -> DictionaryColumn[Place]:
    return view.dictionary_column(
        "network place",
        (Domain.NODES,),
        lambda part: [None if node is None else place_of(node.labels) for node in part.nodes],
    )


def _place(view: ClusterView, row: int) -> RuleInputs:
    node = view.nodes[row]
    place = place_of(node.labels) if node else _NOWHERE
    return (
        RuleInput("region", text=place.region or "none"),
        RuleInput("zone", text=place.zone or "none"),
    )


def _column(relation: _Relation) -> IntColumn:
    return np.array(relation, np.int64)[:, np.newaxis]


PLUGIN = Plugin(
    args=NetworkOverheadArgs,
    filter=NetworkOverheadFilter,
    score=NetworkOverheadScore,
    reads=(Domain.NODES, Domain.PODS, Domain.TOPOLOGY),
    reads_other_nodes=for_every_pod,
)
