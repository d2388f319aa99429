"""A batch gives what deciding its pods one by one would give."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from msgspec.structs import replace

from engine.batch import BatchOutcome, decide_batch
from engine.model.advice import ADVICE_ANNOTATION, Advice
from engine.model.decision import Decision
from engine.model.pod import Pod
from engine.pipeline import decide
from engine.view import ClusterState
from tests.engine.batch_worlds import BatchWorld, worlds
from tests.engine.measured_cluster import NOW


def _outcome(decision: Decision) -> BatchOutcome:
    fits = bool(decision.candidates.size)
    return BatchOutcome(
        node=decision.names[decision.candidates[0]] if fits else "",
        verdict=decision.verdict,
        message="" if fits else decision.message,
        score=int(decision.totals[0]) if fits else 0,
        candidates=decision.candidates.size,
        estimate=decision.estimate,
        decision=decision,
    )


def _plain(outcomes: list[BatchOutcome]) -> list[tuple[object, ...]]:
    """Return outcomes without the decision behind each, which pods of one template share."""
    return [msgspec.structs.astuple(outcome)[:-1] for outcome in outcomes]


def _count(pod: Pod, node: str, state: ClusterState) -> None:
    """Let a pod count on a node, where it is not bound."""
    advice = {ADVICE_ANNOTATION: msgspec.json.encode(Advice(nodes=(node,))).decode()}
    state.set_pod(replace(pod, scheduling_gates=(), annotations=advice), seen_at=NOW)


def one_by_one(world: BatchWorld) -> list[BatchOutcome]:
    """Decide each pod on a cluster that was told of those before it."""
    state, outcomes = world.state(), []
    for request in world.requests:
        outcome = _outcome(decide(request, world.policies, state.view(), NOW))
        outcomes.append(outcome)
        if outcome.node:
            _count(request.pod, outcome.node, state)
    return outcomes


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_a_batch_is_decided_as_its_pods_are_one_by_one(world: BatchWorld) -> None:
    view = world.state().view()
    batch = decide_batch(world.requests, world.policies, view, NOW)
    assert _plain(batch) == _plain(one_by_one(world))
