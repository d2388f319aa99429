"""NodeResourceTopologyMatch: keep pods off nodes whose kubelet could not align them to a NUMA zone.

Source: scheduler-plugins, pkg/noderesourcetopology: filter.go, score.go, numaresources.go. A node
passes unless its kubelet has the policy single-numa-node.

NodeResourceTopology objects say what is free in zones. Agents renew them every few seconds at best,
so this is an estimate: only the kubelet decides.

Differences from upstream:

- **Many zones**: of the combinations of zones on a node the first 255 are looked at, which are all
  of 8 zones. A pod that fits none of them does not fit.
- **Devices**: an extended resource that a DeviceClass stands for is in no zone of a node that does
  not offer it itself.
- **`cacheResyncPeriodSeconds`** is accepted and not used: zones are watched.
- **`cache`** is accepted and not used.
- **`preemptionMode`** is accepted and not used: nothing is preempted here.
"""

# Free amounts in the NUMA zones of each node, in tables: one row per zone, one column per node.
#
# Zones stand in order of their ids, and tables are as high as the node with the most zones needs.
#
# Scores of a request in each NUMA zone, by the three strategies for single zones.
#
# Source: scheduler-plugins, pkg/noderesourcetopology: least_allocated.go, most_allocated.go,
# balanced_allocation.go. All count in whole units, cpu in cores, and every resource of the
# request, those that no zone lists included.
#
# LeastNUMANodes: the fewer zones a pod must be spread over, and the nearer they are, the better.
#
# Source: scheduler-plugins, pkg/noderesourcetopology/least_numa.go.
#
# All combinations of zones are looked at in turn, upstream however many there are; here the first
# `_MOST_COMBINATIONS` of a node, which are all of 8 zones. A pod that fits none of them does not
# fit.
#
# Source of the args: scheduler-plugins, apis/config/types.go and apis/config/v1/defaults.go.

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, combinations, groupby, islice
from typing import Annotated, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from engine.model import api, resources
from engine.model.pod import Pod
from engine.model.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    is_huge_pages,
    is_prefixed_native,
    is_scalar,
)
from engine.model.resources import Amounts
from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs, unit_of
from engine.model.scheduler_plugins import (
    CONTAINER_SCOPE,
    POD_SCOPE,
    SINGLE_ZONE,
    UNKNOWN_DISTANCE,
    NodeZones,
    NumaLayout,
)
from engine.plugins.base import (
    MAX_SCORE,
    PASS,
    Args,
    Cycle,
    Filter,
    Plugin,
    ReadBy,
    ResourceName,
    Score,
    Scores,
    result_of,
)
from engine.plugins.lib.arithmetic import FloatColumn
from engine.view import (
    BoolColumn,
    ClusterView,
    DictionaryColumn,
    Domain,
    IntColumn,
    capped,
    left_to_devices,
)

ABSENT: Final = -(2**62)
"""The amount of a resource that a zone does not list; less than any other, whatever is taken."""

_MILLI: Final = 1000
_ZONES: Final = (Domain.TOPOLOGY,)
_NODES: Final = (Domain.NODES,)
_ALWAYS_OFFERED: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})


@dataclass(frozen=True, slots=True)
class ZoneTables:
    """The zones of the nodes of a view."""

    view: ClusterView  # whose nodes
    # the layout of each node, missing without a report of its zones
    layouts: DictionaryColumn[NumaLayout]
    most: int  # the height of the tables, at least 1

    @classmethod
    def of(cls, view: ClusterView) -> ZoneTables:
        layouts = view.dictionary_column("NUMA layout", _ZONES, _layouts)
        most = max((len(layout) for layout in layouts.values if layout is not None), default=0)
        return cls(view, layouts, max(most, 1))

    def has(self, policy: str, scope: str) -> BoolColumn:
        """Return which nodes have a kubelet with a policy in a scope, (n,)."""
        table = [node is not None and (node.policy, node.scope) == (policy, scope) for node in self]
        return self.layouts.spread(np.array(table, np.bool_))

    def rows_by_layout(self) -> Iterator[tuple[NumaLayout, NDArray[np.intp]]]:
        """Yield each layout with the rows of the nodes that have it."""
        for code in np.flatnonzero(self.layouts.counts).tolist():
            layout = self.layouts.values[code]
            if layout is not None:
                yield layout, np.flatnonzero(self.layouts.codes == code)

    def __iter__(self) -> Iterator[NumaLayout | None]:
        """Yield the layouts by their code."""
        return iter(self.layouts.values)

    def exist(self) -> BoolColumn:
        """Return which zones there are, (most, n)."""
        counts = np.array([0 if layout is None else len(layout) for layout in self])
        exist: BoolColumn = np.arange(self.most)[:, np.newaxis] < self.layouts.spread(counts)
        return exist

    def available(self, resource: str) -> FloatColumn:
        """Return what is left of a resource in each zone, base units or ABSENT, (most, n).

        Floats, for they are compared and added several times faster, and as exactly: amounts are
        capped.
        """
        return _available(self.view, resource, self.most)

    def is_listed(self, resources: Iterable[str]) -> BoolColumn:
        """Return which nodes have a zone that lists one of some resources, (n,)."""
        names = frozenset(resources)

        def compute(part: ClusterView) -> BoolColumn:
            is_listed = np.zeros(len(part), np.bool_)
            for name in names:
                is_listed |= (_available(part, name, self.most) != ABSENT).any(axis=0)
            return is_listed

        return self.view.node_column(("NUMA lists", names, self.most), _ZONES, compute)

    def most_in(self, resource: str, beside: frozenset[str]) -> FloatColumn:
        """Return the most that one zone has left of a resource, that two have and so on.

        The shape is (most, n). Only zones that list all that is `beside` it count; where there are
        too few, it is less than 0.
        """

        def compute(part: ClusterView) -> FloatColumn:
            listed = [_available(part, name, self.most) != ABSENT for name in beside]
            amounts = np.maximum(_available(part, resource, self.most), 0)
            usable = np.where(np.logical_and.reduce(listed), amounts, ABSENT)
            return np.sort(usable, axis=0)[::-1].cumsum(axis=0)

        key = ("NUMA most", resource, beside, self.most)
        return self.view.node_column(key, _ZONES, compute)

    def whole_units(self, resource: str) -> FloatColumn:
        """Return the same in whole units, rounded up, cpu in cores; 1 where nothing is left.

        So it can always be divided by.
        """

        def compute(part: ClusterView) -> FloatColumn:
            return whole_units(resource, np.maximum(_available(part, resource, self.most), 1))

        return self.view.node_column(("NUMA units", resource, self.most), _ZONES, compute)

    def divisor(self, resource: str) -> FloatColumn:
        """Return what a request is divided by to get its share of each zone, (2, most, n).

        The first is in whole units, infinite where nothing is left. There the share is 1, which is
        the second, and to be added.
        """

        def compute(part: ClusterView) -> FloatColumn:
            available = _available(part, resource, self.most)
            units = whole_units(resource, np.maximum(available, 1))
            return np.array([np.where(available > 0, units, np.inf), available <= 0])

        return self.view.node_column(("NUMA divisor", resource, self.most), _ZONES, compute)

    def is_offered(self, resource: str) -> BoolColumn:
        """Return which nodes have a resource at all, (n,); see `NodeInfo.Allocatable` upstream."""
        if resource in _ALWAYS_OFFERED:
            return np.ones(len(self.view), np.bool_)
        if not is_scalar(resource):
            return np.zeros(len(self.view), np.bool_)

        def compute(part: ClusterView) -> BoolColumn:
            nodes = part.nodes
            return np.array(
                [node is not None and resource in node.allocatable for node in nodes], bool
            )

        return self.view.node_column(("offers", resource), _NODES, compute)


_Amount = TypeVar("_Amount", int, FloatColumn)


def whole_units(resource: str, amount: _Amount) -> _Amount:
    """Return an amount as Go's `Quantity.Value` gives it: cpu in cores, rounded up."""
    return -(-amount // _MILLI) if resource == CPU else amount


def first_of(suitable: BoolColumn) -> NDArray[np.intp]:
    """Return the number of the first row that is True in each column, and of rows if none is.

    There may be 255 rows. Several times as fast as `argmax`, which goes down each column alone.
    """
    countdown = np.arange(len(suitable), 0, -1, dtype=np.uint8)[:, np.newaxis]
    greatest = (suitable * countdown).max(axis=0)
    first: NDArray[np.intp] = np.subtract(len(suitable), greatest, dtype=np.intp)
    return first


def container_requests(pod: Pod) -> tuple[Sequence[Amounts], Sequence[Amounts]]:
    """Return what each init container and each container of a pod requests."""
    return (
        [_requests(container) for container in pod.init_containers],
        [_requests(container) for container in pod.containers],
    )


def is_native(resource: str) -> bool:
    """Return whether a resource is Kubernetes' own (v1 helper, IsNativeResource)."""
    return "/" not in resource or is_prefixed_native(resource)


def is_host_level(resource: str) -> bool:
    """Return whether a resource need not belong to any zone."""
    return resource in (EPHEMERAL_STORAGE, "storage") or not is_native(resource)


def is_shared(resource: str, qos_class: str) -> bool:
    """Return whether a pod of a QoS class takes nothing of a zone by requesting a resource."""
    belongs = resource in (CPU, MEMORY) or is_huge_pages(resource)
    return belongs and qos_class != "Guaranteed"


def _requests(container: api.Container) -> Amounts:
    written = container.resources.requests if container.resources else None
    return {name: capped(amount) for name, amount in resources.amounts(written).items()}


def _available(view: ClusterView, resource: str, most: int) -> FloatColumn:
    def compute(part: ClusterView) -> FloatColumn:
        table = np.full((most, len(part)), ABSENT, np.float64)
        for row, name in enumerate(part.names):
            zones = part.lookup(NodeZones, name)
            for number, amounts in enumerate(zones.available if zones else ()):
                if resource in amounts:
                    table[number, row] = capped(amounts[resource])
        return table

    return view.node_column(("NUMA available", resource, most), _ZONES, compute)


def _layouts(view: ClusterView) -> Iterator[NumaLayout | None]:
    for name in view.names:
        zones = view.lookup(NodeZones, name)
        yield None if zones is None else zones.layout


ZoneScore: TypeAlias = Callable[[Amounts, ZoneTables, Mapping[str, int]], FloatColumn]
"""Gives the least score that any zone that fits a request gives it, (n,), 0 where none fits.

Takes the request, the zones and the weights of resources, 1 for those that are not listed.

Masks are made floats and multiplied by: `np.where` takes several times as long when one cannot
guess what comes next.
"""

_UNFIT: Final = 2.0**62
"""The offset of zones that do not fit: more than any score."""


def least_allocated(request: Amounts, zones: ZoneTables, weights: Mapping[str, int]) -> FloatColumn:
    """Return the weighted mean of what is left of each resource, in percent."""
    return _weighted(request, zones, weights, lambda left, request: left - request)


def most_allocated(request: Amounts, zones: ZoneTables, weights: Mapping[str, int]) -> FloatColumn:
    """Return the weighted mean of what is taken of each resource, in percent."""
    return _weighted(request, zones, weights, np.full_like)


def balanced_allocation(
    request: Amounts,
    zones: ZoneTables,
    weights: Mapping[str, int],  # noqa: ARG001 (protocol)
) -> FloatColumn:
    """Return how equal the shares are that are taken of resources; weights count nothing.

    To the last bit as upstream, for it is truncated: sums go resource by resource, in order.
    """
    fits = zones.exist()
    count = max(len(request), 1)
    shares = np.empty((count, *fits.shape))
    shares[len(request) :] = 1
    for share, (name, amount) in zip(shares, request.items(), strict=False):
        divisor, where_none_is_left = zones.divisor(name)
        np.divide(whole_units(name, amount), divisor, out=share)
        np.add(share, where_none_is_left, out=share)
        fits &= share <= 1
    mean = shares.sum(axis=0)
    mean /= count
    shares -= mean
    rest = shares.sum(axis=0)
    rest *= rest
    rest /= count
    shares *= shares
    variance = shares.sum(axis=0)
    variance -= rest
    variance /= max(count - 1, 1)
    variance -= (~fits).astype(np.float64) * _UNFIT
    greatest = variance.max(axis=0)
    return np.where(greatest < -_UNFIT / 2, 0, np.trunc((1 - greatest) * MAX_SCORE))


STRATEGIES: Final[Mapping[str, ZoneScore]] = {
    "BalancedAllocation": balanced_allocation,
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
}
"""By the names that args use."""


def _weighted(
    request: Amounts,
    zones: ZoneTables,
    weights: Mapping[str, int],
    part: Callable[[FloatColumn, float], FloatColumn],
) -> FloatColumn:
    """Return the least weighted mean of `part` of each resource in percent, truncated twice."""
    total = np.zeros((zones.most, len(zones.view)))
    for name, amount in request.items():
        left = zones.whole_units(name)
        percent = part(left, whole_units(name, amount))
        percent *= MAX_SCORE
        percent /= left
        np.trunc(percent, out=percent)  # exact, for the reason given in `trunc_div`
        fits = zones.available(name) >= max(amount, 1)
        percent *= fits.astype(np.float64)
        percent *= weights.get(name, 1)
        total += percent
    total /= sum(weights.get(name, 1) for name in request) or 1
    np.trunc(total, out=total)
    total += (total == 0) * _UNFIT
    least = total.min(axis=0)
    return np.where(least == _UNFIT, 0, least)


_MOST_COMBINATIONS: Final = 255
_AT_ONCE: Final = 2**14
"""Sums per batch: nodes that are done take no part in later batches."""

_NO_LIMIT: Final = ABSENT // 2
"""The bound of a resource with a request of 0: a zone must still list it."""

_Rows = NDArray[np.intp]


class _Combinations(NamedTuple):
    """The combinations of as many zones each, the nearest first."""

    zones: NDArray[np.intp]  # which they are, in order of their ids, (n_combinations, size)
    is_nearest: BoolColumn  # whether none is nearer, (n_combinations,)


class _Found(NamedTuple):
    """Rows where a request fits."""

    rows: _Rows  # which they are, (n_found,)
    every: _Combinations  # the combinations of as many zones as it needs there
    chosen: NDArray[np.intp]  # which of them it gets, (n_found,)


def points(zones: int | IntColumn, most_zones: int, *, is_nearest: bool | BoolColumn) -> IntColumn:
    """Return the points for needing so many zones of so many that a node can have."""
    unit = MAX_SCORE // most_zones
    return np.asarray(MAX_SCORE - zones * unit + np.where(is_nearest, unit // 2, 0))


def least_numa_nodes(
    zones: ZoneTables, layout: NumaLayout, rows: _Rows, requests: Sequence[Amounts]
) -> IntColumn:
    """Return the points of the nodes of one layout, (n_rows,)."""
    search = _Search(zones, layout, rows, requests)
    most = np.zeros(rows.size, np.int64)
    is_nearest, fits = np.ones(rows.size, np.bool_), np.ones(rows.size, np.bool_)
    for number, request in enumerate(requests, 1):
        concerned = zones.is_listed(request)[rows] & fits
        fits &= ~concerned
        for found, every, chosen in search.needed(request, np.flatnonzero(concerned)):
            fits[found] = True
            most[found] = np.maximum(most[found], every.zones.shape[1])
            is_nearest[found] &= every.is_nearest[chosen]
            if number < len(requests):
                search.take(request, found, every.zones[chosen])
    scores = np.where(most == 0, MAX_SCORE, points(most, layout.most_zones, is_nearest=is_nearest))
    return np.where(fits, scores, 0)


class _Search:
    """The amounts left in the zones of a group of nodes while requests are placed.

    Amounts are floats. INVARIANT: they are capped, and no combination has more than 8 zones or so,
    so all sums are exact; one with an ABSENT in it is far below 0.
    """

    def __init__(
        self, zones: ZoneTables, layout: NumaLayout, rows: _Rows, requests: Sequence[Amounts]
    ) -> None:
        names = dict.fromkeys(name for request in requests for name in request)
        self._zones = zones
        self._rows = rows
        self._combinations = _combinations(layout)
        self._left = {
            name: zones.available(name)[: len(layout)].take(rows, axis=1) for name in names
        }

    def needed(self, request: Amounts, rows: _Rows) -> Iterator[_Found]:
        """Yield where a request fits, and into what, of all rows where anything of it is listed."""
        if not rows.size:
            return
        first, *more = self._combinations
        rows = yield from self._among(first, request, rows)
        rows = rows.compress(self._fit_together(request, rows))
        for every in more:
            if not rows.size:
                return
            may_fit = self._may_fit(request, rows, every.zones.shape[1])
            left_over = yield from self._among(every, request, rows.compress(may_fit))
            rows = np.concatenate([rows.compress(~may_fit), left_over])

    def take(self, request: Amounts, rows: _Rows, zones: NDArray[np.intp]) -> None:
        """Take a request from zones of some rows, (n_rows, n_zones), first from the first."""
        missing: dict[str, float | FloatColumn] = dict(request)
        for zone in zones.T:
            at = zone * self._rows.size + rows
            for name in request:
                left = self._left[name].reshape(-1)
                free = left.take(at)
                placed = np.minimum(missing[name], free)
                left[at] = free - placed
                missing[name] = missing[name] - placed

    def _among(
        self, every: _Combinations, request: Amounts, rows: _Rows
    ) -> Generator[_Found, None, _Rows]:
        """Yield where a request fits into one of some combinations; return the other rows."""
        left = self._left_on(request, rows)
        at = 0
        while rows.size and at < len(every.zones):
            combinations = every.zones[at : at + max(1, _AT_ONCE // rows.size)]
            first = first_of(_suitable(combinations, request, left))
            is_found = first < len(combinations)
            if is_found.any():
                yield _Found(rows.compress(is_found), every, first.compress(is_found) + at)
                rows = rows.compress(~is_found)
                left = self._left_on(request, rows)
            at += len(combinations)
        return rows

    def _left_on(self, request: Amounts, rows: _Rows) -> Mapping[str, FloatColumn]:
        if rows.size == self._rows.size:
            return self._left
        return {name: self._left[name].take(rows, axis=1) for name in request}

    def _may_fit(self, request: Amounts, rows: _Rows, size: int) -> BoolColumn:
        """Return on which rows so many zones had the request before any was placed."""
        names = frozenset(request)
        may_fit = np.ones(self._rows.size, np.bool_)
        for name, amount in request.items():
            most = self._zones.most_in(name, names)[size - 1]
            may_fit &= most[self._rows] >= (amount or _NO_LIMIT)
        return may_fit[rows]

    def _fit_together(self, request: Amounts, rows: _Rows) -> BoolColumn:
        """Return on which rows the zones that list everything hold the request together."""
        left = self._left_on(request, rows)
        lists_all = np.logical_and.reduce([left[name] != ABSENT for name in request])
        together = [
            (np.maximum(left[name], 0) * lists_all).sum(axis=0) >= amount
            for name, amount in request.items()
        ]
        return np.asarray(np.logical_and.reduce(together))


@lru_cache(maxsize=256)
def _combinations(layout: NumaLayout) -> tuple[_Combinations, ...]:
    """Return the combinations of zones by their number, from one on.

    Equally near ones stay in the order of their zones. Distances beyond what is unknown are no way.
    """
    zones = range(len(layout))
    every = chain.from_iterable(combinations(zones, size + 1) for size in zones)
    return tuple(
        _of_one_size(layout, list(those), size)
        for size, those in groupby(islice(every, _MOST_COMBINATIONS), len)
    )


def _of_one_size(layout: NumaLayout, those: list[tuple[int, ...]], size: int) -> _Combinations:
    pairs = size * size
    length = {
        zones: sum(layout.distances[zone][other] for zone in zones for other in zones)
        for zones in those
    }
    nearest = min(UNKNOWN_DISTANCE * pairs, *length.values())
    ways = [zones for zones in those if length[zones] < (UNKNOWN_DISTANCE + 1) * pairs]
    ways.sort(key=length.__getitem__)
    return _Combinations(
        np.array(ways, np.intp).reshape(len(ways), size),
        np.array([length[zones] == nearest for zones in ways], np.bool_),
    )


def _suitable(
    combinations: NDArray[np.intp], request: Amounts, left: Mapping[str, FloatColumn]
) -> BoolColumn:
    """Return which combinations hold the request, and list all resources in each of their zones.

    The shape is (n_combinations, n_rows).
    """
    suitable: BoolColumn = np.ones((1, 1), np.bool_)
    for name, amount in request.items():
        total = left[name][combinations[:, 0]]
        for zones in combinations.T[1:]:
            total += left[name][zones]
        suitable = suitable & (total >= (amount or _NO_LIMIT))
    return suitable


def _at_least_one(weight: int) -> int:
    return max(weight, 1)


class WeightedResource(Args):
    """A resource that counts, and how much; a weight below 1 counts as 1."""

    name: ResourceName
    weight: Annotated[int, Field(strict=True), AfterValidator(_at_least_one)] = 1


class ScoringStrategy(Args):
    """By what nodes are ranked."""

    type: Literal["BalancedAllocation", "LeastAllocated", "LeastNUMANodes", "MostAllocated"]
    resources: tuple[WeightedResource, ...] = ()


class CacheArgs(Args):
    """Upstream's cache of the zones; accepted and not used."""

    foreign_pods_detect: Literal["All", "None", "OnlyExclusiveResources"] = "All"
    resync_method: Literal["All", "Autodetect", "OnlyExclusiveResources"] = "Autodetect"
    informer_mode: Literal["Dedicated", "Shared"] = "Dedicated"
    resync_scope: Literal["All", "OnlyResources"] = "All"


class NodeResourceTopologyMatchArgs(Args):
    """NodeResourceTopologyMatchArgs, with upstream's defaults.

    Attributes:
        scoring_strategy: by what nodes are ranked; LeastAllocated if not given.
        cache_resync_period_seconds: accepted and not used: zones are watched.
        discard_reserved_nodes: whether to reject a node as long as a pod is expected there that is
            not bound yet, for its zones do not show that pod.
        cache: accepted and not used.
        preemption_mode: accepted and not used: nothing is preempted here.
    """

    scoring_strategy: Annotated[ScoringStrategy, ReadBy.SCORE] = ScoringStrategy(
        type="LeastAllocated",
        resources=(WeightedResource(name=CPU), WeightedResource(name=MEMORY)),
    )
    cache_resync_period_seconds: Annotated[int, Field(strict=True)] = 0
    discard_reserved_nodes: Annotated[bool, Field(strict=True)] = False
    cache: CacheArgs = CacheArgs()
    preemption_mode: Literal["Disabled", "Enabled"] = "Disabled"

    @cached_property
    def weights(self) -> Mapping[str, int]:
        """The weights of resources; one that is not listed weighs 1."""
        return {resource.name: resource.weight for resource in self.scoring_strategy.resources}


_INVALID, _POD, _INIT_CONTAINER, _SIDECAR, _CONTAINER = range(1, 6)
_REASONS: Final = {
    _INVALID: "invalid node topology data",
    _POD: "cannot align pod",
    _INIT_CONTAINER: "cannot align init container",
    _SIDECAR: "cannot align sidecar container",
    _CONTAINER: "cannot align container",
}
_GUARANTEED: Final = "Guaranteed"
_BEST_EFFORT: Final = "BestEffort"
_NODES_AND_ZONES: Final = (Domain.NODES, Domain.TOPOLOGY)

_Request: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by name, to be a key."""


class NodeResourceTopologyMatchFilter(Filter):
    """Rejects nodes where no single NUMA zone holds the pod, or one of its containers."""

    def __init__(self, args: NodeResourceTopologyMatchArgs) -> None:
        self._discards_reserved = args.discard_reserved_nodes

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or what cannot be aligned."""
        view = cycle.view
        if not _is_concerned(cycle.pod):
            return FilterResult.passing(len(view))
        found = _fit_codes(_Requests.of(cycle.pod), view)
        if self._discards_reserved:
            found = np.where(_is_reserved(ZoneTables.of(view)), _INVALID, found)
        return result_of(found)

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        return (_REASONS[code],)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return _inputs(cycle.pod, cycle.view, row) if _is_concerned(cycle.pod) else ()


class NodeResourceTopologyMatchScore(Score):
    """Ranks nodes by their zones, for Guaranteed pods; to others all nodes are as good."""

    def __init__(self, args: NodeResourceTopologyMatchArgs) -> None:
        self._zone_score = STRATEGIES.get(args.scoring_strategy.type)
        self._weights = args.weights
        self._discards_reserved = args.discard_reserved_nodes

    def score(self, cycle: Cycle) -> Scores:
        """Return points, 0 where nothing is known of the zones."""
        view = cycle.view
        if cycle.pod.shape.qos_class != _GUARANTEED:
            return Scores(np.full(len(view), MAX_SCORE, np.int64))
        requests = _Requests.of(cycle.pod)

        def points(part: ClusterView) -> IntColumn:
            zones = ZoneTables.of(part)
            if self._zone_score is None:
                return _fewest_zones(zones, requests)
            return _means(zones, requests, self._zone_score, self._weights)

        scores = view.pod_column((self, requests), _ZONES, points)
        if self._discards_reserved:
            scores = np.where(_is_reserved(ZoneTables.of(view)), 0, scores)
        return Scores(scores)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores, which are on the scale unless amounts or distances are absurd."""
        return np.clip(scores, 0, MAX_SCORE)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return (
            _inputs(cycle.pod, cycle.view, row) if cycle.pod.shape.qos_class == _GUARANTEED else ()
        )


class _Requests(NamedTuple):
    """All that is read of a pod: pods of equal requests share a cache entry."""

    qos_class: str  # of the pod
    whole: _Request  # the requests of the pod as a whole, by name
    # the requests of each init container, and whether it is a sidecar
    init: tuple[tuple[_Request, bool], ...]
    app: tuple[_Request, ...]  # the requests of each container

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Return the requests of a pod."""
        init, app = container_requests(pod)
        is_sidecar = [container.restart_policy == "Always" for container in pod.init_containers]
        return cls(
            pod.shape.qos_class,
            tuple(_pod_request(pod).items()),
            tuple(zip((tuple(request.items()) for request in init), is_sidecar, strict=True)),
            tuple(tuple(request.items()) for request in app),
        )

    def without(self, names: AbstractSet[str]) -> Self:
        """Return the same without some resources."""

        def rest(request: _Request) -> _Request:
            return tuple([(name, amount) for name, amount in request if name not in names])

        return self._replace(
            whole=rest(self.whole),
            init=tuple((rest(request), is_sidecar) for request, is_sidecar in self.init),
            app=tuple(map(rest, self.app)),
        )

    def by_scope(self) -> Mapping[str, Sequence[Amounts]]:
        """Return what is looked at in turn in each scope."""
        each = [*(request for request, _ in self.init), *self.app]
        return {POD_SCOPE: [dict(self.whole)], CONTAINER_SCOPE: [dict(request) for request in each]}


def _fit_codes(requests: _Requests, view: ClusterView) -> IntColumn:
    """Return PASS or what cannot be aligned, (n,), whatever devices provide left out.

    Those are in no zone of a node that has no device plugin for them.
    """
    left = {name: left_to_devices(name, view) for name, _ in requests.whole}
    devices = {name: nodes for name, nodes in left.items() if nodes is not None}

    def codes(of: _Requests) -> IntColumn:
        return view.pod_column(
            ("NUMA fit", of), _NODES_AND_ZONES, lambda part: _codes(ZoneTables.of(part), of)
        )

    found = codes(requests)
    if not devices:
        return found
    without = np.stack([*devices.values()])
    for kind in np.unique(without, axis=1).T:
        names = frozenset([name for name, left_out in zip(devices, kind, strict=True) if left_out])
        alike = (without == kind[:, np.newaxis]).all(axis=0)
        found = np.where(alike, codes(requests.without(names)), found)
    return found


class _Fit:
    """The amounts left in the zones of all nodes while containers are put into them in turn."""

    def __init__(self, zones: ZoneTables, qos_class: str) -> None:
        self._zones = zones
        self._left: dict[str, FloatColumn] = {}
        self._qos_class = qos_class

    def zone_of(self, request: Amounts) -> tuple[NDArray[np.intp], BoolColumn]:
        """Return the first zone of each node that holds a request, and where there is none, (n,).

        There is none on a node that does not offer all of it. Where there is none the zone is any.
        """
        suitable = np.ones((self._zones.most, len(self._zones.view)), np.bool_)
        is_offered = np.ones(len(self._zones.view), np.bool_)
        for name, amount in request.items():
            if amount:
                suitable &= self._holds(name, amount)
                is_offered &= self._zones.is_offered(name)
        first = first_of(suitable)
        fails = (first == len(suitable)) | ~is_offered
        return np.minimum(first, len(suitable) - 1), fails

    def take(self, request: Amounts, zone: NDArray[np.intp]) -> None:
        """Take a request from one zone of each node."""
        at = zone * len(zone) + np.arange(len(zone))
        for name, amount in request.items():
            if amount and not is_shared(name, self._qos_class):
                if name not in self._left:
                    self._left[name] = self._zones.available(name).copy()
                self._left[name].reshape(-1)[at] -= amount

    def _holds(self, name: str, amount: int) -> BoolColumn:
        left = self._left.get(name)
        if left is None:
            left = self._zones.available(name)
        holds = left != ABSENT if is_shared(name, self._qos_class) else left >= amount
        if is_host_level(name):
            holds |= ~self._zones.is_listed([name])
        return holds


def _is_concerned(pod: Pod) -> bool:
    """Return whether a pod asks for anything that may belong to a zone."""
    requests = chain(*container_requests(pod))
    asks_for_devices = any(not is_native(name) for request in requests for name in request)
    return pod.shape.qos_class != _BEST_EFFORT or asks_for_devices


def _codes(zones: ZoneTables, requests: _Requests) -> IntColumn:
    """Return the code of each node."""
    codes = np.full(len(zones.view), PASS, np.int64)
    of_pods = zones.has(SINGLE_ZONE, POD_SCOPE)
    if of_pods.any():
        _, fails = _Fit(zones, requests.qos_class).zone_of(dict(requests.whole))
        codes[of_pods & fails] = _POD
    of_containers = zones.has(SINGLE_ZONE, CONTAINER_SCOPE)
    if of_containers.any():
        codes = np.where(of_containers, _container_codes(zones, requests), codes)
    return codes


def _container_codes(zones: ZoneTables, requests: _Requests) -> IntColumn:
    """Return the code of each node as one that looks at containers one by one.

    Init containers run one after the other and so leave their zone as it was. Each container takes
    the zone with the lowest id that holds it.
    """
    fit = _Fit(zones, requests.qos_class)
    codes = np.full(len(zones.view), PASS, np.int64)
    for request, is_sidecar in requests.init:
        _, fails = fit.zone_of(dict(request))
        codes[(codes == PASS) & fails] = _SIDECAR if is_sidecar else _INIT_CONTAINER
    for number, request in enumerate(requests.app, 1):
        zone, fails = fit.zone_of(dict(request))
        codes[(codes == PASS) & fails] = _CONTAINER
        if number < len(requests.app):
            fit.take(dict(request), zone)
    return codes


def _fewest_zones(zones: ZoneTables, requests: _Requests) -> IntColumn:
    """Return the points of each node by how few zones a pod needs, 0 where none are known."""
    points = np.zeros(len(zones.view), np.int64)
    by_scope = requests.by_scope()
    for layout, rows in zones.rows_by_layout():
        points[rows] = least_numa_nodes(zones, layout, rows, by_scope[layout.scope])
    return points


def _means(
    zones: ZoneTables, requests: _Requests, zone_score: ZoneScore, weights: Mapping[str, int]
) -> IntColumn:
    """Return the points of each node by the worst of its zones, 0 unless a pod must fit one.

    They are the mean over what is looked at of the least that any fitting zone gives.
    """
    points = np.zeros(len(zones.view), np.int64)
    for scope, scoped in requests.by_scope().items():
        concerned = zones.has(SINGLE_ZONE, scope)
        if not concerned.any():
            continue
        total = np.zeros(len(points))
        for request in scoped:
            total += zone_score(request, zones, weights)
        mean = np.trunc(total / (len(scoped) or 1))  # exact, for the reason given in `trunc_div`
        points[concerned] = mean[concerned]
    return points


def _pod_request(pod: Pod) -> Amounts:
    return {name: capped(amount) for name, amount in pod.shape.peak_requests.items()}


def _inputs(pod: Pod, view: ClusterView, row: int) -> RuleInputs:
    known = view.lookup(NodeZones, view.names[row])
    if known is None:
        return (RuleInput("zones", text="not known"),)
    layout = known.layout
    requests = (
        [_pod_request(pod)] if layout.scope == POD_SCOPE else [*chain(*container_requests(pod))]
    )
    names = dict.fromkeys(name for request in requests for name in request)
    left = [{name: free[name] for name in names if name in free} for free in known.available]
    return (
        RuleInput("topology manager", text=f"{layout.policy}, scope {layout.scope}"),
        RuleInput("asked for", parts=tuple(_amounts("", request) for request in requests)),
        *(_amounts(f"zone {i} has left", amounts) for i, amounts in enumerate(left)),
    )


def _amounts(name: str, amounts: Amounts) -> RuleInput:
    if not amounts:
        return RuleInput(name, text="none")
    parts = [RuleInput(resource, amount, unit_of(resource)) for resource, amount in amounts.items()]
    return RuleInput(name, parts=tuple(parts))


def _is_reserved(zones: ZoneTables) -> BoolColumn:
    """Return where zones are reported but do not show a pod that is expected there."""
    return zones.layouts.present & (zones.view.assumed > 0)


PLUGIN = Plugin(
    args=NodeResourceTopologyMatchArgs,
    filter=NodeResourceTopologyMatchFilter,
    score=NodeResourceTopologyMatchScore,
    reads=(Domain.NODES, Domain.PODS, Domain.TOPOLOGY),
)
