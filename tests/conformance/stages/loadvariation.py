"""LoadVariationRiskBalancing: its scores, and the numbers they are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.plugins.lib.arithmetic import rounded
from engine.plugins.lib.trimaran import RESOURCES, load_stats, share
from engine.plugins.load_variation_risk_balancing import PLUGIN, safety, variation
from tests.conformance.cluster import incoming
from tests.conformance.load_watcher import cluster_of, placements, scores
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.plugins.lib.arithmetic import FloatColumn
    from tests.conformance.outcome import Stage

_MIB = 2**20
_UNITS = {"cpu": 1, "memory": _MIB}
"""What load is told in, in base units."""

_AMOUNTS = {"milliCPU": "cpu", "memory": "memory"}


def _score(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"score": scores(case, PLUGIN)})


def _placed(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"placed": placements(case, PLUGIN)})


def _risk(case: Json, _: Json) -> str | None:
    offered, request, average, deviation = _columns(case["stats"])
    margin, sensitivity = (
        case["args"][name] for name in ("safeVarianceMargin", "safeVarianceSensitivity")
    )
    varying = variation(offered, deviation, margin, sensitivity)
    points = rounded(safety(offered, request, average, varying))
    return mismatch(case["expect"], {"score": int(points[0])})


def _mu_sigma(case: Json, _: Json) -> str | None:
    offered, request, average, deviation = _columns(case["stats"])
    got = {
        "mu": float(share(average + request, offered)[0]),
        "sigma": float(share(deviation, offered)[0]),
    }
    return mismatch(pytest.approx(case["expect"]), got)


def _columns(stats: Json) -> tuple[FloatColumn, ...]:
    names = ("capacity", "request", "usedAvg", "usedStdev")
    return tuple(np.array([stats[name]], np.float64) for name in names)


def _resource_stats(case: Json, _: Json) -> str | None:
    name = case["resource"]
    row, unit = RESOURCES.index(name), _UNITS[name]
    stats = load_stats(cluster_of(case, ()))
    got = {
        "capacity": stats.offered[row, 0] / unit,
        "request": incoming(case).shape.peak_requests.get(name, 0) / unit,
        "usedAvg": stats.average[row, 0] / unit,
        "usedStdev": stats.deviation[row, 0] / unit,
    }
    expected = case["expect"]["stats"]
    if not stats.is_measured[row, 0]:
        return mismatch(expected, None)
    return mismatch(None if expected is None else pytest.approx(expected), got)


def _pod_request(case: Json, _: Json) -> str | None:
    shape = incoming(case).shape
    sides = {"request": shape.peak_requests, "limit": shape.peak_limits}
    got = {
        side: {key: sides[side].get(name, 0) for key, name in _AMOUNTS.items()}
        for side in case["expect"]
    }
    return mismatch(case["expect"], got)


STAGES: Mapping[str, Stage] = {
    "e2e": _placed,
    "mu-sigma": _mu_sigma,
    "pod-request": _pod_request,
    "resource-stats": _resource_stats,
    "risk": _risk,
    "score": _score,
}
