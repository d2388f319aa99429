"""The search for the victims of one pod: on each node alone, then on several nodes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from engine.model.elastic_quota import QuotaKey
from engine.model.gang import GangKey
from engine.model.request import PlacementRequest
from engine.preemption.victims import PossibleVictims, in_order
from engine.reclaim import (
    MOST_VICTIMS,
    Borrower,
    Candidate,
    CrossNodeSearch,
    Groups,
    NodeSearch,
    NoPlan,
    NoPlanReason,
    Plan,
    Preemptor,
    Situation,
    Steps,
    best_rows,
    emptied,
    group,
    members_of,
    sizes_of_gangs,
    victims_of,
)
from engine.view import BoolColumn

_MOST_NODES: Final = 16
"""The best nodes that are tried: only rules that read other nodes make more than one fail."""


_BUDGETS: Final = "PodDisruptionBudgets allow no eviction of the pods of lower priority now"
_TOLERATIONS: Final = "the PriorityClasses of the pods of lower priority tolerate preemption"
_GUARDS: Final = (
    "the pods of lower priority came back after their owners were hit, or as many pods of their"
    " namespaces are being evicted as may be at a time"
)

OBSTACLES: Final = (
    (NoPlanReason.BLOCKED_BY_PDB, _BUDGETS, True, True),
    (NoPlanReason.TOLERATED, _TOLERATIONS, False, True),
    (NoPlanReason.GUARDED, _GUARDS, False, False),
)
"""What may be in the way, the first first: whether classes and guards hold without it."""


class PreemptionSearch:
    """The search for victims for one pod.

    Args:
        request: the pod and its context.
        quotas: the quota that it counts for, then those above that.
        situation: all else.
        leaving: the candidates that are on their way out.
        nodes: those that it may take, (n,); None for all.

    Attributes:
        victims: the pods that may be evicted.
        fit: the filters of the pod.
        fits: which nodes would take it once the pods that are leaving are gone, (n,).
    """

    def __init__(
        self,
        request: PlacementRequest,
        quotas: tuple[QuotaKey, ...],
        situation: Situation,
        leaving: Sequence[Candidate],
        nodes: BoolColumn | None = None,
    ) -> None:
        self._pod = request.pod
        self._situation = situation
        self._leaving = leaving
        self._preemptor = Preemptor(request, situation, leaving, nodes)
        self._accounts = self._preemptor.accounts
        self.victims = PossibleVictims(request, quotas, situation, leaving, self._accounts)
        self.fit, self.fits = self._preemptor.fit, self._preemptor.fits
        self._gangs: Mapping[GangKey, int] | None = None

    def plan(self, victims: Sequence[Borrower]) -> Steps[Plan | None]:
        """Return the best plan, None if there is none.

        Gangs, and pods on several nodes, are taken where pods on one node do not make room.

        Args:
            victims: that may be evicted.
        """
        if not victims:
            return None
        if self._gangs is None:
            self._gangs = yield from sizes_of_gangs(
                self._situation.candidates, self._leaving, self._situation.view
            )
        groups, tried = (yield from group(victims, self._gangs)), 0
        for found in self._nodes(groups.single):
            if found is None:
                yield
                continue
            row, of_row = found
            if len(of_row) <= MOST_VICTIMS and self._preemptor.fits_on(row, of_row):
                return self._plan(row, of_row)
            tried += 1
            if tried == _MOST_NODES:
                break
        if not groups.gangs and not self.fit.reads_other_nodes:
            return None
        return (yield from self._plan_for_several_nodes(groups))

    def reason(self) -> Steps[NoPlan]:
        """Return why no victims were found."""
        tried = len((yield from self.victims.of_lower_priority()))
        for reason, text, tolerations, guards in OBSTACLES:
            victims = yield from self.victims.of_lower_priority(
                budgets=False, tolerations=tolerations, guards=guards
            )
            # Budgets also limit how many go, where each by itself may.
            is_limited = reason is NoPlanReason.BLOCKED_BY_PDB and bool(self._situation.budgets)
            is_more, tried = len(victims) > tried, len(victims)
            if (is_limited or is_more) and (yield from self.plan(victims)) is not None:
                return NoPlan(reason=reason, message=text)
        text = "no pods of lower priority make room for it"
        return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)

    def _nodes(self, victims: Sequence[Borrower]) -> NodeSearch:
        preemptor = self._preemptor
        return NodeSearch(
            self.fit,
            preemptor.what_if(()),
            preemptor.requests,
            {},
            self._accounts,
            victims,
            in_order,
        )

    def _plan_for_several_nodes(self, groups: Groups) -> Steps[Plan | None]:
        everyone = yield from groups.all()
        members = yield from members_of(everyone)
        rows = yield from best_rows(self._nodes(members), _MOST_NODES)
        what_if = self._preemptor.what_if(())
        search = CrossNodeSearch(self._pod, self.fit, what_if, self._accounts)
        victims = yield from search.victims(everyone, rows)
        yield from emptied(everyone)
        return None if victims is None else self._plan(self._preemptor.best_node(victims), victims)

    def _plan(self, row: int, victims: Sequence[Borrower]) -> Plan:
        name, pod = self._situation.view.names[row], self._pod
        most = max(each.pod.priority for each in victims)
        return Plan(
            node_names=(name,),
            victims=victims_of(in_order(victims), self._situation.view),
            message=(
                f"{pod.key} has priority {pod.priority} and needs room on node {name}; "
                f"priority of the victims: {most}" + (" at most" if len(victims) > 1 else "")
            ),
        )
