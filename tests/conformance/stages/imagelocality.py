"""ImageLocality: its scores, and how it completes the names of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.plugins import Cycle
from engine.plugins.image_locality import (
    ImageLocalityScore,
    normalized_image_name,
)
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _score(case: Json, _: Json) -> str | None:
    view = cluster_of(case)
    rule = ImageLocalityScore()
    values = rule.normalize(rule.score(Cycle(incoming(case), view, NOW)).values).tolist()
    return mismatch(case["expect"], {"score": dict(zip(view.names, values, strict=True))})


def _normalize_name(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"image": normalized_image_name(case["args"]["image"])})


STAGES: Mapping[str, Stage] = {"normalize-image-name": _normalize_name, "score": _score}
