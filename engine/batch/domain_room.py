"""How much room each domain of a cluster has for pods that must go there together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.judge import JudgeOfAll
from engine.model.count_text import counted
from engine.model.quantity import amount_text
from engine.model.request import PlacementRequest
from engine.view import MISSING, ClusterView, IntColumn, Sum, counted_requests, label_column

_MOST_TEMPLATES: Final = 8
"""That are looked at by themselves: others fail in a trial, if they do."""


class DomainRoom:
    """The room of the domains that a label names, for all of some pods.

    It is an upper bound: what pods need beyond their requests, which other pods they need near them
    or keep away, and how they share nodes, only a trial shows.

    Args:
        requests: the pods; at least one.
        keys: their `template_keys`.
        judge: says which nodes can take them.
        view: the cluster without them.
        key: the label.
    """

    def __init__(
        self,
        requests: Sequence[PlacementRequest],
        keys: Sequence[Hashable | None],
        judge: JudgeOfAll,
        view: ClusterView,
        key: str,
    ) -> None:
        self._view = view
        self._count = len(requests)
        self._label = key.rsplit("/", 1)[-1]
        self._domains = label_column(view, key)
        self._needed: dict[str, int] = {}
        for shape, count in Counter([request.pod.shape for request in requests]).items():
            for name, amount in counted_requests(shape).items():
                self._needed[name] = self._needed.get(name, 0) + count * amount
        self._usable = np.zeros(len(view), np.bool_)  # by some pod at least
        self._gangs = np.full(len(self._domains.book), np.inf)  # that each domain can hold
        for first, count in _templates(requests, keys):
            (rows,) = judge.in_reach(first, view).nonzero()
            self._usable[rows] = True
            places = self._by_domain(rows, self._places(first, rows))
            self._gangs = np.minimum(self._gangs, places / count)
        self._gangs[MISSING] = 0

    def fitting(self, most: int, *, only: str | None) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Yield domains that may hold all pods, with their rows; the one with least room first.

        Args:
            most: domains; the last of them is the one with most room.
            only: the domain to look at; None for all.
        """
        (codes,) = (self._gangs >= 1).nonzero()
        named = sorted((self._gangs[code], self._name(code), code) for code in codes.tolist())
        ordered = [code for _, name, code in named if only in {None, name}]
        for code in [*islice(ordered, most - 1), *ordered[most - 1 :][-1:]]:
            yield self._name(code), (self._domains.codes == code).nonzero()[0]

    def shortage(self, failed: Mapping[str, str]) -> str:
        """Return why no domain holds all pods, in one line.

        Args:
            failed: domains that seemed to, with what their trials said.
        """
        if len(self._domains.book) <= 1:
            return f"no node has a {self._label} by the label that the gang names"
        fit_in_no = f"{counted(self._count, 'member fits', 'members fit')} in no {self._label}"
        if failed:
            domain, message = next(iter(failed.items()))
            return f"{fit_in_no}; {domain}: {message}"
        rows = self._usable.nonzero()[0]
        free = {name: self._by_domain(rows, self._free(name, rows)) for name in self._needed}
        covered = np.array([free[name] / amount for name, amount in self._needed.items() if amount])
        covered[:, MISSING] = -1
        best = int(covered.min(axis=0).argmax())
        name = [name for name, amount in self._needed.items() if amount][covered[:, best].argmin()]
        if covered[:, best].min() >= 1:
            return (
                f"{fit_in_no}: {self._name(best)} has free what is needed in all,"
                " but not on nodes that can take it"
            )
        needed, there = self._needed[name], int(free[name][best])
        need = counted(self._count, "member needs", "members need")
        return (
            f"{need} {amount_text(name, needed)} {name} in one {self._label},"
            f" at most {amount_text(name, there)} free in {self._name(best)}"
        )

    def _name(self, code: int) -> str:
        return self._domains.values[code] or ""

    def _free(self, name: str, rows: NDArray[np.intp]) -> IntColumn:
        view = self._view
        free = view.amount(view.allocatable, name) - view.amount(view.sums[Sum.REQUESTS], name)
        left: IntColumn = np.maximum(free.take(rows), 0)
        return left

    def _places(self, request: PlacementRequest, rows: NDArray[np.intp]) -> IntColumn:
        """Return how many pods like one have room on each of some rows, one after the other."""
        amounts = counted_requests(request.pod.shape)
        places = [
            self._free(name, rows) // amount for name, amount in amounts.items() if amount > 0
        ]
        least: IntColumn = np.minimum.reduce(places)
        return least

    def _by_domain(self, rows: NDArray[np.intp], amounts: IntColumn) -> IntColumn:
        sums = np.zeros(len(self._domains.book), np.int64)
        np.add.at(sums, self._domains.codes.take(rows), amounts)
        return sums


def _templates(
    requests: Sequence[PlacementRequest], keys: Sequence[Hashable | None]
) -> list[tuple[PlacementRequest, int]]:
    """Return the first pod of each template, and how many there are; of some templates."""
    found: dict[object, list[PlacementRequest]] = {}
    for position, (request, key) in enumerate(zip(requests, keys, strict=True)):
        found.setdefault(position if key is None else key, []).append(request)
    return [(alike[0], len(alike)) for alike in islice(found.values(), _MOST_TEMPLATES)]
