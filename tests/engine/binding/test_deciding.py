"""What becomes of one binding: kept, moved or denied, and why."""

from __future__ import annotations

from typing import Any

from engine.binding import (
    NO_LIMITS,
    BindingAction,
    BindingDecision,
    BindingReason,
    MoveLimits,
    decide_binding,
)
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.view import ClusterView
from tests.engine.binding.worlds import NOW, by_rank, node, pod, request, view_of

Outcome = tuple[BindingAction, str, BindingReason]


def _decided(
    view: ClusterView,
    *,
    at: str = "a",
    by: PolicySet | None = None,
    limits: MoveLimits = NO_LIMITS,
    **of_pod: Any,  # noqa: ANN401 - parts of a pod
) -> BindingDecision:
    by = by_rank() if by is None else by
    return decide_binding(request(**of_pod), at, by, view, NOW, scope=Scope(), limits=limits)


def _outcome(decision: BindingDecision) -> Outcome:
    return decision.action, decision.node_name, decision.reason


# Points of an expression are 0 for the least of all nodes that fit, and 100 for the greatest.


def test_the_pod_goes_to_a_node_that_is_better_by_enough() -> None:
    decision = _decided(view_of(node("a", 94), node("b", 100), node("c", 0)))
    assert _outcome(decision) == (BindingAction.MOVE, "b", BindingReason.BETTER_NODE)
    assert decision.scheduler_node == "a"
    assert decision.gain == 600  # hundredths


def test_the_node_of_the_scheduler_is_kept_where_little_is_gained() -> None:
    decision = _decided(view_of(node("a", 96), node("b", 100), node("c", 0)))
    assert _outcome(decision) == (BindingAction.KEEP, "a", BindingReason.BEST_NODE)


def test_a_node_that_was_filled_in_the_meantime_is_left() -> None:
    full = [pod(f"full{i}", on="a") for i in range(4)]
    decision = _decided(view_of(node("a", 100), node("b", 0), *full))
    assert _outcome(decision) == (BindingAction.MOVE, "b", BindingReason.FAILS_SCHEDULER)


def test_a_pod_that_fits_nowhere_stays_pending() -> None:
    full = [pod(f"full{i}", on="a") for i in range(4)]
    decision = _decided(view_of(node("a", 100), *full))
    assert _outcome(decision) == (BindingAction.DENY, "a", BindingReason.NO_ROOM)
