"""Nodes that can be made to take a pod: on one node alone, or by victims on several.

The latter is for rules that look at other nodes, and for gangs, which go as a whole. After
scheduler-plugins, pkg/crossnodepreemption, which tries every subset of the pods of lower priority.
Here pods of one domain of a topology are tried together, and the number of sets is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.eviction.candidates import Candidate
from engine.eviction.plan import Situation, requests_by_quota
from engine.eviction.quota_accounts import (
    Accounts,
    PossibleVictim,
    Takings,
    covers,
    freed_by,
    less,
    split_by_violation,
)
from engine.eviction.steps import BoundedTest, Steps, TooManySetsError, fewest_enough, parts_of
from engine.gang import pod_group_of_gang
from engine.model.decision import PlacementRequest
from engine.model.gang import GangKey
from engine.model.resources import Amounts
from engine.model.rule_outcomes import and_not
from engine.model.time import Micros
from engine.pipeline import Scope, decide, policies_for
from engine.placement.stored_pod import contexts_of
from engine.policy import SCHEDULER_FILTERS, FilterRule, PolicySet, RuleContext
from engine.view import (
    NO_ROW,
    BoolColumn,
    ClusterView,
    Domain,
    Freshness,
    IntColumn,
    Sum,
    WhatIf,
    counted_requests,
    left_to_devices,
    quota_requests,
)

_SCHEDULER: Final = 0


class NodeFit:
    """The filters that a pod must pass on a node, scores aside.

    Those that read no pods are evaluated once. One that reads other nodes is evaluated for the
    cluster as a whole alone: nodes are not independent of each other then.

    Args:
        request: the pod and its context.
        policies: those in force.
        view: the cluster.
        now: the moment.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old.
        nodes: those that it may take, (n,); None for all.
    """

    def __init__(
        self,
        request: PlacementRequest,
        policies: PolicySet,
        view: ClusterView,
        now: Micros,
        scope: Scope,
        freshness: Freshness,
        nodes: BoolColumn | None = None,
    ) -> None:
        enforced = policies_for(request, policies, now, scope=scope)
        own = RuleContext(request, view, now, freshness)
        of_policies = contexts_of(enforced, request, view, now, freshness)
        if of_policies:
            own.pod = of_policies[0].pod
        self._contexts = [own, *of_policies]
        rules = [(rule, _SCHEDULER) for rule in SCHEDULER_FILTERS]
        rules += [(rule, i) for i, each in enumerate(enforced, 1) for rule in each.filters]
        reads = {domain for rule, _ in rules for domain in rule.evaluator.reads}
        self.stale = own.stale_among(reads)
        """The data that a filter reads and that is too old, with a text that says so."""
        moving = [bound for bound in rules if Domain.PODS in bound[0].evaluator.reads]
        self._of_each_node = [bound for bound in moving if not self._reads_others(*bound)]
        self._of_the_cluster = [bound for bound in moving if self._reads_others(*bound)]
        still = [bound for bound in rules if Domain.PODS not in bound[0].evaluator.reads]
        among = view.valid if nodes is None else view.valid & nodes
        self.may_pass = self._passing(still, view, among)
        """(n,), where only filters that read pods may reject the pod."""

    @property
    def reads_other_nodes(self) -> bool:
        """Whether what runs on other nodes may make a node fit or not."""
        return bool(self._of_the_cluster)

    def passing(self, what_if: WhatIf) -> BoolColumn:
        """Return which nodes of a cluster would take the pod, (n,)."""
        rules = (*self._of_each_node, *self._of_the_cluster)
        return self._passing(rules, what_if.view, self.may_pass)

    def first(self, what_if: WhatIf) -> str:
        """Return the first node by name that would take the pod, "" for none."""
        rows: list[int] = self.passing(what_if).nonzero()[0].tolist()
        return min((what_if.view.names[row] for row in rows), default="")

    def passing_alone(self, what_if: WhatIf, rows: NDArray[np.intp]) -> BoolColumn:
        """Return which of some rows would take the pod, aligned with them.

        Each as if nothing but itself were other than it is: what reads other nodes passes.
        """
        part = what_if.take(rows).view
        return self._passing(self._of_each_node, part, self.may_pass[rows])

    def _reads_others(self, rule: FilterRule, number: int) -> bool:
        return rule.evaluator.reads_other_nodes(self._contexts[number])

    def _passing(
        self, rules: Sequence[tuple[FilterRule, int]], view: ClusterView, nodes: BoolColumn
    ) -> BoolColumn:
        contexts = [context.on(view) for context in self._contexts]
        for rule, number in rules:
            nodes = and_not(nodes, rule.outcome(contexts[number]).rejects)
        return nodes


class Preemptor:
    """A pod that others may be evicted for, and the cluster once the pods that leave are gone.

    That is what `accounts` and `fits`, (n,), are of. It may take `nodes`, (n,); None for all.
    """

    def __init__(
        self,
        request: PlacementRequest,
        situation: Situation,
        leaving: Sequence[Candidate],
        nodes: BoolColumn | None = None,
    ) -> None:
        self._request = request
        self.pod = request.pod
        self.situation = situation
        self.requests = quota_requests(request.pod.shape)
        self.leaving = leaving
        self.accounts = Accounts(situation.accounts, requests_by_quota(leaving), situation.lendable)
        self.fit = NodeFit(
            request,
            situation.policies,
            situation.view,
            situation.now,
            situation.scope,
            situation.freshness,
            nodes,
        )
        self.fits = self.fit.passing(self.what_if(()))

    def what_if(self, removed: Sequence[PossibleVictim]) -> WhatIf:
        """Return the cluster without the pods that are leaving, and without some more."""
        what_if = WhatIf(self.situation.view)
        gone = [(each.pod.key, each.entry) for each in self.leaving if each.entry.row != NO_ROW]
        what_if.remove([*gone, *(victim.counted for victim in removed)])
        return what_if

    def fits_on(self, row: int, removed: Sequence[PossibleVictim]) -> bool:
        """Return whether a node would take the pod with some more pods gone."""
        return bool(self.fit.passing(self.what_if(removed))[row])

    def best_node(self, removed: Sequence[PossibleVictim]) -> int:
        """Return the row that the pod would be released to with some more pods gone."""
        situation, what_if = self.situation, self.what_if(removed)
        decision = decide(
            self._request,
            situation.policies,
            what_if.view,
            situation.now,
            scope=situation.scope,
            freshness=situation.freshness,
        )
        best = decision.best(1)
        if best.size:
            return int(best[0])
        names = situation.view.names
        rows: list[int] = self.fit.passing(what_if).nonzero()[0].tolist()
        return min(rows, key=lambda row: names[row])


Cost: TypeAlias = tuple[int, int, int, str]
"""How many victims on a node violate budgets, their highest priority, their number, its name: the
least wins. Budgets are violated only where a plan overrides them."""

FoundNode: TypeAlias = tuple[int, list[PossibleVictim]]
"""A row that can be made to take the pod, and the victims on it."""

_FIRST_NODES: Final = 64
_MOST_NODES_AT_ONCE: Final = 512
_GROWTH: Final = 4
_ROWS_AT_ONCE: Final = 50
_PODS_AT_ONCE: Final = 1000
"""In a step: counting a pod again takes some microseconds."""

_PER_MILLE: Final = 1000


class NodeSearch:
    """The nodes that can be made to take a pod, with the victims on each.

    A node costs at least what the room it lacks would cost if quotas and filters allowed every
    eviction. Nodes are looked at in the order of that bound, some at a time, so that of thousands
    only few are.
    """

    def __init__(
        self,
        preemptor: Preemptor,
        needs: Amounts,
        victims: Sequence[PossibleVictim],
        in_order: Callable[[Sequence[PossibleVictim], Accounts], Iterable[PossibleVictim]],
    ) -> None:
        self._fit = preemptor.fit
        self._what_if = preemptor.what_if(())
        self._requests = preemptor.requests
        self._needs = needs
        self._accounts = preemptor.accounts
        self._possible = victims
        self._in_order = in_order
        self._names = self._what_if.view.names
        self._on_row: dict[int, list[PossibleVictim]] = {}

    def __iter__(self) -> Iterator[FoundNode | None]:
        """Yield rows and the victims on each, none of which can be spared, by rising cost.

        None comes in between, for a pause.
        """
        bounds = yield from self._bounds()
        found: list[tuple[Cost, int, list[PossibleVictim]]] = []
        at, size = 0, _FIRST_NODES
        while True:
            while found and (at >= len(bounds) or found[0][0] <= bounds[at][0]):
                _, row, victims = heappop(found)
                yield row, victims
            if at >= len(bounds):
                return
            rows = [row for _, row in bounds[at : at + size]]
            at, size = at + size, min(size * _GROWTH, _MOST_NODES_AT_ONCE)
            victims_on = yield from self._victims_on(rows)
            for row, victims in victims_on.items():
                heappush(found, (self._cost(row, victims), row, victims))

    def _cost(self, row: int, victims: Sequence[PossibleVictim]) -> Cost:
        _, violating = split_by_violation(victims)
        priority = max(each.pod.priority for each in victims)
        return len(violating), priority, len(victims), self._names[row]

    def _bounds(self) -> Steps[list[tuple[Cost, int]]]:
        """Return the least that each row may cost, in order; those without room are left out."""
        view = self._what_if.view
        wanted = view.axis.vector(self._requests)
        named = np.flatnonzero(wanted)
        lacking = (view.sums[Sum.REQUESTS][named] - view.allocatable[named]).T + wanted[named]
        for of_name, at in enumerate(named.tolist()):
            by_devices = left_to_devices(view.axis.names[at], view)
            if by_devices is not None:
                lacking[by_devices, of_name] = 0
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
            ((0, int(priorities[at]), int(count), self._names[row]), int(row))
            for row, at, count in zip(rows[begins], first, counts, strict=True)
            if at < rows.size
        ]
        return sorted(bounds)

    def _columns(
        self, named: NDArray[np.intp]
    ) -> Steps[tuple[NDArray[np.intp], IntColumn, IntColumn]]:
        """Return row, priority and what it frees of each pod; what is on each row is noted.

        These are (n,), (n,) and (n, r); `named` are the resources that are wanted, (r,).
        """
        axis, on_row = self._what_if.view.axis, self._on_row
        rows, priorities, numbers = list[int](), list[int](), list[int]()
        number: dict[int, int] = {}  # of amounts, by the id of a shape
        vectors: list[IntColumn] = []
        for part in parts_of(self._possible):
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

    def _victims_on(self, rows: Sequence[int]) -> Steps[dict[int, list[PossibleVictim]]]:
        """Return the victims on each of some rows that can be made to take the pod."""
        ordered: dict[int, list[PossibleVictim]] = {}
        taken: dict[int, list[PossibleVictim]] = {}
        for part in parts_of(rows, _ROWS_AT_ONCE):
            for row in part:
                in_order = self._in_order(self._on_row[row], self._accounts)
                ordered[row] = list(chain(*split_by_violation(in_order)))
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

    def _taken(self, ordered: Sequence[PossibleVictim]) -> list[PossibleVictim]:
        takings = Takings(self._accounts)
        return [each for each in ordered if takings.take(each)]

    def _size(self, victim: PossibleVictim) -> int:
        """Return how much of what is wanted a pod frees, in parts of each resource."""
        wanted = self._requests.items()
        freed = counted_requests(victim.entry.shape)
        return sum(freed.get(name, 0) * _PER_MILLE // amount for name, amount in wanted if amount)

    def _fitting(
        self, taken: dict[int, list[PossibleVictim]]
    ) -> Steps[dict[int, list[PossibleVictim]]]:
        """Take pods off their rows; return the rows that fit then, with some taken off."""
        rows = [row for row, of_row in taken.items() if of_row]
        if not rows:
            return {}
        for part in parts_of([each for row in rows for each in taken[row]], _PODS_AT_ONCE):
            self._what_if.remove([each.counted for each in part])
            yield
        fits = self._fit.passing_alone(self._what_if, np.array(rows, np.intp)).tolist()
        return {row: taken[row] for row, is_fit in zip(rows, fits, strict=True) if is_fit}

    def _restore(self, victims: Sequence[PossibleVictim]) -> Steps[None]:
        for part in parts_of(victims, _PODS_AT_ONCE):
            self._what_if.restore([each.counted for each in part])
            yield

    def _spare_unneeded(self, victims: dict[int, list[PossibleVictim]]) -> Steps[None]:
        """Take out the pods that are not needed on each row, the most important first.

        INVARIANT: all are taken off; on each row the first to be evicted comes first.
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


MOST_VICTIMS: Final = 10
"""Of which a gang may be: guards never let more pods be on their way out."""


class Groups(NamedTuple):
    """Pods that may be evicted, by whom they go with."""

    single: list[PossibleVictim]  # those that go alone
    gangs: list[list[PossibleVictim]]  # the others, each gang with all of its running members

    def all(self) -> Steps[list[list[PossibleVictim]]]:
        """Return them all, each with those that it goes with."""
        found = list(self.gangs)
        for part in parts_of(self.single):
            found += [[each] for each in part]
            yield
        return found


def group(victims: Sequence[PossibleVictim], sizes: Mapping[GangKey, int]) -> Steps[Groups]:
    """Return pods by whom they go with; those are left out of whose gang anybody must stay."""
    groups, gangs = Groups([], []), dict[GangKey, list[PossibleVictim]]()
    for part in parts_of(victims):
        for each in part:
            key = each.pod.gang
            if key is None or key not in sizes:
                groups.single.append(each)
            else:
                gangs.setdefault(key, []).append(each)
        yield
    for keys in parts_of(list(gangs)):
        for key in keys:
            members = gangs.pop(key)
            if len(members) == sizes[key] <= MOST_VICTIMS:
                if len(members) == 1:
                    groups.single.extend(members)
                else:
                    groups.gangs.append(members)
        yield
    return groups


def sizes_of_gangs(
    candidates: Sequence[Candidate], leaving: Iterable[Candidate], view: ClusterView
) -> Steps[Mapping[GangKey, int]]:
    """Return how many members of each gang run."""
    named = Counter[GangKey]()
    for part in parts_of(candidates):
        named.update([each.pod.gang for each in part if each.pod.gang is not None])
        yield
    named.subtract(each.pod.gang for each in leaving if each.pod.gang is not None)
    sizes: dict[GangKey, int] = {}
    for keys in parts_of(list(named)):
        sizes |= {
            key: named[key]
            for key in keys
            if named[key] > 0 and pod_group_of_gang(key, view) is not None
        }
        yield
    return sizes


def members_of(groups: Sequence[Sequence[PossibleVictim]]) -> Steps[list[PossibleVictim]]:
    """Return the pods of groups."""
    found: list[PossibleVictim] = []
    for part in parts_of(groups):
        found += chain.from_iterable(part)
        yield
    return found


def uids_of(groups: Collection[Sequence[PossibleVictim]]) -> Mapping[str, PossibleVictim]:
    """Return the pods of groups by uid."""
    return {each.pod.uid: each for members in groups for each in members}


MOST_SETS: Final = 64
"""Sets of victims that are tried for one pod: each takes all filters over all nodes."""

_MOST_PODS: Final = 1000
"""In one domain; of more, the first to go."""

_ZONE: Final = "topology.kubernetes.io/zone"
_NO_NEEDS: Final[Amounts] = {}

_Group: TypeAlias = Sequence[PossibleVictim]


class CrossNodeSearch:
    """The search for victims in one domain of a topology after the other."""

    def __init__(self, preemptor: Preemptor, needs: Amounts = _NO_NEEDS) -> None:
        self._pod = preemptor.pod
        self._fit = preemptor.fit
        self._what_if = preemptor.what_if(())
        self._accounts = preemptor.accounts
        self._needs = needs
        self._removed: dict[str, PossibleVictim] = {}

    def victims(self, groups: Sequence[_Group], rows: Sequence[int]) -> Steps[_Group | None]:
        """Return victims none of whose groups can be spared; the best of the rows come first."""
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

    def fitting(self, groups: Sequence[Sequence[PossibleVictim]]) -> BoolColumn:
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
        queue: list[tuple[tuple[int, tuple[int, int, int, str]], _Group]] = []
        for part in parts_of(groups):
            queue += [
                ((len(split_by_violation(group)[1]), importance_of_group(group)), group)
                for group in part
            ]
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


def importance_of_group(group: Sequence[Candidate]) -> tuple[int, int, int, str]:
    """Return the key of an order in which the first goes first: of gangs the smallest first.

    INVARIANT: no two groups have the same.
    """
    return (
        max(each.pod.priority for each in group),
        len(group),
        -max(each.entry.assigned_at for each in group),
        min(each.pod.key for each in group),
    )
