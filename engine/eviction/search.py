"""The search for the victims of one pod: on each node, in the cohort, and on several nodes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from engine.eviction.candidates import Candidate
from engine.eviction.nodes import (
    CrossNodeSearch,
    Groups,
    NodeSearch,
    Preemptor,
    best_rows,
    group,
    members_of,
    sizes_of_gangs,
)
from engine.eviction.plan import NoPlan, NoPlanReason, Plan, Situation, guards_allow
from engine.eviction.quota_accounts import (
    Budgets,
    PossibleVictim,
    covers,
    fewest_covering,
    freed_by,
    less,
)
from engine.eviction.steps import Steps, emptied, parts_of
from engine.eviction.strategies import ALL_HOLD, NONE_HOLDS, Protections, Strategy
from engine.model.decision import PlacementRequest
from engine.model.elastic_quota import QuotaKey
from engine.model.gang import GangKey
from engine.model.resources import Amounts
from engine.view import NO_ROW, BoolColumn, quota_requests

_MOST_NODES: Final = 16
"""The best nodes that are tried: only rules that read other nodes make more than one fail."""

_NO_NEEDS: Final[Amounts] = {}

_Kind: TypeAlias = tuple[tuple[QuotaKey, ...], int]
"""Quotas, and the id of a shape, which its pods keep alive."""


def plan_for_pod(
    request: PlacementRequest, strategy: Strategy, situation: Situation
) -> Steps[Plan | NoPlan]:
    """Return which pods are to be evicted for a pod.

    The same arguments always give the same plan. After it the pod fits the node and the cohort, no
    quota is below a `min` that it was not below before, gangs run as a whole or not at all, no
    budget is exceeded unless the plan says so, and none of the victims, or none of their gangs, can
    be spared.

    Args:
        request: the pod and its context.
        strategy: who may be evicted.
        situation: all else. Reclaim needs candidates of quotas alone, preemption all running pods.
    """
    # 1. For some pods nobody is evicted, now or ever.
    refused = strategy.refusal([request], situation)
    if refused is not None:
        return refused
    leaving = yield from situation.on_their_way_out()
    search = Search(
        request,
        strategy,
        situation,
        leaving,
        needs=strategy.needs([request], leaving, situation),
    )
    accounts = search.preemptor.accounts
    refused = strategy.quota_refusal([request], accounts, is_gang=False)
    if refused is not None:
        return refused

    # 2. With the pods that are leaving gone there may be room already.
    if stale := search.preemptor.fit.stale:
        return NoPlan(reason=NoPlanReason.STALE, message=", ".join(stale.values()))
    if search.has_room:
        text = "there is room, or pods that leave make some"
        return NoPlan(reason=NoPlanReason.NOT_NEEDED, message=text)

    # 3. Find victims, or say what is in the way.
    victims = yield from search.victims()
    plan = yield from search.plan(victims)
    found = plan or (yield from search.otherwise())
    yield from emptied(victims)
    yield from search.end()
    return found


def of_obstacle(plan: Plan, strategy: Strategy, reason: NoPlanReason, text: str) -> Plan | NoPlan:
    """Return that an obstacle is in the way of a plan; the plan where it gives way to that."""
    if reason is NoPlanReason.BLOCKED_BY_PDB and strategy.overrides_budgets:
        message = f"{plan.message}; no other plan keeps to PodDisruptionBudgets"
        return replace(plan, overrides_budgets=True, message=message)
    return NoPlan(reason=reason, message=text)


class Search:
    """The search for victims for one pod.

    `needs` must be freed for it in the cohort, each above 0. It may take `nodes`, (n,), and evict
    the pods with the uids of `among`; None for all.
    """

    def __init__(
        self,
        request: PlacementRequest,
        strategy: Strategy,
        situation: Situation,
        leaving: Sequence[Candidate],
        *,
        needs: Amounts = _NO_NEEDS,
        nodes: BoolColumn | None = None,
        among: Container[str] | None = None,
    ) -> None:
        self.preemptor = Preemptor(request, situation, leaving, nodes)
        self._strategy = strategy
        self._situation = situation
        self._needs = needs
        self._among = among
        self._possible: list[PossibleVictim] | None = None
        self._gangs: Mapping[GangKey, int] | None = None

    @property
    def has_room(self) -> bool:
        """Whether a node and the cohort have room once the pods that are leaving are gone."""
        return bool(self.preemptor.fits.any()) and not self._needs

    def victims(self, protections: Protections = ALL_HOLD) -> Steps[list[PossibleVictim]]:
        """Return the pods that may be evicted, each by itself."""
        if self._possible is None:
            self._possible = yield from self._all_possible()
        situation, strategy, preemptor = self._situation, self._strategy, self.preemptor
        is_counted = protections.budgets or strategy.overrides_budgets
        budgets = Budgets(situation.budgets if is_counted else ())
        with_budgets = budgets.allowed if protections.budgets else budgets.overridden
        found = list[PossibleVictim]()
        for part in parts_of(self._possible):
            allowed = (
                each
                for each in part
                if (not protections.guards or guards_allow(situation, each))
                and not (
                    protections.tolerations
                    and each.pod.priority_class_name  # no other is exempt
                    and strategy.is_exempt(each, preemptor)
                )
            )
            found += with_budgets(allowed)
            yield
        return found

    def plan(self, victims: Sequence[PossibleVictim]) -> Steps[Plan | None]:
        """Return the best plan, None if there is none.

        Gangs, and pods on several nodes, are taken where single pods do not make room.
        """
        if not victims:
            return None
        groups = yield from group(victims, (yield from self._sizes()))
        plan = yield from self._plan_of_single_pods(groups.single)
        tries_sets = self._strategy.tries_sets and self.preemptor.fit.reads_other_nodes
        if plan is not None or not (groups.gangs or tries_sets):
            return plan
        return (yield from self._plan_for_several_nodes(groups))

    def covering(
        self, victims: Sequence[PossibleVictim], needs: Amounts
    ) -> Steps[list[PossibleVictim]]:
        """Return pods by themselves that free what the cohort needs; none where all are too few."""
        groups = yield from group(victims, (yield from self._sizes()))
        return (yield from self._covering(groups.single, (), needs)) or []

    def otherwise(self) -> Steps[Plan | NoPlan]:
        """Return why no victims were found, or the plan that overrides budgets if one may."""
        at_limit = self._situation.at_limit
        if self._strategy.tells_limit and at_limit:
            most = yield from self.victims(NONE_HOLDS)
            if any(each.pod.namespace in at_limit for each in most):
                text = "as many pods of their namespaces are being evicted as may be at a time"
                return NoPlan(reason=NoPlanReason.AT_LIMIT, message=text)
        before = 0
        for reason, text, without in self._strategy.obstacles:
            victims = yield from self.victims(without)
            is_more, before = len(victims) > before, len(victims)
            if reason is NoPlanReason.BLOCKED_BY_PDB and not self._situation.budgets:
                continue  # nothing to ignore
            plan = (yield from self.plan(victims)) if is_more else None
            if plan is not None:
                return of_obstacle(plan, self._strategy, reason, text)
        text = self._strategy.no_victims_text
        return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)

    def end(self) -> Steps[None]:
        """Forget all pods; nothing may be asked any more."""
        return emptied(self._possible or [])

    def _all_possible(self) -> Steps[list[PossibleVictim]]:
        """Return the pods that may be victims, even if something protects them."""
        strategy, preemptor, among = self._strategy, self.preemptor, self._among
        leaving = {each.pod.uid for each in preemptor.leaving}
        priority = preemptor.pod.priority
        kinds: dict[_Kind, tuple[tuple[QuotaKey, ...] | None, Amounts]] = {}
        found = []
        for part in parts_of(self._situation.candidates):
            yield
            for each in part:
                pod, shape = each.pod, each.entry.shape
                if (
                    not strategy.is_possible(each, priority)
                    or pod.is_protected
                    or pod.uid in leaving
                    or each.entry.row == NO_ROW
                    or (among is not None and pod.uid not in among)
                ):
                    continue
                kind = each.quotas, id(shape)
                if kind not in kinds:
                    requests = quota_requests(shape)
                    pushed = strategy.pushed(each.quotas, requests, preemptor)
                    kinds[kind] = pushed, requests
                pushed, requests = kinds[kind]
                if pushed is not None:
                    victim = PossibleVictim(
                        pod=pod,
                        entry=each.entry,
                        quotas=each.quotas,
                        pushed=pushed,
                        requests=requests,
                    )
                    found.append(victim)
        return found

    def _sizes(self) -> Steps[Mapping[GangKey, int]]:
        """Return how many members of each gang run."""
        if self._gangs is None:
            situation, leaving = self._situation, self.preemptor.leaving
            self._gangs = yield from sizes_of_gangs(situation.candidates, leaving, situation.view)
        return self._gangs

    def _plan_of_single_pods(self, victims: Sequence[PossibleVictim]) -> Steps[Plan | None]:
        preemptor, strategy = self.preemptor, self._strategy
        if self._needs and preemptor.fits.any():
            found = yield from self._covering(victims, (), self._needs)
            row = -1 if found is None else preemptor.best_node(())
            return None if found is None else strategy.plan(preemptor, row, found)
        tried, most = 0, strategy.most_on_node
        for node in self._nodes(victims):
            if node is None:
                yield
                continue
            row, on_row = node
            chosen = yield from self._completed(victims, on_row)
            is_allowed = chosen is not None and (most is None or len(chosen) <= most)
            if chosen is not None and is_allowed and preemptor.fits_on(row, chosen):
                if any(each.entry.row == row for each in chosen[len(on_row) :]):
                    chosen = self._without_unneeded(row, chosen)
                return strategy.plan(preemptor, row, chosen)
            tried += 1
            if tried == _MOST_NODES:
                break
        return None

    def _plan_for_several_nodes(self, groups: Groups) -> Steps[Plan | None]:
        preemptor = self.preemptor
        everyone, rows = (yield from groups.all()), list[int]()
        if not preemptor.fits.any():
            members = yield from members_of(everyone)
            rows = yield from best_rows(self._nodes(members), _MOST_NODES)
        search = CrossNodeSearch(preemptor, self._needs)
        victims = yield from search.victims(everyone, rows)
        yield from emptied(everyone)
        if victims is None:
            return None
        return self._strategy.plan(preemptor, preemptor.best_node(victims), victims)

    def _nodes(self, victims: Sequence[PossibleVictim]) -> NodeSearch:
        return NodeSearch(self.preemptor, self._needs, victims, self._strategy.in_order)

    def _completed(
        self, possible: Sequence[PossibleVictim], victims: Sequence[PossibleVictim]
    ) -> Steps[list[PossibleVictim] | None]:
        """Return victims on a node with those elsewhere that the cohort needs in addition."""
        needs = less(self._needs, freed_by(victims))
        lacking = {name: needs[name] for name in self._needs if needs[name] > 0}
        if not lacking:
            return [*victims]
        more = yield from self._covering(possible, victims, lacking)
        return None if more is None else [*victims, *more]

    def _covering(
        self,
        possible: Sequence[PossibleVictim],
        victims: Sequence[PossibleVictim],
        needs: Amounts,
    ) -> Steps[list[PossibleVictim] | None]:
        taken, others = {each.pod.uid for each in victims}, list[PossibleVictim]()
        for part in parts_of(possible):
            others += [each for each in part if each.pod.uid not in taken]
            yield
        return (yield from fewest_covering(others, needs, self.preemptor.accounts, victims))

    def _without_unneeded(self, row: int, victims: list[PossibleVictim]) -> list[PossibleVictim]:
        """Return victims without those that others on the same node have made unneeded."""
        for each in reversed(victims):
            others = [other for other in victims if other is not each]
            if covers(freed_by(others), self._needs) and self.preemptor.fits_on(row, others):
                victims = others
        return victims
