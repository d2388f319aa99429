"""NodeResourcesFit: its three scoring strategies, their args and the line through a shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.lib.arithmetic import broken_line
from engine.plugins.node_resources_fit import NodeResourcesFitArgs, NodeResourcesFitScore
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage

_UPSTREAM_TYPES = {
    "literal_error": "FieldValueNotSupported",
    "missing": "FieldValueRequired",
    "value_error": "FieldValueInvalid",
}
"""The API machinery's name of an error to pydantic's."""


def _score(case: Json, _: Json) -> str | None:
    view, pod = cluster_of(case), incoming(case)
    rule = NodeResourcesFitScore(NodeResourcesFitArgs.model_validate(case["args"]))
    scores = rule.score(Cycle(pod, view, NOW))
    if scores.faults is not None and scores.faults.all():
        message = rule.fault(Cycle(pod, view, NOW), 0)
        return mismatch(case["expect"], {"error": {"type": "Error", "message": message}})
    values = rule.normalize(scores.values).tolist()
    return mismatch(case["expect"], {"score": dict(zip(view.names, values, strict=True))})


def _validate(case: Json, _: Json) -> str | None:
    try:
        NodeResourcesFitArgs.model_validate(case["args"])
    except ValidationError as invalid:
        (error,) = invalid.errors()
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"])
        field = "".join(steps).removeprefix(".")
        kind = _UPSTREAM_TYPES[error["type"]]
        return mismatch(case["expect"], {"error": {"type": kind, "field": field}})
    return mismatch(case["expect"], {})


def _shape_function(case: Json, _: Json) -> str | None:
    points = [(point["utilization"], point["score"]) for point in case["args"]["shape"]]
    expected = {value["utilization"]: value["score"] for value in case["expect"]["values"]}
    return mismatch(expected, {place: broken_line(points, place) for place in expected})


STAGES: Mapping[str, Stage] = {
    "score": _score,
    "shape-function": _shape_function,
    "validate": _validate,
}
