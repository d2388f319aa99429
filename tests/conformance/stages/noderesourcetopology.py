"""NodeResourceTopologyMatch: what cannot be aligned, and the points of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.plugins.base import PASS, Cycle
from engine.plugins.node_resource_topology_match import (
    NodeResourceTopologyMatchArgs,
    NodeResourceTopologyMatchFilter,
    NodeResourceTopologyMatchScore,
    points,
)
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _args(case: Json) -> NodeResourceTopologyMatchArgs:
    return NodeResourceTopologyMatchArgs.model_validate(case.get("args", {}))


def _filter(case: Json, _: Json) -> str | None:
    view, pod = cluster_of(case), incoming(case)
    rule = NodeResourceTopologyMatchFilter(_args(case))
    codes = rule.filter(Cycle(pod, view, NOW)).codes.tolist()
    verdicts = ["pass" if code == PASS else "reject" for code in codes]
    got: Json = {"filter": dict(zip(view.names, verdicts, strict=True))}
    if "reason" in case["expect"]:
        texts = {rule.reasons(code, Cycle(pod, view, NOW)) for code in codes if code != PASS}
        got["reason"] = "; ".join(text for (text,) in texts)
    return mismatch(case["expect"], got)


def _score(case: Json, _: Json) -> str | None:
    view, pod = cluster_of(case), incoming(case)
    rule = NodeResourceTopologyMatchScore(_args(case))
    scores = rule.normalize(rule.score(Cycle(pod, view, NOW)).values).tolist()
    by_node = dict(zip(view.names, scores, strict=True))
    got: Json = {"score": by_node}
    if "best" in case["expect"]:
        got["best"] = max(by_node, key=by_node.__getitem__)
    return mismatch(case["expect"], got)


def _normalize(case: Json, _: Json) -> str | None:
    score = points(case["numaNodes"], case["maxNUMANodes"], is_nearest=case["optimalDistance"])
    return mismatch(case["expect"], {"score": int(score)})


STAGES: Mapping[str, Stage] = {
    "filter": _filter,
    "least-numa-normalize": _normalize,
    "score": _score,
}
