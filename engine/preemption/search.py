"""The search for the victims of one pod: on each node alone, then on several nodes together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from engine.model.elastic_quota import QuotaKey
from engine.model.request import PlacementRequest
from engine.pipeline import decide
from engine.preemption.cross_node import CrossNodeSearch
from engine.preemption.victims import MOST_VICTIMS, PossibleVictims, in_order
from engine.reclaim import (
    Accounts,
    Borrower,
    NodeFit,
    NodeSearch,
    NoPlan,
    NoPlanReason,
    Plan,
    Situation,
    Victim,
    requests_by_quota,
)
from engine.view import NO_ROW, WhatIf, counted_requests

_MOST_NODES: Final = 16
"""The best nodes that are tried: only rules that read other nodes make more than one fail."""


_BUDGETS: Final = "PodDisruptionBudgets allow no eviction of the pods of lower priority now"
_TOLERATIONS: Final = "the PriorityClasses of the pods of lower priority tolerate preemption"
_GUARDS: Final = "the owners of the pods of lower priority were hit before"


class PreemptionSearch:
    """The search for victims for one pod.

    Attributes:
        victims: the pods that may be evicted.
        fit: the filters of the pod.
        fits: which nodes would take it once the pods that are leaving are gone, (n,).
    """

    def __init__(
        self, request: PlacementRequest, quotas: tuple[QuotaKey, ...], situation: Situation
    ) -> None:
        self._request = request
        self._situation = situation
        self._leaving = situation.on_their_way_out()
        leaving = requests_by_quota(self._leaving)
        self._accounts = Accounts(situation.accounts, leaving, situation.lendable)
        self.victims = PossibleVictims(request, quotas, situation, self._accounts)
        self.fit = NodeFit(
            request,
            situation.policies,
            situation.view,
            situation.now,
            situation.scope,
            situation.freshness,
        )
        self.fits = self.fit.passing(self._what_if(()))

    def plan(self, victims: Sequence[Borrower]) -> Plan | None:
        """Return the best plan, None if there is none.

        Gangs, and pods on several nodes, are taken where pods on one node do not make room.

        Args:
            victims: that may be evicted, the first to go first.
        """
        if not victims:
            return None
        groups = list(self.victims.groups(victims, self._situation.view))
        single = [group[0] for group in groups if len(group) == 1]
        for row, of_row in islice(self._nodes(single), _MOST_NODES):
            if len(of_row) <= MOST_VICTIMS and self._is_enough(row, of_row):
                return self._plan(row, of_row)
        if len(single) == len(groups) and not self.fit.reads_other_nodes:
            return None
        return self._plan_for_several_nodes(groups)

    def reason(self) -> NoPlan:
        """Return why no victims were found."""
        lower = self.victims.of_lower_priority
        tried = len(lower())
        for victims, reason, text in (
            (lower(budgets=False), NoPlanReason.BLOCKED_BY_PDB, _BUDGETS),
            (lower(budgets=False, tolerations=False), NoPlanReason.TOLERATED, _TOLERATIONS),
            (
                lower(budgets=False, tolerations=False, guards=False),
                NoPlanReason.GUARDED,
                _GUARDS,
            ),
        ):
            # Budgets also limit how many go, where each by itself may.
            is_limited = reason is NoPlanReason.BLOCKED_BY_PDB and bool(self._situation.budgets)
            if (is_limited or len(victims) > tried) and self.plan(victims) is not None:
                return NoPlan(reason=reason, message=text)
            tried = len(victims)
        text = "no pods of lower priority make room for it"
        return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)

    def _nodes(self, victims: Sequence[Borrower]) -> NodeSearch:
        return NodeSearch(
            self.fit,
            self._what_if(()),
            counted_requests(self._request.pod.shape),
            {},
            self._accounts,
            victims,
            in_order,
        )

    def _plan_for_several_nodes(self, groups: Sequence[list[Borrower]]) -> Plan | None:
        members = [each for group in groups for each in group]
        rows = [row for row, _ in islice(self._nodes(members), _MOST_NODES)]
        search = CrossNodeSearch(self._request.pod, self.fit, self._what_if(()), self._accounts)
        victims = search.victims(groups, rows)
        if victims is None:
            return None
        return self._plan(self._best_node(victims), victims)

    def _is_enough(self, row: int, victims: Sequence[Borrower]) -> bool:
        return bool(self.fit.passing(self._what_if(victims))[row])

    def _best_node(self, victims: Sequence[Borrower]) -> int:
        """Return the row that the pod would be released to with some pods gone."""
        situation, what_if = self._situation, self._what_if(victims)
        decision = decide(
            self._request,
            situation.policies,
            what_if.view,
            situation.now,
            scope=situation.scope,
            freshness=situation.freshness,
        )
        if decision.candidates.size:
            return int(decision.candidates[0])
        names = situation.view.names
        rows: list[int] = self.fit.passing(what_if).nonzero()[0].tolist()
        return min(rows, key=lambda row: names[row])

    def _what_if(self, removed: Sequence[Borrower]) -> WhatIf:
        """Return the cluster without the pods that are leaving, and without some more."""
        what_if = WhatIf(self._situation.view)
        gone = [(each.pod.key, each.entry) for each in self._leaving if each.entry.row != NO_ROW]
        what_if.remove([*gone, *(victim.counted for victim in removed)])
        return what_if

    def _plan(self, row: int, victims: Sequence[Borrower]) -> Plan:
        names, pod = self._situation.view.names, self._request.pod
        most = max(each.pod.priority for each in victims)
        return Plan(
            node_name=names[row],
            victims=tuple(
                Victim(
                    key=each.pod.key,
                    uid=each.pod.uid,
                    quota=each.quotas[0] if each.quotas else None,
                    owner=each.pod.owner,
                    node_name=names[each.entry.row],
                    requests=each.requests,
                )
                for each in in_order(victims)
            ),
            message=(
                f"{pod.key} has priority {pod.priority} and needs room on node {names[row]}; "
                f"priority of the victims: {most}" + (" at most" if len(victims) > 1 else "")
            ),
        )
