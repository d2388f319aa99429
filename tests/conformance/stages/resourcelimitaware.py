"""ResourceLimitAware: raw scores by the formula of KEP-217, and their normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.plugins import Cycle
from engine.plugins.resource_limit_aware import ResourceLimitAwareArgs, ResourceLimitAwareScore
from tests.conformance.koordinator import by_node, cluster_of, incoming, now_of
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _score(case: Json, _: Json) -> str | None:
    view = cluster_of(case)
    rule = ResourceLimitAwareScore(ResourceLimitAwareArgs.model_validate(case["args"]))
    raw = rule.score(Cycle(incoming(case), view, now_of(case))).values
    got = {"raw": by_node(view, raw), "score": by_node(view, rule.normalize(raw))}
    return mismatch(case["expect"], {name: got[name] for name in case["expect"]})


STAGES: Mapping[str, Stage] = {"score": _score}
