"""Turns of pods that share a decision: each is drawn to other nodes among the best.

They get the same terms otherwise, and the first tier is narrow: so many pods on so few nodes would
be no better for being advised. So the names of the first two terms are others in each turn, of a
ring of the best nodes: the first tier is the next few of it, the second those behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from engine.model.advice import MOST_NODES

Term: TypeAlias = dict[str, Any]
"""A preferred term as it stands in JSON."""


_DEALT: Final = 2  # terms


class _Ring(NamedTuple):
    """Nodes that are dealt, best first; those that the first two terms list come first."""

    hostnames: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Turns:
    """What the pods that share a decision deal out among them.

    Attributes:
        terms: all preferred terms, which stand in the operations of the patch; no two of them have
            a name in common, and the first two list hostnames.
        hostnames: of the nodes to name, None where one cannot be listed: first those of the terms,
            in their order, then those that only turns name.
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

    def listed(self, number: int) -> tuple[Sequence[str], Sequence[str]]:
        """Return what the first two terms list in a turn, counted from 0."""
        ring, (first, second, *_) = self._from(self._ring.hostnames, number), self._widths
        return ring[:first], ring[first : first + second]

    @property
    def lists(self) -> list[Sequence[str]]:
        """The lists of the first two terms, as they stand in the operations of the patch."""
        return [term["preference"]["matchExpressions"][0]["values"] for term in self.terms[:_DEALT]]

    @cached_property
    def _widths(self) -> list[int]:
        """How many hostnames each term lists that lists any."""
        return [
            len(named["values"])
            for term in self.terms
            for named in term["preference"].get("matchExpressions", ())
        ]

    @cached_property
    def _ring(self) -> _Ring:
        """Computed for pods that share: hardly any pod does, until time is short."""
        pairs = [
            (hostname, self.names[row])
            for hostname, row in zip(self.hostnames, self.rows, strict=True)
            if hostname is not None
        ]
        own, listed = sum(self._widths[:_DEALT]), sum(self._widths)
        return _Ring(*zip(*(pairs[:own] + pairs[listed:]), strict=True))

    def _from(self, names: tuple[str, ...], number: int) -> tuple[str, ...]:
        """Return names from where a turn begins, and around."""
        start = number % self.count * self._widths[0]
        return names[start:] + names[:start]


def takes_turns(terms: Sequence[Term]) -> bool:
    """Return whether there are two terms and more, and the first two list hostnames."""
    first = [term["preference"].get("matchExpressions") for term in terms[:_DEALT]]
    return len(first) == _DEALT and None not in first
