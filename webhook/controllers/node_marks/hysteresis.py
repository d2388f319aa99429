"""When a mark is due: a filter that goes back and forth must not make a mark do so."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from engine.model.time import Micros


class Mark(NamedTuple):
    """A mark: the name of the node, and the key of the taint or label."""

    node: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkTimes:
    """Durations, in seconds.

    Attributes:
        settle: a node is marked once its filters have rejected it for as long, without a break.
        quiet: it is unmarked once they have let it pass for as long, without a break.
        dwell: least time between two changes of a mark, and from the moment at which this replica
            began to lead, or a node appeared, to the first: what was before is not known.
    """

    settle: float = 15.0
    quiet: float = 60.0
    dwell: float = 60.0


@dataclass(slots=True)
class _Record:
    """What the filters say of a mark, since when, and when the mark was last changed."""

    rejected: bool
    since: float
    changed_at: float


class Hysteresis:
    """Follows what filters say, for one reign of the leader.

    INVARIANT: two changes of a mark are `dwell` apart, whoever of two leaders in a row makes them.
    """

    def __init__(self, times: MarkTimes) -> None:
        self._times = times
        self._created: Mapping[str, Micros | None] = {}  # of the last time
        self._appeared: dict[str, float] = {}
        self._records: dict[Mark, _Record] = {}

    def observe(
        self,
        nodes: Mapping[str, Micros | None],
        rejected: AbstractSet[Mark],
        present: AbstractSet[Mark],
        now: float,
    ) -> list[Mark]:
        """Return the marks to change now: those that wait for longest first.

        Args:
            nodes: creation time of each node, by name: another time is another node.
            rejected: what the filters say.
            present: what stands on the nodes.
            now: seconds on a steady clock.
        """
        self._follow_nodes(nodes, now)
        for mark in self._records.keys() | rejected | present:
            self._follow(mark, now, rejected=mark in rejected)
        due = sorted(self._due(present, now))
        self._forget(present, now)
        return [mark for _, mark in due]

    def changed(self, mark: Mark, now: float) -> None:
        """Note that a mark was set or removed."""
        record = self._records.get(mark)
        if record is not None:
            record.changed_at = now

    def _follow_nodes(self, nodes: Mapping[str, Micros | None], now: float) -> None:
        before, self._created = self._created, nodes
        if nodes == before:
            return  # as nearly always: the comparison takes a tenth of what follows
        changed = {name for name, _ in before.items() ^ nodes.items()}
        for name in changed:
            self._appeared.pop(name, None)
        self._appeared |= dict.fromkeys(changed & nodes.keys(), now)
        self._records = {
            mark: record for mark, record in self._records.items() if mark.node not in changed
        }

    def _follow(self, mark: Mark, now: float, *, rejected: bool) -> None:
        record = self._records.get(mark)
        if record is None:
            self._records[mark] = _Record(rejected, now, self._appeared[mark.node])
        elif record.rejected is not rejected:
            record.rejected, record.since = rejected, now

    def _due(self, present: Collection[Mark], now: float) -> Iterator[tuple[float, Mark]]:
        times = self._times
        for mark, record in self._records.items():
            if record.rejected is (mark in present):
                continue
            steady = times.settle if record.rejected else times.quiet
            if now - record.since >= steady and now - record.changed_at >= times.dwell:
                yield record.since, mark

    def _forget(self, present: Collection[Mark], now: float) -> None:
        """Drop the records of marks that are neither wanted nor there, once they may be set."""
        self._records = {
            mark: record
            for mark, record in self._records.items()
            if record.rejected or mark in present or now - record.changed_at < self._times.dwell
        }
