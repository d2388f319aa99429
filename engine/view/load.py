"""LoadAware's sums per node: what reports and estimates say its pods use.

Source: Koordinator, pkg/scheduler/plugins/loadaware (pod_assign_cache.go). What a single pod is
expected to use is in `engine.view.estimation`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.time import SECOND
from engine.view.axis import GREATEST_AMOUNT as _MOST
from engine.view.axis import capped
from engine.view.estimation import deadline, estimate_vector, windows
from engine.view.pod_sums import Part, PodSums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.model.pod import PodShape
    from engine.model.resources import Amounts
    from engine.model.usage import NodeUsage
    from engine.view.axis import IntColumn
    from engine.view.pod_table import PodEntry

_SUMS = 4  # the fields of LoadSums, in their order
_SHAPES_REMEMBERED = 65_536

_Amounts: TypeAlias = tuple[int, ...]
"""By known resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProfile:
    """The arguments of LoadAware that its sums depend on; rules with equal ones share the sums.

    Attributes:
        known: resource names, sorted; the first axis of every sum.
        factors: estimation factor in percent by resource name.
        seconds_after_scheduled: forced estimation window, 0 for none.
        seconds_after_initialized: forced estimation window, 0 for none.
        customize: whether a pod's own annotations are honoured.
        include_system: whether usage outside pods counts as production usage.
    """

    known: tuple[str, ...]
    factors: tuple[tuple[str, int], ...]
    seconds_after_scheduled: int = 0
    seconds_after_initialized: int = 0
    customize: bool = False
    include_system: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.known, self.factors)))

    def __hash__(self) -> int:
        return self._hash  # asked for several times in each decision


@dataclass(frozen=True, slots=True)
class LoadSums:
    """Per known resource and node, shape (n_known, n) each, base units.

    Rows without a report hold zeros: upstream keeps no sums there and nothing reads them.

    Attributes:
        node_delta: what estimates add to the reported usage of the node.
        node_estimated: the full estimates of all its pods.
        prod_usage: reported usage of its production pods.
        prod_delta: what estimates add to that.
    """

    node_delta: IntColumn
    node_estimated: IntColumn
    prod_usage: IntColumn
    prod_delta: IntColumn

    @classmethod
    def of(cls, sums: IntColumn) -> LoadSums:
        """Return the sums that a `LoadTracker` keeps, (4 * n_known, n), by their meaning."""
        return cls(*sums.reshape(_SUMS, len(sums) // _SUMS, sums.shape[-1]))

    def take(self, rows: NDArray[np.intp]) -> LoadSums:
        """Return the sums of some rows."""
        return LoadSums(
            self.node_delta[:, rows],
            self.node_estimated[:, rows],
            self.prod_usage[:, rows],
            self.prod_delta[:, rows],
        )


class LoadTracker(PodSums):
    """Keeps the sums of one profile up to date."""

    def __init__(self, profile: LoadProfile) -> None:
        super().__init__(_SUMS * len(profile.known))
        self._profile = profile
        self._nothing: _Amounts = (0,) * len(profile.known)
        self._facts: dict[PodShape, _ShapeFacts] = {}

    def _sum_of(self, report: NodeUsage | None, pods: Iterable[tuple[str, PodEntry]]) -> Part:
        """Return the sums of a node, those of a kind side by side."""
        sums = super()._sum_of(report, pods)
        if report is None or not self._profile.include_system:
            return sums
        system = self._nothing * 2 + self._projected(report.system_usage) + self._nothing
        return tuple([amount + more for amount, more in zip(sums, system, strict=True)])

    def _part(self, key: str, pod: PodEntry, report: NodeUsage | None) -> Part:
        """Return what one pod adds to the sums of its node, one sum after the other."""
        if report is None:
            return self._nothing * _SUMS
        facts, nothing = self._facts_of(pod.shape), self._nothing
        estimate = facts.estimate
        own = report.pods.get(key)
        usage = nothing if own is None else self._projected(own.amounts)

        # A pod that is measured and not new, as most are, adds no part of its estimate.
        is_fresh = pod.assumed or _is_fresh(facts, pod, report)  # no report knows an assumed pod
        above = nothing
        if is_fresh or own is None:
            above = tuple([e - u if e > u else 0 for e, u in zip(estimate, usage, strict=True)])

        # An estimate stands beside the measurement while that may not know the pod yet. Where a
        # report knows the node alone, the node's usage holds all pods but the new ones, and what
        # production uses of it is not known but by estimates.
        excess = above if is_fresh or (own is None and report.pods_measured) else nothing

        if not facts.is_prod:
            return excess + estimate + nothing + nothing
        if own is None or own.is_prod:
            return excess + estimate + usage + (above if own is None else excess)
        # A pod counts as measured production only where it and its report agree that it is; one
        # that is reported as something else keeps its full estimate, however old it is.
        return excess + estimate + nothing + tuple([max(e, 0) for e in estimate])

    def _projected(self, amounts: Amounts) -> _Amounts:
        """Return amounts by known resource, capped."""
        known = map(amounts.get, self._profile.known, self._nothing)
        return tuple([amount if -_MOST <= amount <= _MOST else capped(amount) for amount in known])

    def _facts_of(self, shape: PodShape) -> _ShapeFacts:
        """Return what the profile makes of a shape; remembered, it depends on nothing else."""
        facts = self._facts.get(shape)
        if facts is None:
            if len(self._facts) > _SHAPES_REMEMBERED:
                self._facts.clear()
            facts = self._facts[shape] = _ShapeFacts.of(self._profile, shape)
        return facts


class _ShapeFacts(NamedTuple):
    """What a profile makes of a pod shape.

    Attributes:
        estimate: by known resource, base units; zeros for reserve pods.
        is_prod: never so for reserve pods.
        after_scheduled: forced window in microseconds, 0 for none.
        after_initialized: the same.
    """

    estimate: _Amounts
    is_prod: bool
    after_scheduled: int
    after_initialized: int

    @classmethod
    def of(cls, profile: LoadProfile, shape: PodShape) -> _ShapeFacts:
        """Return the facts of a shape."""
        if shape.reserve_pod:
            return cls((0,) * len(profile.known), False, 0, 0)  # noqa: FBT003 (see the names above)
        return cls(estimate_vector(profile, shape), shape.is_prod, *windows(profile, shape))


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
