"""A batch gives what deciding its pods one by one would give."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from msgspec.structs import asdict

from engine.batch import BatchOutcome, decide_batch
from engine.pipeline import decide
from tests.engine.batch_worlds import BatchWorld, worlds
from tests.engine.measured_cluster import NOW


def plain(outcomes: Sequence[BatchOutcome]) -> list[dict[str, object]]:
    """Return outcomes without the decisions, of which pods of a template share one."""
    return [asdict(outcome) | {"decision": None} for outcome in outcomes]


def one_by_one(world: BatchWorld) -> list[BatchOutcome]:
    """Decide each pod on a cluster that was told of those before it."""
    state, outcomes = world.state(), []
    for request in world.requests:
        outcome = BatchOutcome.of(decide(request, world.policies, state.view(), NOW))
        outcomes.append(outcome)
        if outcome.node:
            state.nominate(request.pod.key, outcome.node)
    return outcomes


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_a_batch_is_decided_as_its_pods_are_one_by_one(world: BatchWorld) -> None:
    view = world.state().view()
    batch = decide_batch(world.requests, world.policies, view, NOW)
    assert plain(batch) == plain(one_by_one(world))
