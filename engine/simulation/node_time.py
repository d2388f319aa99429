"""How long nodes are there and pods wait, and how many pods are evicted for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.model.node import Node
from engine.model.resource_names import CPU
from engine.model.time import SECOND
from engine.report import NodeTime

_HOUR: Final = 3_600 * SECOND
_MILLI: Final = 1_000
_DIGITS: Final = 1


class NodeClock:
    """Adds up what `NodeTime` says; moments are microseconds since the first arrival."""

    def __init__(self) -> None:
        self._at = 0
        self._nodes = 0  # node-microseconds
        self._millicores = 0
        self._evictions = 0
        self._waited = 0
        self._longest = 0
        self._since: dict[int, int] = {}

    def pass_to(self, at: int, nodes: Iterable[Node]) -> None:
        """Let these nodes be there from the last moment to this one."""
        spent, self._at = at - self._at, at
        for node in nodes:
            self._nodes += spent
            self._millicores += spent * node.allocatable.get(CPU, 0)

    def evicted(self) -> None:
        """Note that a pod loses its node."""
        self._evictions += 1

    def waits(self, number: int, at: int) -> None:
        """Note that a pod waits from a moment on, if it did not before."""
        self._since.setdefault(number, at)

    def waits_no_more(self, number: int, at: int) -> None:
        """Note that a pod has a node, or has ended, at a moment."""
        waited = at - self._since.pop(number, at)
        self._waited += waited
        self._longest = max(self._longest, waited)

    def figures(self) -> NodeTime:
        """Return the figures at the last moment; pods that still wait count until then."""
        for number in [*self._since]:
            self.waits_no_more(number, self._at)
        return NodeTime(
            node_hours=round(self._nodes / _HOUR, _DIGITS),
            core_hours=round(self._millicores / _MILLI / _HOUR, _DIGITS),
            evictions=self._evictions,
            waiting_hours=round(self._waited / _HOUR, _DIGITS),
            longest_wait=self._longest // SECOND,
        )
