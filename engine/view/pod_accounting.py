"""Accounting of pods: each counts for its namespace, and on its node, bound or assumed.

Beside what counts of all pods: sums that only some rules need, by their `PodSumProfile`, and counts
by node of the few pods that are in transition or of AppGroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from msgspec.structs import replace

from engine.model.kinds import Domain
from engine.model.pod import Pod, traits_of
from engine.model.pod_shape import PodShape
from engine.model.quantity import PODS
from engine.model.scheduler_plugins import Workload
from engine.model.time import Micros
from engine.model.usage import NodeUsage
from engine.view.assumed import AssumedPods, NominatedNodes, admits
from engine.view.axis import IntColumn
from engine.view.namespaces import REQUESTED, NamespaceTotals, PodCounts, RequestItems
from engine.view.pod_table import (
    ELSEWHERE,
    GATED,
    NO_ROW,
    OVERDUE,
    QUEUED,
    RUNNING,
    SCHEDULED,
    PodEntry,
    PodTable,
)
from engine.view.rows import Contribution, NodeRows, ShapeContributions
from engine.view.trait_book import with_number, without_number

_ONE_POD: Final = ((PODS, 1),)
_NUMBER_ALONE: Final = Contribution(_ONE_POD, _ONE_POD, np.zeros(0, np.int64))
"""Of a pod that waits for quota behind gates of others, which nobody may ever remove."""

PodsOnNodes: TypeAlias = Mapping[str, int]
"""Number of pods by node name; never 0."""


class PodTransitions(NamedTuple):
    """Pods of a node that are being deleted, and pending ones that are nominated to it."""

    terminating: int = 0
    nominated: int = 0

    def plus(self, other: PodTransitions, times: int) -> PodTransitions:
        """Return the sum with so many times another, -1 to take one off."""
        return PodTransitions(
            self.terminating + times * other.terminating, self.nominated + times * other.nominated
        )


_TERMINATING = PodTransitions(terminating=1)
NOMINATED = PodTransitions(nominated=1)
NO_TRANSITIONS = PodTransitions()


class TransitionCounts:
    """The transitions of each node that has any, by name; snapshots are never written to."""

    def __init__(self) -> None:
        self._by_pod: dict[str, tuple[str, PodTransitions]] = {}
        self._by_node: dict[str, PodTransitions] = {}

    def snapshot(self) -> Mapping[str, PodTransitions]:
        """Return the transitions by node name, valid until `unshare` is called."""
        return self._by_node

    def unshare(self) -> None:
        self._by_node = self._by_node.copy()

    def would_change(self, key: str, pod: Pod | None) -> bool:
        """Return whether `put` of the same would change anything."""
        if pod is None or not (pod.deleting or pod.nominated_node_name):
            return key in self._by_pod  # nearly every pod, at every event: so first
        return self._by_pod.get(key) != _transition(pod)

    def put(self, key: str, pod: Pod | None) -> tuple[str, ...]:
        """Count a pod as it now is, None if it is gone; return the names of the nodes concerned."""
        return self._replace(key, _transition(pod))

    def nominate(self, key: str, node_name: str) -> tuple[str, ...]:
        """Count a pod as nominated to a node, "" for none; return the names as `put` does."""
        return self._replace(key, (node_name, NOMINATED) if node_name else None)

    def _replace(self, key: str, new: tuple[str, PodTransitions] | None) -> tuple[str, ...]:
        old = self._by_pod.pop(key, None)
        if old is not None:
            self._add(*old, times=-1)
        if new is not None:
            self._by_pod[key] = new
            self._add(*new, times=1)
        return tuple(node_name for node_name, _ in filter(None, (old, new)))

    def _add(self, node_name: str, transitions: PodTransitions, *, times: int) -> None:
        total = self._by_node.pop(node_name, NO_TRANSITIONS).plus(transitions, times)
        if total != NO_TRANSITIONS:
            self._by_node[node_name] = total


def _transition(pod: Pod | None) -> tuple[str, PodTransitions] | None:
    """Return the node of a pod in transition and its count there, None for any other pod."""
    if pod is None:
        return None
    if pod.node_name:
        return (pod.node_name, _TERMINATING) if pod.deleting else None
    if pod.nominated_node_name:
        return pod.nominated_node_name, NOMINATED
    return None


_AT_A_TIME = 32  # rows, some 3 ms: reviews must not wait for all

PodChange: TypeAlias = tuple[int, str, PodEntry]
"""A pod that came, 1, or went, -1; its `namespace/name`; its entry as it is or was."""


class PodSumProfile(Protocol):
    """The summands of each pod, added up per node; rules with equal profiles share the sums.

    Hashable; a contribution depends on nothing but the arguments. INVARIANT: that of an assumed pod
    depends on a report that does not know it only by whether there is one.
    """

    @property
    def width(self) -> int:
        """The number of sums."""

    @property
    def reads_reports(self) -> bool:
        """Whether a contribution depends on the usage report of the node."""

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:
        """Return what one pod, by `namespace/name`, adds to each sum of its node."""


class TrackedSums:
    """The sums of all profiles that rules need; see `PodSums`."""

    def __init__(self) -> None:
        self._tracked: dict[PodSumProfile, PodSums] = {}
        self._prepared: dict[PodSumProfile, PodSums] = {}

    @property
    def is_prepared(self) -> bool:
        """Whether all profiles passed to `prepare` are counted."""
        return all(sums.is_complete for sums in self._prepared.values())

    def prepare(self, profiles: Iterable[PodSumProfile]) -> None:
        """Count for profiles that may be tracked soon, a few rows with each refresh."""
        new = [profile for profile in profiles if profile not in self._tracked]
        self._prepared = {
            profile: self._prepared.get(profile) or PodSums(profile) for profile in new
        }

    def track(self, profiles: Iterable[PodSumProfile]) -> None:
        """Keep the sums of exactly these profiles from now on."""
        known = self._tracked | self._prepared
        self._tracked = {profile: known.get(profile) or PodSums(profile) for profile in profiles}
        self._prepared = {}

    def unshare(self) -> None:
        for sums in self._tracked.values():
            sums.unshare()

    def refreshed(
        self, pods: PodTable, rows: NodeRows, changes: Sequence[PodChange]
    ) -> dict[PodSumProfile, IntColumn]:
        """Return the sums by tracked profile; `changes` are those of pods since the last call."""
        changed = rows.changed[:, : len(rows.names)]
        now = (pods, rows.usages, changed, rows.version, changes)
        for sums in self._prepared.values():
            sums.refresh(*now, at_most=_AT_A_TIME)
        return {profile: sums.refresh(*now) for profile, sums in self._tracked.items()}


class PodSums:
    """The sums of one profile, per row."""

    def __init__(self, profile: PodSumProfile) -> None:
        self._profile = profile
        self._sums = np.zeros((profile.width, 0), np.int64)
        self._version = 0
        self.is_complete = False  # whether the last refresh left no row to be counted
        self._counted = 0  # rows below it are kept up to date, the others are not counted yet

    def unshare(self) -> None:
        self._sums = self._sums.copy()

    def refresh(
        self,
        pods: PodTable,
        usages: Sequence[NodeUsage | None],
        changed: IntColumn,
        version: int,
        changes: Sequence[PodChange],
        *,
        at_most: int | None = None,
    ) -> IntColumn:
        """Return the sums at `version`, (width, n); those given out before are overwritten.

        A row with a new report is counted again; any other only gains and loses the contributions
        of the pods that came and went.
        """
        since, self._version = self._version, version
        known, n = self._counted, changed.shape[-1]
        self._counted = n if at_most is None else min(known + at_most, n)
        self.is_complete = self._counted == n
        if self._sums.shape[-1] < n:
            self._sums = np.pad(self._sums, ((0, 0), (0, 2 * n - self._sums.shape[-1])))
        outdated = changed[Domain.METRICS] > (since if self._profile.reads_reports else version)
        outdated[known:] = True
        rows = np.flatnonzero(outdated[: self._counted]).tolist()
        for row in rows:
            self._sums[:, row] = self._sum_of(pods.on_row(row), usages[row])
        just_counted = set(rows)
        for sign, key, entry in changes:
            if entry.row < self._counted and entry.row not in just_counted:
                column = self._sums[:, entry.row]
                amounts = self._profile.contribution(key, entry, usages[entry.row])
                (np.add if sign > 0 else np.subtract)(column, amounts, out=column)
        sums = self._sums[:, :n]
        sums.flags.writeable = False
        return sums

    def _sum_of(
        self, pods: Iterable[tuple[str, PodEntry]], report: NodeUsage | None
    ) -> tuple[int, ...]:
        nothing = (0,) * self._profile.width
        added = [self._profile.contribution(key, pod, report) for key, pod in pods]
        return tuple([sum(amounts) for amounts in zip(nothing, *added, strict=True)])


_MOST_OBSOLETE: Final = 1024


class Departures:
    """The moments of pods that are being deleted; memory follows the number of these pods."""

    def __init__(self) -> None:
        self._by_key: dict[str, Micros] = {}
        self._queue: list[tuple[Micros, str]] = []  # a heap, with obsolete entries

    def put(self, key: str, gone_by: Micros | None) -> None:
        """Note when a pod should be gone, None for one that nobody deletes, or that is gone."""
        if gone_by is None:
            self._by_key.pop(key, None)
        elif self._by_key.get(key) != gone_by:
            self._by_key[key] = gone_by
            heappush(self._queue, (gone_by, key))
            if len(self._queue) > 2 * len(self._by_key) + _MOST_OBSOLETE:
                self._queue = [(at, each) for each, at in self._by_key.items()]
                heapify(self._queue)

    def is_due(self, now: Micros) -> bool:
        """Return whether `take` would return any."""
        return bool(self._queue) and self._queue[0][0] <= now

    def take(self, now: Micros, most: int | None = None) -> list[str]:
        """Return the keys of pods that should be gone by now, each once."""
        keys = []
        for _ in range(len(self._queue) if most is None else most):
            if not self.is_due(now):
                break
            at, key = heappop(self._queue)
            if self._by_key.get(key) == at:
                del self._by_key[key]
                keys.append(key)
        return keys


_PODS = int(Domain.PODS)  # numpy takes plain integers twice as fast


class ExpectedBinding(NamedTuple):
    """The nodes that a pod may be bound to at any moment, at least one, and since when."""

    nodes: tuple[str, ...]
    since: Micros


class PodAccounting:
    """The table of pods, and every count kept of them.

    INVARIANT: callers raise the version of the rows before they change a count.

    Args:
        table: the pods, none yet.
        rows: the rows with the sums of the pods.
        assumed: the pods that are advised, but not bound.
    """

    def __init__(self, table: PodTable, rows: NodeRows, assumed: AssumedPods) -> None:
        self.table = table
        self.assumed = assumed
        self.nominations = NominatedNodes()
        self.departures = Departures()
        self._expected: dict[str, ExpectedBinding] = {}
        self.totals = NamespaceTotals()
        self.queued = NamespaceTotals()  # of the pods that wait for quota
        self.queued_pods = PodCounts[str, RequestItems]()
        # Of the pods whose label names a quota, by `namespace/label`; they are in the others too.
        self.labelled, self.labelled_queued = NamespaceTotals(), NamespaceTotals()
        self.transitions = TransitionCounts()
        self.workloads = PodCounts[Workload, str]()  # of AppGroups, by node name
        self._rows = rows
        self._contributions = ShapeContributions(rows)
        self._changes: list[PodChange] = []  # since the last `take_changes`

    def unshare(self) -> None:
        """Leave the counts given out so far to their holders, and write to copies."""
        self.totals.unshare()
        self.queued.unshare()
        self.queued_pods.unshare()
        self.labelled.unshare()
        self.labelled_queued.unshare()
        self.transitions.unshare()
        self.workloads.unshare()

    def take_changes(self) -> list[PodChange]:
        """Return the pods that came to nodes and went from them since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def offer(self, resources: Iterable[str]) -> None:
        """Give each resource that a node offers a place, and count what pods request of it."""
        if self._contributions.offer(resources):
            self._rows.sums[:] = 0
            for pod in self.table.entries():
                if pod.row != NO_ROW:
                    self._rows.sums[:, pod.row] += self._contributions.of(pod.shape).sums
                    self._rows.touch(pod.row, _PODS)

    def bound(self, pod: Pod, row: int, old: PodEntry | None, seen_at: Micros) -> PodEntry:
        """Return the entry of a pod that is bound to the node of a row."""
        if pod.scheduled_at is not None:
            assigned_at: int = pod.scheduled_at
        elif old is not None and old.row == row and not old.assumed:
            assigned_at = old.assigned_at
        else:
            assigned_at = seen_at
        standing = _standing(pod.phase)
        return PodEntry(
            row,
            pod.shape,
            assigned_at,
            pod.initialized_at or 0,
            standing=standing,
            traits=traits_of(pod),
        )

    def waiting(self, key: str, shape: PodShape, traits: bytes, standing: int = 0) -> PodEntry:
        """Return the entry of a pod that is not bound, QUEUED or not.

        It is on the node that it is expected to be bound to, else on the first advised node that
        exists and that could run it; if it is nominated, on that node or nowhere.
        """
        assumption, rows = self.assumed.get(key), self._rows
        expected = self._expected.get(key)
        if expected is not None:
            return self._expected_on(expected.nodes[0], expected.since, shape, traits, standing)
        if assumption is not None:
            is_nominated = bool(assumption.nominated_to)
            for name in assumption.nodes:
                node = rows.node(name)
                if node is not None and (
                    is_nominated or admits(assumption.constraints, shape.requests, node)
                ):
                    row = rows.of[name]
                    since = assumption.since
                    return PodEntry(
                        row, shape, since, 0, assumed=True, standing=standing, traits=traits
                    )
        return PodEntry(NO_ROW, shape, 0, 0, standing=standing, traits=traits)

    def _expected_on(
        self, node_name: str, since: Micros, shape: PodShape, traits: bytes, standing: int
    ) -> PodEntry:
        """Return the entry of a pod whose binding to a node is on its way."""
        if self._rows.node(node_name) is None:
            return PodEntry(NO_ROW, shape, 0, 0, standing=standing, traits=traits)
        row = self._rows.of[node_name]
        return PodEntry(row, shape, since, 0, assumed=True, standing=standing, traits=traits)

    def is_expected(self, key: str) -> bool:
        """Return whether a binding of a pod is on its way."""
        return key in self._expected

    def expected_on(self, node_name: str) -> list[str]:
        """Return the keys of the pods that may be bound to a node at any moment."""
        expected = self._expected.items()
        return [key for key, binding in expected if node_name in binding.nodes]

    def expect(self, key: str, nodes: tuple[str, ...], since: Micros) -> None:
        """Count a pod that is not bound on each of some nodes, none for where it counts else."""
        self._count_elsewhere(key, ())
        if nodes:
            self._expected[key] = ExpectedBinding(nodes, since)
        else:
            self._expected.pop(key, None)
        self.place_expected([key])

    def expect_no_more(self, key: str) -> None:
        """Drop what is expected of a pod; its own entry, bound or gone, is moved by the caller."""
        self._count_elsewhere(key, ())
        self._expected.pop(key, None)

    def place_expected(self, keys: Iterable[str]) -> None:
        """Move pods to the nodes that they are expected on now."""
        for key in keys:
            self.place_assumed([key])
            expected = self._expected.get(key)
            if expected is not None:
                self._count_elsewhere(key, expected.nodes[1:])

    def _count_elsewhere(self, key: str, nodes: Iterable[str]) -> None:
        """Count a pod on more nodes than that of its own entry, and on no others."""
        own, expected = self.table.get(key), self._expected.get(key)
        if own is None or expected is None:
            return
        counted_on = set(nodes)
        for name in expected.nodes[1:]:
            there = _elsewhere_key(key, name)
            old, new = self.table.get(there), None
            if name in counted_on:
                new = self._expected_on(name, expected.since, own.shape, own.traits, 0)
            if new != old:
                self.move(there, old, new)

    def assumed_entries(self) -> Iterator[tuple[str, PodEntry]]:
        """Yield namespace and entry of each pod that counts on a node without being bound."""
        for key in {*self._expected, *self.assumed.keys()}:
            entry, assumption = self.table.get(key), self.assumed.get(key)
            if entry is not None and entry.row != NO_ROW and entry.assumed:
                namespace = key.partition("/")[0]  # none of one in flight
                yield namespace or (assumption.namespace if assumption else ""), entry

    def place_assumed(self, keys: Iterable[str]) -> None:
        """Move pods that are or were assumed to the node they are assumed on now, if any."""
        for key in keys:
            old, new = self.table.get(key), None
            if old is None:
                raise AssertionError("an assumed pod is in the table")
            if not self.assumed.has_landed(key):
                new = self.waiting(
                    key, old.shape, old.traits, old.standing & (QUEUED | GATED | OVERDUE)
                )
            if new != old:
                self.move(key, old, new)

    def update_transition(self, key: str, pod: Pod | None) -> None:
        """Count whether a pod is about to leave its node or to come to one; None if it is gone."""
        self._touch(self.transitions.put(key, pod))

    def nominate(self, key: str, node_name: str) -> None:
        """Count a pod that is not bound on a node, "" for none, ahead of what is seen of it."""
        self.nominations.decide(key, node_name)
        self._touch(self.transitions.nominate(key, node_name))
        if node_name:
            self.assumed.nominate(key, node_name, gated=True, since=Micros(0))
        else:
            self.assumed.forget(key)
        self.place_assumed([key])

    def _touch(self, node_names: Iterable[str]) -> None:
        for name in node_names:
            row = self._rows.of.get(name)
            if row is not None:
                self._rows.touch(row, _PODS)

    def recount(self, namespace: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Count a pod for its namespace by its new entry in place of the old one."""
        was_queued = 0 if old is None else old.standing & (QUEUED | GATED)
        is_queued = 0 if new is None else new.standing & (QUEUED | GATED)
        lost, gained = _counted(old), _counted(new)
        is_same = old is not None and new is not None and old.shape is new.shape
        if is_same and was_queued == is_queued:
            lost, gained = lost & ~gained, gained & ~lost
        if old is not None and lost:
            contribution, label = self._contribution(old), old.shape.quota_name
            (self.queued if was_queued else self.totals).subtract(namespace, contribution, lost)
            if was_queued == QUEUED:
                self.queued_pods.count(namespace, contribution.requests, -1)
            if label:
                labelled = self.labelled_queued if was_queued else self.labelled
                labelled.subtract(f"{namespace}/{label}", contribution, lost)
        if new is not None and gained:
            contribution, label = self._contribution(new), new.shape.quota_name
            (self.queued if is_queued else self.totals).add(namespace, contribution, gained)
            if is_queued == QUEUED:
                self.queued_pods.count(namespace, contribution.requests, 1)
            if label:
                labelled = self.labelled_queued if is_queued else self.labelled
                labelled.add(f"{namespace}/{label}", contribution, gained)

    def _contribution(self, entry: PodEntry) -> Contribution:
        return _NUMBER_ALONE if entry.standing & GATED else self._contributions.of(entry.shape)

    def charged_until_gone(self, pod: Pod, entry: PodEntry, now: Micros) -> PodEntry:
        """Return the entry of a pod as of now, and remember until when that is so."""
        self.departures.put(pod.key, pod.gone_by)
        is_overdue = pod.gone_by is not None and pod.gone_by <= now
        return replace(entry, standing=OVERDUE) if is_overdue else entry

    def stop_charging(self, keys: Iterable[str]) -> None:
        """Count pods for their namespaces no longer, as they should be gone; on nodes they do."""
        for key in keys:
            old = self.table.get(key)
            if old is not None and not old.is_overdue:
                new = replace(old, standing=OVERDUE)
                self.recount(key.partition("/")[0], old, new)
                self.move(key, old, new)

    def move(self, key: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Count a pod on its node by its new entry in place of the old one."""
        if new is None:
            self.table.delete(key)
        else:
            self.table.put(key, new)
            if old is not None and old.counts_on_its_node_as(new):
                return
        leaves = old is not None and (new is None or new.row != old.row)
        recount = old is None or new is None or leaves or new.shape is not old.shape
        if recount or old is None or new is None or new.traits != old.traits:
            self._count_traits(old, new)
        if old is not None and old.row != NO_ROW:
            self._count(-1, key, old, with_sums=recount)
            if leaves:
                self._rows.release(old.row)
        if new is not None and new.row != NO_ROW:
            self._count(1, key, new, with_sums=recount)

    def _count_traits(self, old: PodEntry | None, new: PodEntry | None) -> None:
        """Count what other pods' rules read of a pod by its new entry in place of the old one."""
        table, traits = self.table, self._rows.traits
        if old is not None and old.row != NO_ROW:
            number = table.traits.number(old.traits)
            traits[old.row] = without_number(traits[old.row], number)
        if new is not None:
            number = table.traits.number(new.traits)
            if new.row != NO_ROW:
                traits[new.row] = with_number(traits[new.row], number)
            if number >= table.most_traits:
                numbers = table.renew_traits()
                if numbers is not None:
                    self._rows.renumber_traits(numbers)

    def _count(self, sign: int, key: str, pod: PodEntry, *, with_sums: bool) -> None:
        """Count a pod that came to its node, 1, or went from it, -1."""
        rows, row = self._rows, pod.row
        if with_sums:
            amounts = self._contributions.of(pod.shape).sums  # first: it may replace `rows.sums`
            column = rows.sums[:, row]
            (np.add if sign > 0 else np.subtract)(column, amounts, out=column)
        if pod.assumed:
            rows.assumed[row] += sign
        rows.touch(row, _PODS)
        if pod.shape.workload is not None:
            self.workloads.count(pod.shape.workload, rows.names[row], sign)
        self._changes.append((sign, key, pod))


def _elsewhere_key(key: str, node_name: str) -> str:
    """Return the key in the table of a pod on a node that it may be bound to, too."""
    return f"{ELSEWHERE}{key} {node_name}"


def _counted(entry: PodEntry | None) -> int:
    """Return the standing by which a pod counts for its namespace, 0 where it does not."""
    return 0 if entry is None or entry.is_overdue else REQUESTED | entry.standing


def _standing(phase: str) -> int:
    """Return the standing of a bound pod; one whose node is lost has none."""
    if phase == "Running":
        return SCHEDULED + RUNNING
    return SCHEDULED if phase in {"", "Pending"} else 0
