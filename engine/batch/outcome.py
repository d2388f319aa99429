"""The outcome for one pod of a batch."""

from __future__ import annotations

import msgspec

from engine.model.decision import Decision, Verdict
from engine.model.resources import Amounts


class BatchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one pod of a batch.

    Attributes:
        node: the name of the best node, "" where there is none.
        verdict: as of a `Decision`: there is a node if and only if it is PLACE.
        message: why there is no node, in one line; "" where there is one.
        score: the total of that node.
        candidates: the number of nodes that could take the pod.
        estimate: expected usage of the pod, base units; empty when no rule estimates.
        decision: the one made for the first pod of its template; what it computes on demand is of
            no moment any more.
    """

    node: str
    verdict: Verdict
    message: str
    score: int
    candidates: int
    estimate: Amounts
    decision: Decision

    @classmethod
    def of(cls, decision: Decision) -> BatchOutcome:
        """Return the outcome of a decision."""
        best = decision.ranking.best(1)
        fits = best.size > 0
        return cls(
            node=decision.best_node,
            verdict=decision.verdict,
            message="" if fits else decision.message,
            score=decision.ranking.given_totals.item(best[0]) if fits else 0,
            candidates=len(decision.ranking),
            estimate=decision.estimate,
            decision=decision,
        )
