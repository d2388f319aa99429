"""NodeResourcesBalancedAllocation: both formulas, its args, and pods that it passes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesBalancedAllocationScore,
)
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage

_UPSTREAM_TYPES = {"duplicate": "FieldValueDuplicate", "value_error": "FieldValueInvalid"}
"""The API machinery's name of an error to pydantic's."""


def _rule(case: Json) -> NodeResourcesBalancedAllocationScore:
    return NodeResourcesBalancedAllocationScore(_args(case))


def _args(case: Json) -> NodeResourcesBalancedAllocationArgs:
    args = case["args"]
    version = case.get("kubernetesVersion")
    if version is not None:  # `<=1.35` or `>=1.36`
        args = args | {"kubernetesVersion": version.lstrip("<>= ")}
    return NodeResourcesBalancedAllocationArgs.model_validate(args)


def _score(case: Json, _: Json) -> str | None:
    view, pod, rule = cluster_of(case), incoming(case), _rule(case)
    scores = rule.score(Cycle(pod, view, NOW))
    if scores.faults is not None and scores.faults.all():
        message = rule.fault(Cycle(pod, view, NOW), 0)
        return mismatch(case["expect"], {"error": {"type": "Error", "message": message}})
    values = rule.normalize(scores.values).tolist()
    return mismatch(case["expect"], {"score": dict(zip(view.names, values, strict=True))})


def _prescore(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"skip": _rule(case).skips(incoming(case))})


def _validate(case: Json, _: Json) -> str | None:
    try:
        _args(case)
    except ValidationError as invalid:
        (error,) = invalid.errors()
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"])
        field = "".join(steps).removeprefix(".")
        kind = _UPSTREAM_TYPES[error["type"]]
        return mismatch(case["expect"], {"error": {"type": kind, "field": field}})
    return mismatch(case["expect"], {})


STAGES: Mapping[str, Stage] = {"prescore": _prescore, "score": _score, "validate": _validate}
