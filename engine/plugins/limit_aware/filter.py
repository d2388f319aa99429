"""The filter of LimitAware.

Source: Koordinator pull request 1486, pkg/scheduler/plugins/limitaware/filtering.go.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.resource_names import NATIVE
from engine.model.rule_input import RuleInputs
from engine.model.rule_outcomes import FilterResult
from engine.model.shape_cache import cached_by_shape
from engine.model.time import Micros
from engine.plugins.base import FAULT, result_of
from engine.plugins.lib.reason_codes import reason_texts, rejected_with
from engine.plugins.limit_aware.capacity import UNCHECKED, LimitCapacity, Limits
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, RowWise, Sum, capped

_NODES = (Domain.NODES,)


@dataclass(frozen=True, slots=True)
class _FilterSide(RowWise):
    """Columns of all nodes that do not depend on the pod.

    Attributes:
        capacities: of NATIVE up to the last one that any node has a ratio for, (n_rated, n).
        named: every resource that some node has a ratio for.
        faulty: where the ratios of a node are unknown, None if they are known of all.
    """

    capacities: IntColumn
    named: frozenset[str]
    faulty: BoolColumn | None

    def take(self, rows: NDArray[np.intp]) -> _FilterSide:
        """Return some rows; resources that only others have a ratio for reject none of them."""
        faulty = None if self.faulty is None else self.faulty.take(rows)
        return _FilterSide(self.capacities.take(rows, axis=1), self.named, faulty)


class LimitAwareFilter(LimitCapacity):
    """Rejects nodes whose limits would add up to more than their capacity."""

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:  # noqa: ARG002 (protocol)
        """Return PASS, FAULT, or reasons: one per insufficient resource."""
        if pod.is_daemon_set:
            return FilterResult.passing(len(view))
        side = view.node_aggregate(("LimitAware filter", self._key), _NODES, self._side)
        complaints = self._complaints(pod, view, side)
        judged = rejected_with(complaints) if complaints else FilterResult.passing(len(view))
        if side.faulty is None:
            return judged
        return result_of(np.where(side.faulty, FAULT, judged.codes))

    def _complaints(self, pod: Pod, view: ClusterView, side: _FilterSide) -> list[BoolColumn]:
        """Return where each of the resources that are checked falls short, those of NATIVE first.

        Empty for a pod that limits nothing.
        """
        names = [name for name, _ in _checked(pod.shape)]
        if not names:
            return []
        own = _checked_amounts(pod.shape)
        allocated = view.sums[Sum.EFFECTIVE_LIMITS]
        n_rated = len(side.capacities)
        free = side.capacities - view.amounts(allocated, NATIVE[:n_rated])
        short = [*(free < own[:n_rated])]
        scalars = names[len(NATIVE) :]
        if scalars:
            nowhere = np.zeros(len(view), np.bool_)
            short += [nowhere] * (len(NATIVE) - n_rated)
            short += [
                self._capacity(view, name) - view.amount(allocated, name) < own[at]
                if name in side.named
                else nowhere
                for at, name in enumerate(scalars, len(NATIVE))
            ]
        return short

    def _side(self, view: ClusterView) -> _FilterSide:
        def capacities(part: ClusterView) -> IntColumn:
            return np.stack([self._capacity(part, name) for name in NATIVE])

        native = view.node_column(("LimitAware native", self._key), _NODES, capacities)
        is_rated = (native != UNCHECKED).any(axis=1).tolist()
        n_rated = max((i + 1 for i, rated in enumerate(is_rated) if rated), default=0)
        faulty = self._is_faulty(view)
        return _FilterSide(
            native[:n_rated], frozenset(self._ratios.named(view)), faulty if faulty.any() else None
        )

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the sums of limits with the pod, of the capacity for them."""
        checked = () if pod.is_daemon_set else _checked(pod.shape)
        return self._limits_with_pod(view, row, Sum.EFFECTIVE_LIMITS, checked)

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the texts of the reasons in a code, cpu, memory, ephemeral-storage first."""
        checked = _checked(pod.shape)
        texts = [f"Insufficient {name} limit" for name, _ in checked]
        return reason_texts(code, texts, "Insufficient extended resources limit")


@cached_by_shape
def _checked(shape: PodShape) -> Limits:
    """Return which resources a pod is checked for, and its own amounts; none if it limits nothing.

    Once it limits anything, cpu, memory and ephemeral-storage are checked even where its own amount
    is 0: a node that is over its capacity takes no such pod.
    """
    limits = shape.effective_limits
    scalars = sorted(limits.keys() - NATIVE)
    if not scalars and not any(map(limits.get, NATIVE)):
        return ()
    return tuple([(name, capped(limits.get(name, 0))) for name in (*NATIVE, *scalars)])


@cached_by_shape
def _checked_amounts(shape: PodShape) -> IntColumn:
    """Return a pod's own amounts of the resources that it is checked for, (n_checked, 1)."""
    amounts = [amount for _, amount in _checked(shape)]
    return np.array(amounts, np.int64)[:, np.newaxis]
