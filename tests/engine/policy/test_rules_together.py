"""Rules that are evaluated for many pods at once say of each what they say of it alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from engine.plugins import StackingFilter, StackingScore
from engine.policy import scheduler_filters
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
            alone = np.concatenate([rule.rejects_each([context]) for context in contexts])
            assert np.array_equal(rule.rejects_each(contexts)[:, nodes], alone[:, nodes])
        candidates = np.tile(view.valid, (len(contexts), 1))
        for score in policy.scores:
            together = score.raw_each(contexts, candidates)
            for context, found in zip(contexts, together, strict=True):
                [own] = score.raw_each([context], candidates[:1])
                assert (found is None) == (own is None)
                if found is not None and own is not None:
                    assert np.array_equal(found[nodes], own[nodes])
                    assert found.dtype == own.dtype


@pytest.mark.parametrize("plugin", ["LoadAware", "LimitAware"])
def test_plugins_whose_formula_has_an_axis_for_pods_are_evaluated_once(plugin: str) -> None:
    [policy] = policies(one=f"filters: [{{plugin: {plugin}}}]\nscores: [{{plugin: {plugin}}}]")
    assert isinstance(policy.filters[0].evaluator.plugin, StackingFilter)  # type: ignore[union-attr]
    assert isinstance(policy.scores[0].evaluator.plugin, StackingScore)  # type: ignore[union-attr]
