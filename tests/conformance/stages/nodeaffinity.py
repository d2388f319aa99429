"""NodeAffinity: which nodes match, why not, what the preferred terms add, what is misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.model.selectors import named_nodes, parse_node_selector, parse_preferred_terms
from engine.plugins.base import PASS, Cycle
from engine.plugins.lib.arithmetic import default_normalize
from engine.plugins.node_affinity import (
    NodeAffinityArgs,
    NodeAffinityFilter,
    NodeAffinityScore,
)
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.model import api
    from engine.view import IntColumn
    from tests.conformance.outcome import Stage

_CONFLICT = "pod affinity terms conflict"


def _filter(case: Json, _: Json) -> str | None:
    view, pod = cluster_of(case), incoming(case)
    rule = NodeAffinityFilter(NodeAffinityArgs.model_validate(case["args"]))
    codes = dict(zip(view.names, rule.filter(Cycle(pod, view, NOW)).codes.tolist(), strict=True))
    got: Json = {"match": {name: code == PASS for name, code in codes.items()}}
    texts = {rule.reasons(code, Cycle(pod, view, NOW)) for code in codes.values() if code != PASS}
    if "reason" in case["expect"]:
        got["reason"] = "; ".join(text for (text,) in texts)
    if "prefilter" in case["expect"]:
        got["prefilter"] = _prefilter(_required(case))
    return mismatch(case["expect"], got)


def _prefilter(required: api.NodeSelector | None) -> Json:
    names = None if required is None else named_nodes(required)
    if names is None:
        return {"nodeNames": None}
    return {"nodeNames": sorted(names)} if names else {"unschedulable": _CONFLICT}


def _parse(case: Json, _: Json) -> str | None:
    required, affinity = _required(case), incoming(case).affinity
    preferred = affinity and affinity.preferred_during_scheduling_ignored_during_execution
    wrong = parse_node_selector(required)[1] if required else ()
    wrong += parse_preferred_terms(preferred or ())[1]
    errors = [{"type": mistake.kind, "field": mistake.field} for mistake in wrong]
    return mismatch(case["expect"], {"errors": errors})


def _required(case: Json) -> api.NodeSelector | None:
    affinity = incoming(case).affinity
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _score_raw(case: Json, _: Json) -> str | None:
    return _score(case, normalized=False)


def _score_normalized(case: Json, _: Json) -> str | None:
    return _score(case, normalized=True)


def _score(case: Json, *, normalized: bool) -> str | None:
    view = cluster_of(case)
    rule = NodeAffinityScore(NodeAffinityArgs.model_validate(case["args"]))
    scores = rule.score(Cycle(incoming(case), view, NOW))
    if scores.faults is not None:
        return f"could not be evaluated: {rule.fault(Cycle(incoming(case), view, NOW), 0)}"
    values = rule.normalize(scores.values) if normalized else scores.values
    return _compare(case, view.names, values)


def _normalize(case: Json, _: Json) -> str | None:
    args = case["args"]
    raw = np.array(list(args["scores"].values()), np.int64)
    return _compare(case, tuple(args["scores"]), default_normalize(raw, reverse=args["reverse"]))


def _compare(case: Json, names: tuple[str, ...], scores: IntColumn) -> str | None:
    return mismatch(case["expect"], {"score": dict(zip(names, scores.tolist(), strict=True))})


STAGES: Mapping[str, Stage] = {
    "filter": _filter,
    "normalize": _normalize,
    "parse": _parse,
    "prefilter+filter": _filter,
    "score+normalize": _score_normalized,
    "score-raw": _score_raw,
}
