"""The pod that needs room, and what the cluster is to it once the pods that leave are gone."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.request import PlacementRequest
from engine.pipeline import decide
from engine.reclaim.borrowers import Accounts, Borrower
from engine.reclaim.candidates import Candidate
from engine.reclaim.node_fit import NodeFit
from engine.reclaim.plan import Situation, requests_by_quota
from engine.view import NO_ROW, BoolColumn, WhatIf, quota_requests


class Preemptor:
    """A pod that others may be evicted for.

    Args:
        request: the pod and its context.
        situation: all that a plan is made from.
        leaving: the candidates that are on their way out.
        nodes: those that it may take, (n,); None for all.

    Attributes:
        requests: of the pod, `pods` among them.
        leaving: as given.
        accounts: the quotas once these are gone.
        fit: its filters.
        fits: which nodes would take it once they are gone, (n,).
    """

    def __init__(
        self,
        request: PlacementRequest,
        situation: Situation,
        leaving: Sequence[Candidate],
        nodes: BoolColumn | None = None,
    ) -> None:
        self._request = request
        self._situation = situation
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

    def what_if(self, removed: Sequence[Borrower]) -> WhatIf:
        """Return the cluster without the pods that are leaving, and without some more."""
        what_if = WhatIf(self._situation.view)
        gone = [(each.pod.key, each.entry) for each in self.leaving if each.entry.row != NO_ROW]
        what_if.remove([*gone, *(borrower.counted for borrower in removed)])
        return what_if

    def fits_on(self, row: int, removed: Sequence[Borrower]) -> bool:
        """Return whether a node would take the pod with some more pods gone."""
        return bool(self.fit.passing(self.what_if(removed))[row])

    def best_node(self, removed: Sequence[Borrower]) -> int:
        """Return the row that the pod would be released to with some more pods gone."""
        situation, what_if = self._situation, self.what_if(removed)
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
