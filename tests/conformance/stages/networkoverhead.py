"""NetworkOverhead: which nodes pass, what they cost, and final scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.plugins.base import PASS, Cycle
from engine.plugins.network_overhead import (
    NetworkOverheadArgs,
    NetworkOverheadFilter,
    NetworkOverheadScore,
    Overheads,
)
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _decide(case: Json, _: Json) -> str | None:
    view, pod = cluster_of(case), incoming(case)
    args = NetworkOverheadArgs.model_validate(case["args"])
    rule, scorer = NetworkOverheadFilter(args), NetworkOverheadScore(args)
    cycle = Cycle(pod, view, NOW)
    codes = rule.filter(cycle).codes.tolist()
    costs = scorer.score(cycle).values
    columns = {
        "filter": ["pass" if code == PASS else "reject" for code in codes],
        "raw": costs.tolist(),
        "score": scorer.normalize(costs).tolist(),
    }
    counts = Overheads(args).of(cycle)
    if counts is not None:
        columns |= {"satisfied": counts[0].tolist(), "violated": counts[1].tolist()}
    for key, expected in case["expect"].items():
        values = dict(zip(view.names, columns[key], strict=True))
        # A count that stands alone is of each node that the case filters.
        by_node = expected if isinstance(expected, dict) else _for_all(case, expected)
        wrong = mismatch(by_node, {name: values[name] for name in by_node})
        if wrong:
            return f"{key}: {wrong}"
    return None


def _for_all(case: Json, expected: int) -> Json:
    return dict.fromkeys(case["expect"]["filter"], expected)


STAGES: Mapping[str, Stage] = {"filter": _decide, "score": _decide}
