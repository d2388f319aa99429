"""Decisions for many pods at once, each as if all before it were on their nodes already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from engine.model.decision import Decision, Verdict
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.pipeline import Scope, decide
from engine.policy import PolicySet
from engine.view import FRESH, ClusterView, Freshness, WhatIf

_SCOPE: Final = Scope()


class BatchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one pod of a batch.

    Attributes:
        node: the name of the best node, "" where there is none.
        verdict: as of a `Decision`: there is a node if and only if it is PLACE.
        message: why there is no node, in one line; "" where there is one.
        score: the total of that node.
        candidates: the number of nodes that could take the pod.
        estimate: expected usage of the pod, base units; empty when no rule estimates.
        decision: the one made for the first pod of its template.
    """

    node: str
    verdict: Verdict
    message: str
    score: int
    candidates: int
    estimate: Amounts
    decision: Decision


def decide_batch(
    requests: Sequence[PlacementRequest],
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    scope: Scope = _SCOPE,
    freshness: Freshness = FRESH,
) -> list[BatchOutcome]:
    """Decide where pods should go, in order: each sees those before it on their best nodes.

    As if each were decided by `decide` and then counted by `ClusterState.nominate`. Decisions of
    policies in Audit mode are not made.

    Args:
        requests: the pods, none of which counts on a node of the view, and their contexts.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment of all decisions.
        scope: the pods to place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    what_if, outcomes = WhatIf(view), []
    for request in requests:
        decision = decide(request, policies, what_if.view, now, scope=scope, freshness=freshness)
        outcomes.append(_outcome(decision))
        if decision.candidates.size:
            what_if.place(request.pod, int(decision.candidates[0]))
    return outcomes


def _outcome(decision: Decision) -> BatchOutcome:
    has_node = decision.candidates.size > 0
    return BatchOutcome(
        node=decision.names[decision.candidates[0]] if has_node else "",
        verdict=decision.verdict,
        message="" if has_node else decision.message,
        score=int(decision.totals[0]) if has_node else 0,
        candidates=decision.candidates.size,
        estimate=decision.estimate,
        decision=decision,
    )
