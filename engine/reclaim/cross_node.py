"""Victims on several nodes: for rules that look at other nodes, and gangs, which go as a whole.

After scheduler-plugins, pkg/crossnodepreemption, which tries every subset of the pods of lower
priority. Here pods of one domain of a topology are tried together, and the number of sets is
bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop
from typing import Final, TypeAlias

from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.reclaim.borrowers import Accounts, Borrower, Takings, covers, freed_by
from engine.reclaim.fewest import BoundedTest, TooManySetsError, fewest_enough
from engine.reclaim.groups import MOST_VICTIMS, uids_of
from engine.reclaim.node_fit import NodeFit
from engine.reclaim.steps import Steps, parts_of
from engine.view import BoolColumn, WhatIf

MOST_SETS: Final = 64
"""Sets of victims that are tried for one pod: each takes all filters over all nodes."""

_MOST_PODS: Final = 1000
"""In one domain; of more, the first to go."""

_ZONE: Final = "topology.kubernetes.io/zone"
_NO_NEEDS: Final[Amounts] = {}

_Group: TypeAlias = Sequence[Borrower]


class CrossNodeSearch:
    """The search for victims in one domain of a topology after the other.

    Args:
        pod: that needs room.
        fit: its filters.
        what_if: the cluster without the pods that are leaving; victims are taken off it.
        accounts: the quotas.
        needs: what must be freed for it in the cohort.
    """

    def __init__(
        self,
        pod: Pod,
        fit: NodeFit,
        what_if: WhatIf,
        accounts: Accounts,
        needs: Amounts = _NO_NEEDS,
    ) -> None:
        self._pod = pod
        self._fit = fit
        self._what_if = what_if
        self._accounts = accounts
        self._needs = needs
        self._removed: dict[str, Borrower] = {}

    def victims(self, groups: Sequence[_Group], rows: Sequence[int]) -> Steps[_Group | None]:
        """Return victims none of whose groups can be spared; None where none are found.

        Args:
            groups: the pods that go together, of those that may be evicted.
            rows: of the nodes to make room on, the best first.
        """
        test = BoundedTest(self._is_enough, MOST_SETS)
        try:
            for domain in self._domains(groups, rows):
                if domain is None:
                    yield
                    continue
                found = yield from fewest_enough(domain, test)
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

    def _is_enough(self, groups: Sequence[_Group]) -> bool:
        if self._needs and not covers(freed_by(uids_of(groups).values()), self._needs):
            return False
        return bool(self.fitting(groups).any())

    def _domains(
        self, groups: Sequence[_Group], rows: Sequence[int]
    ) -> Iterator[list[_Group] | None]:
        """Yield the groups with a pod in each domain of nodes, the first to go first.

        The node itself is the narrowest domain; the whole cluster is one only where the cohort has
        no room either. None comes in between, for a pause.
        """
        on_row: dict[int, list[int]] = {}  # numbers of groups
        for numbers in parts_of(range(len(groups))):
            for number in numbers:
                for row in {each.entry.row for each in groups[number]}:
                    on_row.setdefault(row, []).append(number)
            yield None
        for rows_inside in self._domains_of_nodes(rows):
            inside = {number for row in rows_inside for number in on_row.get(row, ())}
            if taken := (yield from self._taken([groups[number] for number in inside])):
                yield taken
        if self._needs and (taken := (yield from self._taken(groups))):
            yield taken

    def _domains_of_nodes(self, rows: Sequence[int]) -> Iterator[Collection[int]]:
        """Yield the rows of each domain that some rows are in, each once."""
        domains = {key: self._rows_by_domain(key) for key in self._topology_keys()}
        seen = set()
        for row in rows:
            yield (row,)
            node = self._what_if.view.nodes[row]
            for key, by_value in domains.items():
                value = None if node is None else node.labels.get(key)
                if value is not None and (key, value) not in seen:
                    seen.add((key, value))
                    yield by_value[value]

    def _rows_by_domain(self, key: str) -> Mapping[str, list[int]]:
        """Return the rows with each value of a label."""
        found: dict[str, list[int]] = {}
        for row, node in enumerate(self._what_if.view.nodes):
            if node is not None and (value := node.labels.get(key)) is not None:
                found.setdefault(value, []).append(row)
        return found

    def _taken(self, groups: Sequence[_Group]) -> Steps[list[_Group]]:
        """Return the groups that quotas and budgets allow to go together, the first ones first."""
        queue: list[tuple[tuple[int, int, int, str], _Group]] = []
        for part in parts_of(groups):
            queue += [(_importance(group), group) for group in part]
            yield
        heapify(queue)
        yield
        takings, taken, left = Takings(self._accounts), list[_Group](), _MOST_PODS
        for numbers in parts_of(range(len(queue))):
            for _ in numbers:
                _, group = heappop(queue)
                if len(group) <= left and takings.take_all(group):
                    taken.append(group)
                    left -= len(group)
                if not left:
                    return taken
            yield
        return taken

    def _topology_keys(self) -> tuple[str, ...]:
        """Return the domains that rules of the pod speak of, and zones: others may refuse it."""
        apart = [term.topology_key for term in self._pod.pod_anti_affinity]
        spread = [constraint.topology_key for constraint in self._pod.topology_spread]
        return tuple(dict.fromkeys((*apart, *spread, _ZONE)))


def _importance(group: _Group) -> tuple[int, int, int, str]:
    """Return the key of an order in which the first goes first: of gangs the smallest first.

    INVARIANT: no two groups have the same.
    """
    return (
        max(each.pod.priority for each in group),
        len(group),
        -max(each.entry.assigned_at for each in group),
        min(each.pod.key for each in group),
    )
