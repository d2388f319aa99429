"""Victims on several nodes: for rules that look at other nodes, and gangs, which go as a whole.

After scheduler-plugins, pkg/crossnodepreemption, which tries every subset of the pods of lower
priority. Here pods of one domain of a topology are tried together, and the number of sets is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.model.pod import Pod
from engine.preemption.fewest import BoundedTest, TooManySetsError, fewest_enough
from engine.preemption.victims import MOST_VICTIMS, uids_of
from engine.reclaim import Accounts, Borrower, NodeFit, Takings
from engine.view import BoolColumn, WhatIf

MOST_SETS: Final = 64
"""Sets of victims that are tried for one pod: each takes all filters over all nodes."""

_MOST_GROUPS: Final = 1000
"""In one domain; of more, the first to go."""

_ZONE: Final = "topology.kubernetes.io/zone"


class CrossNodeSearch:
    """The search for victims in one domain of a topology after the other.

    Args:
        pod: that needs room.
        fit: its filters.
        what_if: the cluster without the pods that are leaving; victims are taken off it.
        accounts: the quotas.
    """

    def __init__(self, pod: Pod, fit: NodeFit, what_if: WhatIf, accounts: Accounts) -> None:
        self._pod = pod
        self._fit = fit
        self._what_if = what_if
        self._accounts = accounts
        self._removed: dict[str, Borrower] = {}

    def victims(
        self, groups: Sequence[Sequence[Borrower]], rows: Sequence[int]
    ) -> list[Borrower] | None:
        """Return victims none of whose groups can be spared; None where none are found.

        Args:
            groups: the pods that go together, of those that may be evicted.
            rows: of the nodes to make room on, the best first.
        """
        test = BoundedTest(self._is_enough, MOST_SETS)
        try:
            for domain in self._domains(groups, rows):
                found = fewest_enough(domain, test)
                if found and sum(map(len, found)) <= MOST_VICTIMS:
                    return [each for group in found for each in group]
        except TooManySetsError:
            pass
        return None

    def fitting(self, groups: Sequence[Sequence[Borrower]]) -> BoolColumn:
        """Return which nodes would take the pod with some pods gone, (n,)."""
        wanted = uids_of(groups)
        self._what_if.restore(
            [each.counted for uid, each in self._removed.items() if uid not in wanted]
        )
        self._what_if.remove(
            [each.counted for uid, each in wanted.items() if uid not in self._removed]
        )
        self._removed = dict(wanted)
        return self._fit.passing(self._what_if)

    def _is_enough(self, groups: Sequence[Sequence[Borrower]]) -> bool:
        return bool(self.fitting(groups).any())

    def _domains(
        self, groups: Sequence[Sequence[Borrower]], rows: Sequence[int]
    ) -> Iterator[list[Sequence[Borrower]]]:
        """Yield the groups with a pod in each domain of nodes, the first to go first.

        The node itself is the narrowest domain; the whole cluster is none.
        """
        ordered = sorted(groups, key=_importance)
        seen = set()
        for row in rows:
            for key in ("", *self._topology_keys()):
                value = self._value(row, key)
                if value is None or (key, value) in seen:
                    continue
                seen.add((key, value))
                inside = [
                    group
                    for group in ordered
                    if any(self._value(each.entry.row, key) == value for each in group)
                ]
                if taken := self._taken(inside):
                    yield taken

    def _taken(self, ordered: Sequence[Sequence[Borrower]]) -> list[Sequence[Borrower]]:
        """Return the groups that quotas and budgets allow to go together, the first ones first."""
        takings = Takings(self._accounts)
        taken: list[Sequence[Borrower]] = []
        for group in ordered:
            if takings.take_all(group):
                taken.append(group)
                if len(taken) == _MOST_GROUPS:
                    break
        return taken

    def _topology_keys(self) -> tuple[str, ...]:
        """Return the domains that rules of the pod speak of, and zones: others may refuse it."""
        apart = [term.topology_key for term in self._pod.pod_anti_affinity]
        spread = [constraint.topology_key for constraint in self._pod.topology_spread]
        return tuple(dict.fromkeys((*apart, *spread, _ZONE)))

    def _value(self, row: int, key: str) -> str | None:
        """Return the domain of a node, None if it is in none; of the key "" it is the node."""
        view = self._what_if.view
        if not key:
            return view.names[row]
        node = view.nodes[row]
        return None if node is None else node.labels.get(key)


def _importance(group: Sequence[Borrower]) -> tuple[int, int, int, str]:
    """Return the key of an order in which the first goes first: of gangs the smallest first."""
    return (
        max(each.pod.priority for each in group),
        len(group),
        -max(each.entry.assigned_at for each in group),
        min(each.pod.key for each in group),
    )
