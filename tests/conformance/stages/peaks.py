"""Peaks: the cost of each node put on the scale, and final scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.plugins.peaks import PLUGIN, PeaksArgs, PeaksScore
from tests.conformance.load_watcher import FIRST_LOAD, scores
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage

_ANY_MODEL = PeaksArgs.model_validate({"nodePowerModel": {"any": {}}})


def _score(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"score": scores(case, PLUGIN, FIRST_LOAD)})


def _normalize(case: Json, _: Json) -> str | None:
    raw = case["raw"]
    points = PeaksScore(_ANY_MODEL).normalize(np.array(list(raw.values()), np.int64)).tolist()
    return mismatch(case["expect"], {"score": dict(zip(raw, points, strict=True))})


STAGES: Mapping[str, Stage] = {"normalize": _normalize, "score": _score}
