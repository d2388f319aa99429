"""NodeResourcesAllocatable: raw and final scores, and the place of a mistake in its args."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.node_resources_allocatable import (
    NodeResourcesAllocatableArgs,
    NodeResourcesAllocatableScore,
)
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _score(case: Json, _: Json) -> str | None:
    try:
        args = NodeResourcesAllocatableArgs.model_validate(case["args"])
    except ValidationError as invalid:
        first = invalid.errors()[0]["loc"]
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first)
        return mismatch(case["expect"], {"error": "".join(steps).removeprefix(".")})
    view, rule = cluster_of(case), NodeResourcesAllocatableScore(args)
    raw = rule.score(Cycle(incoming(case), view, NOW)).values
    columns = {"raw": raw, "score": rule.normalize(raw)}
    got = {
        key: dict(zip(view.names, values.tolist(), strict=True)) for key, values in columns.items()
    }
    return mismatch(case["expect"], {key: got.get(key) for key in case["expect"]})


STAGES: Mapping[str, Stage] = {"score": _score}
