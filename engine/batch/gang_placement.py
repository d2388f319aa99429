"""Where a gang goes: on any nodes, or in one part of the cluster that holds all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.batch.batch import Trial, trial_of
from engine.batch.look_ahead import DEFAULT_SCOPE, Judge, template_keys
from engine.errors import counted
from engine.model.decision import PlacementRequest
from engine.model.gang import GangTopology
from engine.model.quantity import amount_text
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.view import (
    FRESH,
    MISSING,
    ClusterView,
    Freshness,
    IntColumn,
    Sum,
    counted_requests,
    label_column,
    left_to_devices,
)

_MOST_TEMPLATES: Final = 8
"""That are looked at by themselves: others fail in a trial, if they do."""


class DomainRoom:
    """The room of the domains that a label names, for all of some pods.

    It is an upper bound: what pods need beyond their requests, which other pods they need near them
    or keep away, and how they share nodes, only a trial shows; and where devices are, nothing here.
    """

    def __init__(
        self,
        requests: Sequence[PlacementRequest],
        keys: Sequence[Hashable | None],
        judge: Judge,
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
        """Yield domains that may hold all pods, with their rows; the one with least room first."""
        (codes,) = (self._gangs >= 1).nonzero()
        named = sorted((self._gangs[code], self._name(code), code) for code in codes.tolist())
        ordered = [code for _, name, code in named if only in {None, name}]
        for code in [*islice(ordered, most - 1), *ordered[most - 1 :][-1:]]:
            yield self._name(code), (self._domains.codes == code).nonzero()[0]

    def shortage(self, failed: Mapping[str, str]) -> str:
        """Return why no domain holds all pods, in one line."""
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
        """Return what is free of a resource; of one that devices provide, all that is needed."""
        view = self._view
        free = view.amount(view.allocatable, name) - view.amount(view.sums[Sum.REQUESTS], name)
        left: IntColumn = np.maximum(free.take(rows), 0)
        by_devices = left_to_devices(name, view)
        if by_devices is None:
            return left
        return np.where(by_devices.take(rows), self._needed[name], left)

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


_MOST_TRIALS: Final = 16
"""Of domains: only what pods add up to beyond their requests makes a domain fail its trial."""


class GangPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes for the members of a gang, and the domain that they share.

    Attributes:
        trial: of them all; on the nodes of the domain where there is one.
        domain: the value of the topology's label on all of their nodes, "" if they may be anywhere.
        message: why they are not in one domain, in one line; "" where they are, or need not be.
    """

    trial: Trial
    domain: str = ""
    message: str = ""


class StartingGang(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a gang that are to start together.

    Attributes:
        requests: their pods, in order, and their contexts.
        topology: the label whose values name domains; None where any nodes do.
        beside: the names of the nodes of members that run: the domain of most of them is the only
            one for the others.
    """

    requests: Sequence[PlacementRequest]
    topology: GangTopology | None = None
    beside: Collection[str] = ()


def place_gang(
    gang: StartingGang,
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    scope: Scope = DEFAULT_SCOPE,
    freshness: Freshness = FRESH,
) -> GangPlacement:
    """Find a node for every member of a gang, as `place_all` does, in one domain if it asks so.

    Of the domains that can hold all of it, the one with the least room is taken, so that large
    gangs find room in others. Where none can, a gang that only prefers one goes anywhere.

    Args:
        gang: the members, none of which counts on a node of the view.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    requests, topology = gang.requests, gang.topology
    judge = Judge(policies=policies, now=now, scope=scope, freshness=freshness)
    keys = template_keys(requests, policies, view)

    def trial_on(rows: NDArray[np.intp] | None) -> Trial:
        return trial_of(requests, judge, view, keys, rows=rows)

    if topology is None or not requests:
        return GangPlacement(trial=trial_on(None))
    only = _domain_of(gang.beside, view, topology.key)
    room = DomainRoom(requests, keys, judge, view, topology.key)
    failed: dict[str, str] = {}
    for domain, rows in room.fitting(_MOST_TRIALS, only=only):
        trial = trial_on(rows)
        if trial.failed is None:
            return GangPlacement(trial=trial, domain=domain)
        failed[domain] = trial.message
    message = room.shortage(failed)
    if topology.required:
        return GangPlacement(trial=Trial(outcomes=(), failed=0, message=message), message=message)
    return GangPlacement(trial=trial_on(None), message=message)


def domains_of_gang(
    gang: StartingGang,
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    most: int,
    scope: Scope = DEFAULT_SCOPE,
    freshness: Freshness = FRESH,
) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of each domain that may hold a gang, the one with the least room first.

    Args:
        gang: the members, none of which counts on a node of the view; with a topology.
        policies: the loaded policies.
        view: the observed cluster.
        now: the moment.
        most: domains.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    if gang.topology is None:
        return
    judge = Judge(policies=policies, now=now, scope=scope, freshness=freshness)
    keys = template_keys(gang.requests, policies, view)
    room = DomainRoom(gang.requests, keys, judge, view, gang.topology.key)
    only = _domain_of(gang.beside, view, gang.topology.key)
    for _, rows in room.fitting(most, only=only):
        yield rows


def _domain_of(names: Collection[str], view: ClusterView, key: str) -> str | None:
    """Return the domain of most of some nodes, None where none of them is in any."""
    labels = label_column(view, key)
    codes = [int(labels.codes[view.rows[name]]) for name in names if name in view.rows]
    found = Counter(labels.values[code] for code in codes if code != MISSING)
    ordered = sorted((-count, domain) for domain, count in found.items() if domain is not None)
    return ordered[0][1] if ordered else None
