"""LowRiskOverCommitment: its scores, and the numbers they are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from engine.plugins.lib.trimaran import RESOURCES, load_stats
from engine.plugins.low_risk_over_commitment import (
    COMMITTED,
    PLUGIN,
    LowRiskOverCommitmentArgs,
    Totals,
    combined,
    distribution,
    fitted,
    greatest_variance,
    limit_risk,
    load_risk,
    totals,
)
from tests.conformance.cluster import incoming
from tests.conformance.load_watcher import cluster_of, placements, scores
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.plugins.lib.arithmetic import FloatColumn
    from tests.conformance.outcome import Stage

_TOLERANCE = 1e-6
_FIELDS = {
    "nodeCapacity": "offered",
    "nodeRequest": "requests",
    "nodeLimit": "limits",
    "nodeRequestMinusPod": "requests_before",
    "nodeLimitMinusPod": "limits_before",
}
_AMOUNTS = ("milliCPU", "memory")  # of RESOURCES


def _score(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"score": scores(case, PLUGIN)})


def _placed(case: Json, _: Json) -> str | None:
    return mismatch(case["expect"], {"placed": placements(case, PLUGIN)})


def _risk(case: Json, _: Json) -> str | None:
    args = LowRiskOverCommitmentArgs.model_validate(case["args"])
    asked = Totals(
        **{
            field: np.array([[case["totals"][key][amount]] for amount in _AMOUNTS])
            for key, field in _FIELDS.items()
        }
    )
    load = load_risk(asked, load_stats(cluster_of(case, (COMMITTED,))), args.smoothing_window_size)
    row = RESOURCES.index(case["resource"])
    weight = np.array([args.risk_limit_weights.get(case["resource"], 0.5)])
    risk = combined(limit_risk(asked)[row], load[row], weight)
    return mismatch(pytest.approx(case["expect"]["risk"]), float(risk[0]))


def _node_totals(case: Json, _: Json) -> str | None:
    own = COMMITTED.of(incoming(case).shape)
    asked = totals(own, cluster_of({"metrics": _NO_METRICS} | case, (COMMITTED,)))
    got = {
        key: dict(zip(_AMOUNTS, getattr(asked, field)[:, 0].tolist(), strict=True))
        for key, field in _FIELDS.items()
    }
    return mismatch(case["expect"], {"totals": got})


def _beta(case: Json, _: Json) -> str | None:
    got: dict[str, Any] = {}
    for name in case["expect"]:
        match name:
            case "cdf":
                column = distribution(*_columns(case["x"], case["alpha"], case["beta"]))
                got[name] = float(column[0])
            case "valid":
                got[name] = bool(_moment(case, 0) == 1)
            case "matchMoments":
                mean, square = _columns(case["m1"], case["m2"])
                got[name] = bool(fitted(mean, square - mean**2)[0][0] > 0)
            case "maxVariance":
                got[name] = float(greatest_variance(*_columns(case["mean"]))[0])
            case _:
                got[name] = _moment(case, int(name.removeprefix("m")))
    return mismatch(pytest.approx(case["expect"], abs=_TOLERANCE), got)


def _moment(case: Json, order: int) -> float:
    """Return a raw moment of the distribution, from its distribution function.

    By parts it is 1 less the integral of `order * x^(order-1) * distribution(x)` over 0..1, taken
    at the nodes of Gauss and Legendre. That of order 0 is the whole probability.
    """
    if not order:
        return float(distribution(*_columns(1.0, case["alpha"], case["beta"]))[0])
    at, weights = np.polynomial.legendre.leggauss(64)
    x = (at + 1) / 2
    alpha, beta = (np.full_like(x, case[name]) for name in ("alpha", "beta"))
    density = order * x ** (order - 1) * distribution(x, alpha, beta)
    return 1 - float((weights * density).sum()) / 2


def _columns(*numbers: float) -> tuple[FloatColumn, ...]:
    return tuple(np.array([number], np.float64) for number in numbers)


_NO_METRICS: Json = {"window": {"end": 0}, "data": {"NodeMetricsMap": None}}

STAGES: Mapping[str, Stage] = {
    "beta": _beta,
    "e2e": _placed,
    "node-totals": _node_totals,
    "risk": _risk,
    "score": _score,
}
