"""What the pods of each namespace request in all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from engine.model.resource_names import PODS
from engine.view.pod_table import RUNNING, SCHEDULED

if TYPE_CHECKING:
    from engine.view.shares import Share

REQUESTED = 4
"""What every pod counts for, beside its standing."""

_Totals: TypeAlias = dict[str, dict[str, int]]
_Amounts: TypeAlias = Iterable[tuple[str, int]]


class NamespaceTotals:
    """Requests and number of pods by namespace; what was given out is never written to.

    Attributes:
        requested: of all pods, until `part_with` is called.
        scheduled: of those that are SCHEDULED, likewise.
        running: of those that are RUNNING, likewise.
    """

    def __init__(self) -> None:
        self.requested: _Totals = {}
        self.scheduled: _Totals = {}
        self.running: _Totals = {}
        self._own: set[str] = set()  # namespaces whose totals nobody else holds

    def part_with(self) -> None:
        """Leave what was given out so far to those who hold it, and write to others."""
        self.requested = self.requested.copy()
        self.scheduled = self.scheduled.copy()
        self.running = self.running.copy()
        self._own.clear()

    def add(self, namespace: str, share: Share, which: int) -> None:
        """Count a pod in some of the totals: REQUESTED, SCHEDULED, RUNNING, added up."""
        if namespace not in self._own:
            self._make_own(namespace)
        if which & REQUESTED:
            _add(self.requested, namespace, share.requests)
        if which & SCHEDULED:
            _add(self.scheduled, namespace, share.requests)
        if which & RUNNING:
            _add(self.running, namespace, share.bare_requests)

    def subtract(self, namespace: str, share: Share, which: int) -> None:
        """Take a pod off totals that it was added to, exactly."""
        if namespace not in self._own:
            self._make_own(namespace)
        if which & RUNNING:
            _subtract(self.running, namespace, share.bare_requests)
        if which & SCHEDULED:
            _subtract(self.scheduled, namespace, share.requests)
        if which & REQUESTED:
            _subtract(self.requested, namespace, share.requests)
            if namespace not in self.requested:
                self._own.remove(namespace)

    def _make_own(self, namespace: str) -> None:
        """Copy the totals of a namespace, to be written."""
        self._own.add(namespace)
        for totals in (self.requested, self.scheduled, self.running):
            if namespace in totals:
                totals[namespace] = totals[namespace].copy()


def _add(totals: _Totals, namespace: str, amounts: _Amounts) -> None:
    """Add a pod by its amounts, the pod itself among them."""
    total = totals.get(namespace)
    if total is None:
        total = totals[namespace] = {}
    for name, amount in amounts:
        total[name] = total.get(name, 0) + amount


def _subtract(totals: _Totals, namespace: str, amounts: _Amounts) -> None:
    """Take a pod off; nothing is left of a namespace without one."""
    total = totals[namespace]
    for name, amount in amounts:
        total[name] -= amount
    if not total[PODS]:
        del totals[namespace]
