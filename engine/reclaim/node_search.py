"""The search for nodes that can be made to take a pod, the one that costs least first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.resources import Amounts
from engine.reclaim.borrowers import Accounts, Borrower, Takings, covers, freed_by, less
from engine.reclaim.node_fit import NodeFit
from engine.reclaim.steps import Steps, parts_of
from engine.view import IntColumn, Sum, WhatIf, counted_requests

Cost: TypeAlias = tuple[int, int, str]
"""The highest priority of the victims on a node, their number, its name: the least wins.

Budgets are not part of it: no plan violates any."""

FoundNode: TypeAlias = tuple[int, list[Borrower]]
"""A row that can be made to take the pod, and the victims on it."""

_FIRST_NODES: Final = 64
_MOST_NODES: Final = 512
_GROWTH: Final = 4
_ROWS_AT_ONCE: Final = 50
_PODS_AT_ONCE: Final = 1000
"""In a step: counting a pod anew takes some microseconds."""

_PER_MILLE: Final = 1000


class NodeSearch:
    """The nodes that can be made to take a pod, with the victims on each.

    A node costs at least what the room it lacks would cost if quotas and filters allowed every
    eviction. Nodes are looked at in the order of that bound, some at a time, so that of thousands
    only few are.

    Args:
        fit: the filters of the pod.
        base: the cluster without the pods that are leaving; victims are taken off it.
        requests: of the pod, `pods` among them.
        needs: what must be freed for it in the cohort.
        accounts: the quotas.
        borrowers: the pods that may be evicted, each on a node.
        in_order: puts those that go first first; None for the order of shares.
    """

    def __init__(
        self,
        fit: NodeFit,
        base: WhatIf,
        requests: Amounts,
        needs: Amounts,
        accounts: Accounts,
        borrowers: Sequence[Borrower],
        in_order: Callable[[Sequence[Borrower]], Iterable[Borrower]] | None = None,
    ) -> None:
        self._fit = fit
        self._what_if = base
        self._requests = requests
        self._needs = needs
        self._accounts = accounts
        self._borrowers = borrowers
        self._in_order = in_order or accounts.in_order
        self._names = base.view.names
        self._on_row: dict[int, list[Borrower]] = {}

    def __iter__(self) -> Iterator[FoundNode | None]:
        """Yield rows and the victims on each, none of which can be spared, by rising cost.

        None comes in between, for a pause.
        """
        bounds = yield from self._bounds()
        found: list[tuple[Cost, int, list[Borrower]]] = []
        at, size = 0, _FIRST_NODES
        while True:
            while found and (at >= len(bounds) or found[0][0] <= bounds[at][0]):
                _, row, victims = heappop(found)
                yield row, victims
            if at >= len(bounds):
                return
            rows = [row for _, row in bounds[at : at + size]]
            at, size = at + size, min(size * _GROWTH, _MOST_NODES)
            victims_on = yield from self._victims_on(rows)
            for row, victims in victims_on.items():
                heappush(found, (self._cost(row, victims), row, victims))

    def _cost(self, row: int, victims: Sequence[Borrower]) -> Cost:
        return max(each.pod.priority for each in victims), len(victims), self._names[row]

    def _bounds(self) -> Steps[list[tuple[Cost, int]]]:
        """Return the least that each row may cost, in order; those without room are left out."""
        view = self._what_if.view
        wanted = view.axis.vector(self._requests)
        named = np.flatnonzero(wanted)
        lacking = (view.sums[Sum.REQUESTS][named] - view.allocatable[named]).T + wanted[named]
        rows, priorities, freed = yield from self._columns(named)
        yield
        order = np.lexsort((priorities, rows))
        yield
        order = order[self._fit.may_pass[rows[order]]]
        if not order.size:
            return []
        yield
        rows, priorities, freed = rows[order], priorities[order], freed[order]
        begins = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        sums = freed.cumsum(axis=0)
        yield
        before = np.repeat(sums[begins] - freed[begins], np.diff(np.r_[begins, rows.size]), axis=0)
        is_enough = (sums - before >= lacking[rows]).all(axis=1)
        first = np.minimum.reduceat(np.where(is_enough, np.arange(rows.size), rows.size), begins)
        yield
        largest = np.maximum(np.maximum.reduceat(freed, begins, axis=0), 1)
        counts = np.maximum(-(-lacking[rows[begins]] // largest), 1).max(axis=1)
        bounds = [
            ((int(priorities[at]), int(count), self._names[row]), int(row))
            for row, at, count in zip(rows[begins], first, counts, strict=True)
            if at < rows.size
        ]
        return sorted(bounds)

    def _columns(
        self, named: NDArray[np.intp]
    ) -> Steps[tuple[NDArray[np.intp], IntColumn, IntColumn]]:
        """Return row, priority and what it frees of each pod; what is on each row is noted.

        Args:
            named: the resources that are wanted, (r,).

        Returns:
            (n,), (n,) and (n, r).
        """
        axis, on_row = self._what_if.view.axis, self._on_row
        rows, priorities, numbers = list[int](), list[int](), list[int]()
        number: dict[int, int] = {}  # of amounts, by the id of a shape
        vectors: list[IntColumn] = []
        for part in parts_of(self._borrowers):
            rows += [each.entry.row for each in part]
            priorities += [each.pod.priority for each in part]
            for each in part:
                on_row.setdefault(each.entry.row, []).append(each)
                shape = id(each.entry.shape)
                if shape not in number:
                    number[shape] = len(vectors)
                    vectors.append(axis.vector(counted_requests(each.entry.shape))[named])
                numbers.append(number[shape])
            yield
        freed = np.array(vectors, np.int64).reshape(-1, named.size)[np.array(numbers, np.intp)]
        return np.array(rows, np.intp), np.array(priorities, np.int64), freed

    def _victims_on(self, rows: Sequence[int]) -> Steps[dict[int, list[Borrower]]]:
        """Return the victims on each of some rows that can be made to take the pod."""
        ordered: dict[int, list[Borrower]] = {}
        taken: dict[int, list[Borrower]] = {}
        for part in parts_of(rows, _ROWS_AT_ONCE):
            ordered |= {row: list(self._in_order(self._on_row[row])) for row in part}
            taken |= {row: self._taken(ordered[row]) for row in part}
            yield
        victims = yield from self._fitting(taken)
        # Small pods may have used up what could be taken of a quota, where one large pod would do.
        short = {
            row: self._taken(sorted(of_row, key=self._size, reverse=True))
            for row, of_row in ordered.items()
            if row not in victims and len(taken[row]) < len(of_row)
        }
        yield from self._restore([each for row in short for each in taken[row]])
        for row, of_row in (yield from self._fitting(short)).items():
            chosen = {each.pod.uid for each in of_row}
            victims[row] = [each for each in ordered[row] if each.pod.uid in chosen]
        yield from self._spare_unneeded(victims)
        return victims

    def _taken(self, ordered: Sequence[Borrower]) -> list[Borrower]:
        takings = Takings(self._accounts)
        return [each for each in ordered if takings.take(each)]

    def _size(self, borrower: Borrower) -> int:
        """Return how much of what is wanted a pod frees, in parts of each resource."""
        wanted = self._requests.items()
        freed = counted_requests(borrower.entry.shape)
        return sum(freed.get(name, 0) * _PER_MILLE // amount for name, amount in wanted if amount)

    def _fitting(self, taken: dict[int, list[Borrower]]) -> Steps[dict[int, list[Borrower]]]:
        """Take pods off their rows; return the rows that fit then, with some taken off."""
        rows = [row for row, of_row in taken.items() if of_row]
        if not rows:
            return {}
        for part in parts_of([each for row in rows for each in taken[row]], _PODS_AT_ONCE):
            self._what_if.remove([each.counted for each in part])
            yield
        fits = self._fit.passing_alone(self._what_if, np.array(rows, np.intp)).tolist()
        return {row: taken[row] for row, is_fit in zip(rows, fits, strict=True) if is_fit}

    def _restore(self, borrowers: Sequence[Borrower]) -> Steps[None]:
        for part in parts_of(borrowers, _PODS_AT_ONCE):
            self._what_if.restore([each.counted for each in part])
            yield

    def _spare_unneeded(self, victims: dict[int, list[Borrower]]) -> Steps[None]:
        """Take out whoever is not needed on each row, the most important first.

        Args:
            victims: by row, all of them taken off; the first to be evicted first.
        """
        freed = {row: freed_by(of_row) for row, of_row in victims.items()}
        is_enough = {row: covers(amounts, self._needs) for row, amounts in freed.items()}
        untried = {row: len(of_row) for row, of_row in victims.items()}
        while tried := {
            row: of_row[untried[row] - 1]
            for row, of_row in victims.items()
            if untried[row] and len(of_row) > 1
        }:
            yield
            self._what_if.restore([each.counted for each in tried.values()])
            fits = self._fit.passing_alone(self._what_if, np.array(list(tried), np.intp))
            needed = []
            for (row, each), still_fits in zip(tried.items(), fits.tolist(), strict=True):
                untried[row] -= 1
                left = less(freed[row], each.requests)
                if still_fits and (not is_enough[row] or covers(left, self._needs)):
                    del victims[row][untried[row]]
                    freed[row] = left
                else:
                    needed.append(each.counted)
            self._what_if.remove(needed)


def best_rows(nodes: Iterable[FoundNode | None], most: int) -> Steps[list[int]]:
    """Return the first rows of a search, so many at most."""
    rows: list[int] = []
    for found in nodes:
        if found is None:
            yield
            continue
        rows.append(found[0])
        if len(rows) == most:
            break
    return rows
