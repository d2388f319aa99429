"""TargetLoadPacking: final scores, and where pods go that come one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.plugins.target_load_packing import PLUGIN
from tests.conformance.load_watcher import LAST_LOAD, placements, scores
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _score(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"score": scores(case, PLUGIN, LAST_LOAD)})


def _placed(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"placed": placements(case, PLUGIN, LAST_LOAD)})


STAGES: Mapping[str, Stage] = {"e2e": _placed, "score": _score}
