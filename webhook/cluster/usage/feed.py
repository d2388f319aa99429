"""From readings of nodes as of now to usage with a history, in a `ClusterState`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from engine.model.usage import NodeUsage
from engine.view import ClusterState, UsageHistory
from engine.view.usage_history import RESOURCES

AT_A_TIME = 50
"""Nodes, or a few times as many pods, worked on before reviews get their turn: some 5 ms."""


class UsageFeed:
    """Takes what a source reads of nodes; whatever Koordinator measures is left to it.

    Args:
        state: told the usage of nodes.
        history: of the readings, empty at the start.
        by_koordinator: whether a NodeMetric that was filled tells the usage of a node.
    """

    def __init__(
        self,
        state: ClusterState,
        history: UsageHistory,
        *,
        by_koordinator: Callable[[str], bool],
    ) -> None:
        self._state = state
        self._history = history
        self._by_koordinator = by_koordinator

    def __len__(self) -> int:
        """Return how many nodes have usage by this feed."""
        return len(self._history)

    async def take(self, readings: Sequence[NodeUsage]) -> int:
        """Take one look at all nodes; says how many readings were new.

        A node that is not among them keeps its usage, which grows old, for as long as it is in the
        cluster: its agent may be all that is gone.
        """
        new = 0
        for start in range(0, len(readings), AT_A_TIME):
            new += self._take(readings[start : start + AT_A_TIME])
            await asyncio.sleep(0)
        self._drop_gone({reading.node_name for reading in readings})
        return new

    def remember(self, readings: Iterable[NodeUsage]) -> None:
        """Take a look at the past, oldest first: it adds to the history alone."""
        for reading in readings:
            self._is_new(reading)

    def _take(self, readings: Iterable[NodeUsage]) -> int:
        new = [reading for reading in readings if self._is_new(reading)]
        summaries = self._history.summaries([reading.node_name for reading in new])
        for reading, summary in zip(new, summaries, strict=True):
            self._state.set_usage(
                replace(
                    reading,
                    aggregated=summary.aggregated,
                    average=summary.average,
                    deviation=summary.deviation,
                )
            )
        # Sums over the pods of each node are brought up to date here, a few nodes at a time; left
        # to the next review, all of them at once would be its delay.
        self._state.view()
        return len(new)

    def _is_new(self, reading: NodeUsage) -> bool:
        """Add a reading to the history, if it is complete and newer than what is there."""
        if self._by_koordinator(reading.node_name):
            self._history.forget(reading.node_name)
            return False
        usage, at = reading.usage or {}, reading.update_time
        if at is None or not reading.node_name or any(name not in usage for name in RESOURCES):
            return False
        return self._history.add(reading.node_name, at, usage)

    def _drop_gone(self, listed: set[str]) -> None:
        for name in [name for name in self._history if name not in listed]:
            if self._by_koordinator(name):
                self._history.forget(name)
            elif not self._state.has_node(name):
                self._history.forget(name)
                self._state.delete_usage(name)
