"""LoadAware's sums per node: measured and estimated usage of its pods.

Source: Koordinator, pkg/scheduler/plugins/loadaware (pod_assign_cache.go).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from engine.model.byte_limited_cache import ByteLimitedCache
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND
from engine.model.usage import NodeUsage
from engine.plugins.load_aware.estimation import Estimation, deadline, estimate_vector, windows
from engine.view import GREATEST_AMOUNT as _MOST
from engine.view import ClusterView, IntColumn, PodEntry, capped

_SUMS = 4  # node delta, node estimate, production usage, production delta
_CACHE_BYTES = 64 * 2**20  # some 23,000 shapes of everyday pods
_FACTS_BYTES = 768  # of one shape

_Amounts: TypeAlias = tuple[int, ...]
"""By known resource."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class LoadProfile(Estimation):
    """The profile of the sums (`PodSumProfile`); rules with equal estimates share them.

    Compared by identity, as it is looked up several times in each decision: `LoadAwareArgs` give
    one object for equal arguments.
    """

    reads_reports: ClassVar[bool] = True
    _facts: ByteLimitedCache[PodShape, _ShapeFacts] = field(
        init=False,
        repr=False,
        compare=False,
        default_factory=lambda: ByteLimitedCache(
            _CACHE_BYTES, lambda shape, _: shape.size + _FACTS_BYTES
        ),
    )

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def width(self) -> int:
        """The number of sums; those of one kind stand side by side, by known resource."""
        return _SUMS * len(self.known)

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:
        """Return the summands of one pod; zeros without a report, as upstream keeps no sums."""
        nothing = (0,) * len(self.known)
        if report is None:
            return nothing * _SUMS
        facts = self._facts_of(pod.shape)
        own = report.pods.find(key, self.known)
        # An estimate is added to the measurement while that may not include the pod yet. Where a
        # report measures the node alone, its usage includes all pods but the new ones, and the
        # part of production is known only by estimates.
        if own is None:
            is_added = pod.assumed or report.pods_measured or _is_fresh(facts, pod, report)
            return facts.unreported_and_added if is_added else facts.unreported
        usage, own_is_prod = own
        if min(usage) < -_MOST or max(usage) > _MOST:
            usage = tuple(map(capped, usage))

        # Most pods are measured and not new: those add no part of their estimate.
        estimate, excess = facts.estimate, nothing
        if pod.assumed or _is_fresh(facts, pod, report):
            excess = tuple([e - u if e > u else 0 for e, u in zip(estimate, usage, strict=True)])
        if not facts.is_prod:
            return excess + estimate + nothing + nothing
        if own_is_prod:
            return excess + estimate + usage + excess
        # A pod counts as measured production only where it and its report agree that it is; one
        # that is reported as something else keeps its full estimate, however old it is.
        return excess + facts.unreported[len(nothing) :]

    def _facts_of(self, shape: PodShape) -> _ShapeFacts:
        facts = self._facts.get(shape)
        if facts is None:
            facts = _ShapeFacts.of(self, shape)
            self._facts.put(shape, facts)
        return facts


class LoadSums(msgspec.Struct, frozen=True, eq=False):
    """The sums of a profile, named; all in base units, (n_known, n), zeros without a report.

    Attributes:
        table: (4 * n_known, n), as the view keeps it.
    """

    table: IntColumn

    @classmethod
    def of(cls, view: ClusterView, profile: LoadProfile) -> LoadSums:
        """Return the sums of a view that keeps those of `profile`."""
        return cls(view.pod_sums[profile])

    @property
    def node_delta(self) -> IntColumn:
        """The excess of estimates over the reported usage of the node."""
        return self._kind(0)

    @property
    def node_estimated(self) -> IntColumn:
        """The full estimates of all its pods."""
        return self._kind(1)

    @property
    def prod_usage(self) -> IntColumn:
        """The reported usage of its production pods."""
        return self._kind(2)

    @property
    def prod_delta(self) -> IntColumn:
        """The excess of estimates over that."""
        return self._kind(3)

    def _kind(self, number: int) -> IntColumn:
        n_known = len(self.table) // _SUMS
        return self.table[number * n_known : (number + 1) * n_known]


class _ShapeFacts(NamedTuple):
    """Everything about a pod shape that its summands depend on.

    Attributes:
        estimate: by known resource, base units; zeros for reserve pods.
        is_prod: False for reserve pods.
        after_scheduled: forced window in microseconds, 0 for none.
        after_initialized: the same.
        unreported: the summands of a pod that a report does not name and that is not new.
        unreported_and_added: the same of one whose estimate is added to the usage of its node.
    """

    estimate: _Amounts
    is_prod: bool
    after_scheduled: int
    after_initialized: int
    unreported: _Amounts
    unreported_and_added: _Amounts

    @classmethod
    def of(cls, estimation: Estimation, shape: PodShape) -> _ShapeFacts:
        """Return the facts of a shape."""
        nothing = (0,) * len(estimation.known)
        estimate, is_prod, after = nothing, False, (0, 0)
        if not shape.reserve_pod:
            estimate, is_prod = estimate_vector(shape, estimation), shape.is_prod
            after = windows(estimation, shape)
        excess = tuple([max(each, 0) for each in estimate])
        others = estimate + nothing + (excess if is_prod else nothing)
        return cls(estimate, is_prod, *after, nothing + others, excess + others)


def _is_fresh(facts: _ShapeFacts, pod: PodEntry, report: NodeUsage) -> bool:
    """Return whether a pod is so new that its measurement in a report may be of its beginning."""
    updated = report.update_time
    if updated is None:
        return True
    if pod.assigned_at > updated - report.report_interval_seconds * SECOND:
        return True
    if not (facts.after_scheduled or facts.after_initialized):
        return False
    until = deadline(
        pod.assigned_at, pod.initialized_at, facts.after_scheduled, facts.after_initialized
    )
    return until is not None and until > updated
