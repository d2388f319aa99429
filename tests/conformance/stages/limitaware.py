"""LimitAware: its filter, score and normalisation, and the two amounts they compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.limit_aware import LimitAwareArgs, LimitAwareFilter, LimitAwareScore, NodeRatios
from tests.conformance.koordinator import (
    by_node,
    cluster_of,
    incoming,
    now_of,
    outcome_of_filter,
)
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _filter(case: Json, _: Json) -> str | None:
    view = cluster_of(case)
    try:
        args = LimitAwareArgs.model_validate(case["args"])
    except ValidationError:  # refused at load; upstream fails on each node
        outcome = dict.fromkeys(view.rows, "error")
    else:
        outcome = outcome_of_filter(LimitAwareFilter(args), case, view)
    return mismatch(case["expect"]["filter"], outcome)


def _score(case: Json, _: Json) -> str | None:
    view = cluster_of(case)
    rule = LimitAwareScore(LimitAwareArgs.model_validate(case["args"]))
    scores = rule.score(Cycle(incoming(case), view, now_of(case))).values
    got = {"score": by_node(view, scores), "normalized": by_node(view, rule.normalize(scores))}
    return mismatch(case["expect"], {name: got[name] for name in case["expect"]})


def _normalize(case: Json, _: Json) -> str | None:
    rule = LimitAwareScore(LimitAwareArgs.model_validate(case["args"]))
    raw = case["raw_scores"]
    values = rule.normalize(np.array(list(raw.values()), np.int64)).tolist()
    return mismatch(case["expect"]["normalized"], dict(zip(raw, values, strict=True)))


def _pod_limit(case: Json, _: Json) -> str | None:
    shape = incoming(case).shape
    limits = shape.effective_limits_non_zero if case["non_zero"] else shape.effective_limits
    expected = case["expect"]["limit"]
    return mismatch(expected, {name: limits.get(name, 0) for name in expected})


def _node_capacity(case: Json, _: Json) -> str | None:
    args = LimitAwareArgs.model_validate(case["args"])
    ratios, view = NodeRatios(args.default_limit_to_allocatable_ratio), cluster_of(case)
    expected = case["expect"]["capacity"]
    capacities = {name: ratios.capacity(view, name)[1] for name in expected}
    return mismatch(expected, {name: int(amounts[0]) for name, amounts in capacities.items()})


STAGES: Mapping[str, Stage] = {
    "filter": _filter,
    "node-capacity": _node_capacity,
    "normalize": _score,
    "normalize-only": _normalize,
    "pod-limit": _pod_limit,
    "score": _score,
}
