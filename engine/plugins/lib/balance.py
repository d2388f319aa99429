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

_ROUNDING = 1e-9
"""Added to points, so that truncation takes none for what binary fractions are off."""

_NO_ROWS = np.zeros(0, np.intp)

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Balance:
    """What the strategy knows of nodes whatever is used of them.

    Columns are few, for a decision reads all of them: an amount times `scale` is its share of a
    node, in such a unit that the product of two of them is in points.
    """

    scale: FloatColumn  # 0 where a resource takes no part, (n_resources, n)
    unit: FloatColumn  # the `scale` of what a node offers, (n_resources, 1)
    # the nodes over which utilization is to be even, ascending; None for all
    competing: NDArray[np.intp] | None
    numbers: IntColumn  # how many of them each resource takes part on, at least 1, (n_resources, 1)
    # of the resources that take part, (n_resources, n); of one node for all where they are alike
    weights: FloatColumn
    total_weight: FloatColumn  # at least 1, (n,) or (1,)

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
        unit = np.sqrt(_NEUTRAL / np.where(greatest > 0, greatest, 1))
        shares = weights if takes_part.all() else weights * takes_part
        return cls(
            scale=inverse * unit,
            unit=unit,
            competing=None if (counts == takes_part).all() else competing.nonzero()[0],
            numbers=np.maximum(np.count_nonzero(counts, axis=1)[:, np.newaxis], 1),
            weights=shares,
            total_weight=np.maximum(sum_of_rows(shares), 1),
        )

    def levels(self, used: IntColumn) -> Levels:
        """Return what the strategy knows once it knows what is used, (n_resources, n)."""
        levels = used * self.scale
        # Where a resource takes no part its level is 0.
        counted = levels if self.competing is None else levels.take(self.competing, axis=1)
        means = np.add.reduce(counted, axis=1, keepdims=True) / self.numbers
        levels -= means
        levels += levels
        return Levels(self, means, levels)


@dataclass(frozen=True, slots=True)
class Levels:
    """What the strategy knows of nodes and of what is used of them, before a pod is."""

    balance: Balance
    scaled_means: FloatColumn  # of utilization, by `scale`, (n_resources, 1)
    twice_distance: FloatColumn  # of nodes from these, by `scale`, (n_resources, n)

    @property
    def means(self) -> FloatColumn:
        """The mean utilization of each resource, (n_resources, 1)."""
        means: FloatColumn = self.scaled_means / self.balance.unit
        return means

    def points(self, own: IntColumn) -> IntColumn:
        """Return the points of each node, 0..MAX_SCORE truncated, (n,).

        They fall with the change of variance, in the unit of what the pod takes of the smallest
        competing node: on that node by one for each percent of utilization, from 50 where the
        variance stays as it is. Of several resources the weighted mean; 0 where none takes part.

        Args:
            own: the amounts of the pod, (n_resources, 1).
        """
        balance = self.balance
        points = balance.scale * own
        points += self.twice_distance
        points *= balance.scale
        np.subtract(_NEUTRAL + _ROUNDING, points, out=points)
        # A third of the time of `np.maximum` and `np.minimum`, which are slow with a number.
        points.clip(0, MAX_SCORE, out=points)
        points *= balance.weights
        mean = sum_of_rows(points)
        mean /= balance.total_weight
        return mean.astype(np.int64)


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

    @abstractmethod
    def weighed(self, pod: Pod) -> Weighed:
        """Return the resources that count for a pod."""

    @abstractmethod
    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        """Return what is used of some resources without the pod, (len(names), n)."""

    @abstractmethod
    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        """Return what there is of them, 0 or less where one takes no part, (len(names), n).

        It depends on nodes alone, not on their pods and reports.
        """

    @abstractmethod
    def key(self, pod: Pod) -> Hashable:
        """Return what tells `used` and `capacity` apart, beside the names of resources."""

    def unknown(self, cycle: Cycle) -> NDArray[np.intp]:
        """Return the rows of nodes that take no part for now."""
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
        return Scores(self._levels(cycle, weighed).points(weighed.own), self.faults(view))

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        pod, view, weighed = cycle.pod, cycle.view, self.weighed(cycle.pod)
        used, capacity = (each(pod, view, weighed.names) for each in (self.used, self.capacity))
        levels = self._levels(cycle, weighed)
        weights = np.broadcast_to(levels.balance.weights, capacity.shape)
        means = levels.means[:, 0].tolist()
        found = []
        for at, name in enumerate(weighed.names):
            if not weights[at, row]:
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

    def _levels(self, cycle: Cycle, weighed: Weighed) -> Levels:
        pod, view, names = cycle.pod, cycle.view, weighed.names
        unknown = self.unknown(cycle)

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
        # Only the last ones are kept: as long as nothing changes, many pods may come.
        latest: tuple[Hashable, Levels] | None = view.scratch.get(self)  # type: ignore[assignment]
        if latest is not None and latest[0] == key:
            return latest[1]
        balance = view.node_aggregate(key, (Domain.NODES,), make)
        levels = balance.levels(self.used(pod, view, names))
        view.scratch[self] = key, levels
        return levels
