"""What the pods of each namespace request in all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from engine.model.resource_names import PODS
from engine.view.pod_table import RUNNING, SCHEDULED

if TYPE_CHECKING:
    from engine.view.shape_contributions import Share

REQUESTED = 4
"""What every pod counts for, beside its standing."""

_Total: TypeAlias = dict[str, int]
_Totals: TypeAlias = dict[str, _Total]
_Amounts: TypeAlias = Iterable[tuple[str, int]]


class NamespaceTotals:
    """Requests and number of pods by namespace; what was given out is never written to.

    Attributes:
        requested: of all pods, until `unshare` is called.
        scheduled: of those that are SCHEDULED, likewise.
        running: of those that are RUNNING, likewise.
    """

    def __init__(self) -> None:
        self.requested: _Totals = {}
        self.scheduled: _Totals = {}
        self.running: _Totals = {}
        # Of namespaces whose totals nobody else holds: the three totals, where they stand in the
        # attributes unless they are empty.
        self._own: dict[str, tuple[_Total, _Total, _Total]] = {}

    def unshare(self) -> None:
        """Leave what was given out so far to those who hold it, and write to others."""
        self.requested = self.requested.copy()
        self.scheduled = self.scheduled.copy()
        self.running = self.running.copy()
        self._own.clear()

    def add(self, namespace: str, share: Share, which: int) -> None:
        """Count a pod in some of the totals: REQUESTED, SCHEDULED, RUNNING, added up."""
        own = self._own.get(namespace)
        requested, scheduled, running = self._made_own(namespace) if own is None else own
        if which & REQUESTED:
            if not requested:
                self.requested[namespace] = requested
            _add(requested, share.requests)
        if which & SCHEDULED:
            if not scheduled:
                self.scheduled[namespace] = scheduled
            _add(scheduled, share.requests)
        if which & RUNNING:
            if not running:
                self.running[namespace] = running
            _add(running, share.bare_requests)

    def subtract(self, namespace: str, share: Share, which: int) -> None:
        """Take a pod off totals that it was added to, exactly; of no pods nothing is left."""
        own = self._own.get(namespace)
        requested, scheduled, running = self._made_own(namespace) if own is None else own
        if which & RUNNING and _is_empty_without(running, share.bare_requests):
            del self.running[namespace]
        if which & SCHEDULED and _is_empty_without(scheduled, share.requests):
            del self.scheduled[namespace]
        if which & REQUESTED and _is_empty_without(requested, share.requests):
            del self.requested[namespace], self._own[namespace]

    def _made_own(self, namespace: str) -> tuple[_Total, _Total, _Total]:
        """Make the totals of a namespace ones that may be written to."""
        own = self._own[namespace] = (
            _copied(self.requested, namespace),
            _copied(self.scheduled, namespace),
            _copied(self.running, namespace),
        )
        return own


def _copied(totals: _Totals, namespace: str) -> _Total:
    """Put a copy in the place of a total; return it, or an empty one that has no place yet."""
    total = totals.get(namespace)
    if total is None:
        return {}
    copy = totals[namespace] = total.copy()
    return copy


def _add(total: _Total, amounts: _Amounts) -> None:
    """Add a pod by its amounts, the pod itself among them."""
    for name, amount in amounts:
        total[name] = total.get(name, 0) + amount


def _is_empty_without(total: _Total, amounts: _Amounts) -> bool:
    """Take a pod off; if it was the last, nothing is left and it is told."""
    for name, amount in amounts:
        total[name] -= amount
    if total[PODS]:
        return False
    total.clear()
    return True
