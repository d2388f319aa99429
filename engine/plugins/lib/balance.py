"""The strategy Balanced: how a pod would change the variance of utilization over nodes.

Of a node with a utilization x, where the mean over nodes is m and the pod takes the share d, the
sum of squared distances from the mean changes by d * (2 * (x - m) + d), but for what the mean
itself moves. Strategies that compare how full a node is afterwards treat a small node and a large
one alike; this one does not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.rule_outcomes import RuleInput, RuleInputs, Unit, unit_of
from engine.plugins.base import MAX_SCORE, Cycle, ReadsAllNodes, Scores
from engine.plugins.lib.arithmetic import FloatColumn, sum_of_rows
from engine.plugins.lib.constraints import allowed_by_labels
from engine.view import BoolColumn, ClusterView, Domain, IntColumn

_NEUTRAL = MAX_SCORE / 2
"""The points of a node where the pod leaves the variance as it is."""

_NO_ROWS = np.zeros(0, np.intp)

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Balance:
    """What the strategy knows of nodes before a pod is, and of what is used."""

    # one through each capacity, 0 where a resource takes no part, (n_resources, n)
    inverse: FloatColumn
    # the nodes over which utilization is to be even, ascending; None for all
    competing: NDArray[np.intp] | None
    numbers: IntColumn  # how many of them each resource takes part on, at least 1, (n_resources, 1)
    inverse_sums: FloatColumn  # of `inverse` over them, (n_resources, 1)
    # turns twice a distance from the mean into points below 50, (n_resources, n)
    factor: FloatColumn
    weights: FloatColumn  # of the resources that take part, (n_resources, n)
    total_weight: FloatColumn  # at least 1, (n,)

    @classmethod
    def of(cls, capacity: IntColumn, weights: FloatColumn, competing: BoolColumn) -> Balance:
        """Return that of some nodes.

        Args:
            capacity: (n_resources, n), base units; 0 or less where a resource takes no part.
            weights: of the resources, (n_resources, 1).
            competing: the nodes over which utilization is to be even, (n,).
        """
        takes_part = capacity > 0
        inverse = np.where(takes_part, 1 / np.where(takes_part, capacity, 1), 0.0)
        counts = takes_part & competing
        greatest = inverse.max(axis=1, initial=0, where=counts, keepdims=True)
        shares = weights * takes_part
        return cls(
            inverse=inverse,
            competing=None if (counts == takes_part).all() else competing.nonzero()[0],
            numbers=np.maximum(np.count_nonzero(counts, axis=1)[:, np.newaxis], 1),
            inverse_sums=np.add.reduce(inverse, axis=1, where=counts, keepdims=True),
            factor=-_NEUTRAL * inverse / np.where(greatest > 0, greatest, 1),
            weights=shares,
            total_weight=np.maximum(sum_of_rows(shares), 1),
        )

    def means(self, used: IntColumn | FloatColumn) -> FloatColumn:
        """Return the mean utilization of each resource, (n_resources, 1)."""
        return self._sums(used * self.inverse) / self.numbers

    def points(self, used: IntColumn, own: IntColumn) -> IntColumn:
        """Return the points of each node, 0..MAX_SCORE truncated, (n,).

        They fall with the change of variance, in the unit of what the pod takes of the smallest
        competing node: on that node by one for each percent of utilization, from 50 where the
        variance stays as it is. Of several resources the weighted mean; 0 where none takes part.

        Args:
            used: without the pod, (n_resources, n), base units.
            own: the amounts of the pod, (n_resources, 1).
        """
        change = (used + used + own) * self.inverse
        change -= (self._sums(change) - own * self.inverse_sums) / self.numbers
        change *= self.factor
        change += _NEUTRAL
        np.maximum(change, 0, out=change)
        np.minimum(change, MAX_SCORE, out=change)
        change *= self.weights
        points = sum_of_rows(change)
        points /= self.total_weight
        return points.astype(np.int64)

    def _sums(self, values: FloatColumn) -> FloatColumn:
        """Return the sums over the competing nodes, of values that are 0 where none takes part."""
        if self.competing is not None:
            values = values.take(self.competing, axis=1)
        sums: FloatColumn = np.add.reduce(values, axis=1, keepdims=True)
        return sums


@dataclass(frozen=True, slots=True)
class Weighed:
    """The resources that count for a pod."""

    names: tuple[str, ...]  # of the resources
    weights: tuple[float, ...]  # of each
    own: IntColumn  # the amounts of the pod, (n_resources, 1)


class BalancedScore(ReadsAllNodes):
    """Prefers nodes where a pod lowers the variance of utilization over nodes most.

    Even is to be what the pod may choose from: the nodes that its label rules allow.
    """

    measure: ClassVar[str]  # what is used, for the names of inputs
    domains: ClassVar[tuple[Domain, ...]]  # what `capacity` is made from

    @abstractmethod
    def weighed(self, pod: Pod) -> Weighed:
        """Return the resources that count for a pod."""

    @abstractmethod
    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        """Return what is used of some resources without the pod, (len(names), n)."""

    @abstractmethod
    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        """Return what there is of them, 0 or less where one takes no part, (len(names), n)."""

    @abstractmethod
    def key(self, pod: Pod) -> Hashable:
        """Return what tells `capacity` apart, beside the names of resources."""

    def unknown(self, cycle: Cycle) -> NDArray[np.intp]:
        """Return the nodes that take no part for now."""
        return _NO_ROWS

    def faults(self, view: ClusterView) -> BoolColumn | None:
        """Return the nodes that cannot be scored, None for none."""
        return None

    def score(self, cycle: Cycle) -> Scores:
        """Return the points of each node, over all nodes of the cluster whatever rows are asked."""
        pod, view = cycle.pod, cycle.view
        if view.parent is not None:
            parent, rows = view.parent
            found = self.score(Cycle(pod, parent, cycle.now))
            faults = None if found.faults is None else found.faults.take(rows)
            return Scores(found.values.take(rows), faults)
        weighed = self.weighed(pod)
        used = self.used(pod, view, weighed.names)
        points = self._balance(cycle, weighed).points(used, weighed.own)
        return Scores(points, self.faults(view))

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        pod, view, weighed = cycle.pod, cycle.view, self.weighed(cycle.pod)
        used, capacity = (each(pod, view, weighed.names) for each in (self.used, self.capacity))
        balance = self._balance(cycle, weighed)
        means = balance.means(used)[:, 0].tolist()
        found = []
        for at, name in enumerate(weighed.names):
            if not balance.weights[at, row]:
                continue
            own = int(weighed.own[at, 0])
            found += [
                RuleInput(
                    f"{name} {self.measure}",
                    int(used[at, row]) + own,
                    unit_of(name),
                    capacity=int(capacity[at, row]),
                    pod=own,
                ),
                RuleInput(f"mean {name} {self.measure}", 100 * means[at], Unit.PERCENT),
            ]
        return tuple(found)

    def _balance(self, cycle: Cycle, weighed: Weighed) -> Balance:
        pod, names, unknown = cycle.pod, weighed.names, self.unknown(cycle)

        def make(whole: ClusterView) -> Balance:
            capacity = self.capacity(pod, whole, names)
            if unknown.size:
                capacity = capacity.copy()
                capacity[:, unknown] = 0
            weights = np.array(weighed.weights, np.float64).reshape(len(names), 1)
            competing = whole.valid & allowed_by_labels(pod, whole)
            return Balance.of(capacity, weights, competing)

        affinity = b"" if pod.affinity is None else _encode(pod.affinity)
        labels = frozenset(pod.node_selector.items()), affinity, pod.promised
        key = ("Balanced", self.key(pod), names, weighed.weights, unknown.tobytes(), labels)
        return cycle.view.node_aggregate(key, self.domains, make)
