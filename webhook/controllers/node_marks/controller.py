"""The controller of marks: what the policies in force find of nodes, written on the nodes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from engine.model.time import Micros
from engine.policy import NodeMarker, PolicySet, node_markers
from engine.view import ClusterView, Freshness
from webhook.controllers.node_marks.hysteresis import Hysteresis, Mark, MarkTimes
from webhook.controllers.node_marks.writer import MarkedNode, NodeWriter, Outcome
from webhook.quota import MonotonicClock

_ROUND_SECONDS = 5.0
_MOST_WRITES = 25  # in a round: what takes 5 seconds, after which filters are asked again
_REFUSED_SECONDS = 600.0
_NODES_AT_ONCE = 2_000  # in some 2 ms

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedCluster:
    """What the controller looks at.

    Attributes:
        view: the cluster.
        now: the moment at which the age of reports is judged.
        freshness: ages of the sources of the view.
        policies: those in force, none where marks are switched off; None while they, or the
            cluster, are not known yet: nothing is marked or unmarked then.
    """

    view: Callable[[], ClusterView]
    now: Callable[[], Micros]
    freshness: Callable[[], Freshness]
    policies: Callable[[], PolicySet | None]


@dataclass(slots=True)
class NodeMarkController:
    """The task of the leader; restarted whenever this replica starts to lead.

    All state is on the nodes: what a leader before has marked is followed from there on, and what
    no policy in force stands for is taken back at once.

    Attributes:
        cluster: what it looks at.
        writer: writes marks.
        show: called in each round with the number of nodes that carry each mark, by its key.
        count_write: called with the outcome of each write.
        clock: of durations.
        times: of the hysteresis.
    """

    cluster: MarkedCluster
    writer: NodeWriter
    show: Callable[[Mapping[str, int]], None] = lambda _nodes_by_key: None
    count_write: Callable[[str], None] = lambda _outcome: None
    clock: MonotonicClock = field(default_factory=MonotonicClock)
    times: MarkTimes = field(default_factory=MarkTimes)
    _hysteresis: Hysteresis = field(init=False)
    _refused_until: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin without a memory."""
        self._begin()

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._begin()
        try:
            while True:
                await self.round()
                await self.clock.sleep(_ROUND_SECONDS)
        finally:
            self.show({})  # the next leader counts them

    async def round(self) -> None:
        """Ask the filters, and write the changes that are due, those that wait longest first."""
        policies = self.cluster.policies()
        if policies is None:
            return
        # 1. What the filters say now, and what stands on the nodes.
        markers = node_markers(policies)
        rejected = await self._rejected(markers)
        created, present = await self._nodes()
        self.show(Counter(mark.key for mark in present))

        # 2. What is due: at once where no policy stands for a mark, else after a while.
        in_force = {key for marker in markers for key in marker.keys}
        orphans = {mark for mark in present if mark.key not in in_force}
        rejected = {mark for mark in rejected if mark.node in created}
        now = self.clock.now()
        due = self._hysteresis.observe(created, rejected, present - orphans, now)

        # 3. Write it, one patch for all marks of a node.
        for name, marks in islice(_by_node([*sorted(orphans), *due]).items(), _MOST_WRITES):
            if self.clock.now() < self._refused_until:
                return
            await self._write(name, created[name], marks, rejected)

    def _begin(self) -> None:
        self._hysteresis = Hysteresis(self.times)
        self._refused_until = float("-inf")

    async def _rejected(self, markers: Iterable[NodeMarker]) -> set[Mark]:
        """Return the marks that filters ask for; reviews go on between two policies."""
        rejected: set[Mark] = set()
        for marker in markers:
            names = marker.rejected_nodes(
                self.cluster.view(), self.cluster.now(), self.cluster.freshness()
            )
            rejected |= {Mark(name, key) for name in names for key in marker.keys}
            await asyncio.sleep(0)
        return rejected

    async def _nodes(self) -> tuple[dict[str, Micros | None], set[Mark]]:
        """Return when each node was created, and the marks on them; reviews go on between a few.

        INVARIANT: no view is alive while others work: a change would have to copy it.
        """
        created: dict[str, Micros | None] = {}
        present: set[Mark] = set()
        first = 0
        while nodes := self.cluster.view().nodes[first : first + _NODES_AT_ONCE]:
            for node in filter(None, nodes):
                created[node.name] = node.created
                if node.marks:
                    present.update(Mark(node.name, key) for key in node.marks)
            first += _NODES_AT_ONCE
            await asyncio.sleep(0)
        return created, present

    async def _write(
        self, name: str, created: Micros | None, marks: Sequence[Mark], rejected: set[Mark]
    ) -> None:
        added = {mark.key for mark in marks if mark in rejected}
        removed = {mark.key for mark in marks} - added

        def wanted(node: MarkedNode) -> frozenset[str]:
            is_another = node.created != created
            return node.marks if is_another else (node.marks | added) - removed

        outcome, reason = await self.writer.write(name, wanted)
        self.count_write(outcome)
        if outcome in {Outcome.WRITTEN, Outcome.UNCHANGED}:
            for mark in marks:
                self._hysteresis.changed(mark, self.clock.now())
        elif outcome is Outcome.REFUSED:
            self._refused_until = self.clock.now() + _REFUSED_SECONDS
            _log.warning(
                "nodes cannot be marked or unmarked: %s; `stowplan unmark` takes marks back", reason
            )
        elif outcome is Outcome.FAILED:
            _log.warning("marks of node `%s` not written, next attempt soon: %s", name, reason)


def _by_node(marks: Iterable[Mark]) -> dict[str, list[Mark]]:
    """Return the marks of each node, the nodes in the order of their first marks."""
    grouped: dict[str, list[Mark]] = {}
    for mark in marks:
        grouped.setdefault(mark.node, []).append(mark)
    return grouped
