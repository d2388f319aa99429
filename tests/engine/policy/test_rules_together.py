"""Rules that are evaluated for many pods at once say of each what they say of it alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.plugins import StackingFilter, StackingScore
from engine.policy import OnView, scheduler_filters
from engine.view import FRESH
from tests.engine.batch.worlds import EXAMPLES, BatchWorld, worlds
from tests.engine.measured_cluster import NOW
from tests.engine.policy.worlds import policies


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_many_pods_together_get_what_each_gets_alone(world: BatchWorld) -> None:
    view = world.state().view()
    nodes = view.valid.nonzero()[0]
    for policy in world.policies:
        contexts = [policy.context(request, view, NOW, FRESH) for request in world.requests]
        for rule in (*scheduler_filters(contexts[0]), *policy.filters):
            rejects = rule.rejects_for(contexts)(OnView(view))
            alone = np.stack([rule.rejects(context) for context in contexts])
            assert np.array_equal(rejects[:, nodes], alone[:, nodes])
        candidates = np.tile(view.valid, (len(contexts), 1))
        for score in policy.scores:
            together = score.raw_for(contexts)(OnView(view), candidates)
            for context, found in zip(contexts, together, strict=True):
                own = score.raw(context, view.valid)
                assert (found is None) == (own is None)
                if found is not None and own is not None:
                    assert np.array_equal(found[nodes], own[nodes])
                    assert found.dtype == own.dtype


_STRETCHED = {
    "by an expression": "{name: few, expression: -node.podCount}",
    "LimitAware": "{plugin: LimitAware}",
    "LoadAware": "{plugin: LoadAware}",
    "one that is evaluated pod by pod": "{plugin: NodeResourcesAllocatable}",
}
_scores = st.lists(st.integers(-(2**55), 2**55) | st.integers(-3, 120), min_size=2, max_size=6)


@pytest.mark.parametrize("rule", _STRETCHED.values(), ids=_STRETCHED)
@given(st.lists(_scores, min_size=1, max_size=3), st.integers(1, 3))
def test_points_between_ends_are_those_of_scores_that_have_these(
    rule: str, rows: list[list[int]], weight: int
) -> None:
    [policy] = policies(one=f"scores: [{rule}]")
    score = replace(policy.scores[0], weight=weight)
    kind = np.float64 if "expression" in rule else np.int64
    width = min(map(len, rows))
    raw = np.array([row[:width] for row in rows], kind)
    low, high = raw.min(axis=1, keepdims=True), raw.max(axis=1, keepdims=True)
    found = score.points_between(raw, low, high)
    for row, points in zip(raw, found, strict=True):
        normalized = score.evaluator.normalize(row)
        assert normalized is not None
        assert points.tolist() == (normalized * weight).tolist()


def test_a_spread_that_no_double_holds_is_halved() -> None:
    # -1.7e308 .. 1.7e308 is wider than any double; 0 is half way, 50 points.
    [policy] = policies(one="scores: [{name: few, expression: -node.podCount}]")
    raw = np.array([[-1.7e308, 0.0, 1.7e308], [1.0, 2.0, 3.0]])
    found = policy.scores[0].points_between(raw, raw[:, :1], raw[:, 2:])
    assert found.tolist() == [[0, 50, 100], [0, 50, 100]]


@pytest.mark.parametrize("plugin", ["LoadAware", "LimitAware"])
def test_plugins_whose_formula_has_an_axis_for_pods_are_evaluated_once(plugin: str) -> None:
    [policy] = policies(one=f"filters: [{{plugin: {plugin}}}]\nscores: [{{plugin: {plugin}}}]")
    assert isinstance(policy.filters[0].evaluator.plugin, StackingFilter)  # type: ignore[union-attr]
    assert isinstance(policy.scores[0].evaluator.plugin, StackingScore)  # type: ignore[union-attr]
