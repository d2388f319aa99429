"""Turns of pods that share a decision: each is drawn to other nodes among the best.

They get the same terms otherwise, and the first tier is narrow: so many pods on so few nodes would
be no better for being advised. So the names of the first two terms, or of the only one, are others
in each turn, of a ring of the best nodes: the first tier is the next few of it, the second those
behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from engine.model.advice import MOST_NODES

Term: TypeAlias = dict[str, Any]
"""A preferred term as it stands in JSON."""

_MOST_DEALT: Final = 2  # terms


class _Ring(NamedTuple):
    """Nodes that are dealt, best first; those that the dealt terms list come first."""

    hostnames: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Turns:
    """What the pods that share a decision deal out among them.

    Attributes:
        terms: all preferred terms, which stand in the operations of the patch; no two of them have
            a name in common, and the first one lists hostnames.
        hostnames: of the nodes to name, None where one is not dealt: first those of the terms, in
            their order, then those that only turns name. More are dealt than the first term lists.
        rows: of the same nodes.
        names: of all nodes, by row.
    """

    terms: tuple[Term, ...]
    hostnames: Sequence[str | None]
    rows: Sequence[int] = field(compare=False)  # replicas know the nodes in different orders
    names: Sequence[str] = field(compare=False)

    @property
    def count(self) -> int:
        """How many turns there are before the first comes again."""
        return -(-len(self._ring.names) // self._widths[0])

    def nodes(self, number: int) -> tuple[str, ...]:
        """Return the names of the first few nodes of the first tier in a turn, best first."""
        return self._from(self._ring.names, number)[: min(self._widths[0], MOST_NODES)]

    def listed(self, number: int) -> list[Sequence[str]]:
        """Return what the dealt terms list in a turn, counted from 0."""
        ring, (first, *others) = self._from(self._ring.hostnames, number), self._widths
        return [ring[:first], *(ring[first : first + width] for width in others[: _MOST_DEALT - 1])]

    @property
    def lists(self) -> list[list[str]]:
        """The lists of the dealt terms, as they stand in the operations of the patch."""
        return self._lists[:_MOST_DEALT]

    @cached_property
    def _lists(self) -> list[list[str]]:
        """The hostnames of each term that lists any."""
        return [
            named["values"]
            for term in self.terms
            for named in term["preference"].get("matchExpressions", ())
        ]

    @cached_property
    def _widths(self) -> list[int]:
        return list(map(len, self._lists))

    @cached_property
    def _ring(self) -> _Ring:
        """Computed for pods that share: hardly any pod does, until time is short."""
        below = {hostname for listed in self._lists[_MOST_DEALT:] for hostname in listed}
        pairs = [
            (hostname, self.names[row])
            for hostname, row in zip(self.hostnames, self.rows, strict=True)
            if hostname is not None and hostname not in below
        ]
        return _Ring(*zip(*pairs, strict=True))

    def _from(self, names: tuple[str, ...], number: int) -> tuple[str, ...]:
        """Return names from where a turn begins, and around."""
        start = number % self.count * self._widths[0]
        return names[start:] + names[:start]
