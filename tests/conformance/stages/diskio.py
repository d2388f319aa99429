"""DiskIOAware: the shares that its two policies score, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.plugins.disk_io_aware import holds, scored_part
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _formula(case: Json, _: Json) -> str | None:
    available, required = np.array([case["available"]], np.int64), case["required"]
    got: Json = {
        "filter": "pass" if holds(available, required)[0] else "reject",
        "leastAllocated": _share(scored_part("LeastAllocated", available, required), available),
        "mostAllocated": _share(scored_part("MostAllocated", available, required), available),
    }
    expected = case["expect"]
    shares = {name: got[name] for name in expected if name != "filter"}
    wrong = mismatch(pytest.approx({name: expected[name] for name in shares}), shares)
    return wrong or mismatch(expected.get("filter", got["filter"]), got["filter"])


def _share(part: np.ndarray, available: np.ndarray) -> float:
    return float(part[0] / available[0]) if available[0] else 0.0


STAGES: Mapping[str, Stage] = {"formula": _formula}
