from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.plugins import Cycle
from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.lib.trimaran import LoadStats
from engine.plugins.low_risk_over_commitment import (
    COMMITTED,
    LowRiskOverCommitmentArgs,
    LowRiskOverCommitmentScore,
    Totals,
    distribution,
    fitted,
    greatest_variance,
    limit_risk,
    load_risk,
    totals,
)
from tests.engine.measured_cluster import GI, NOW, by_node, cluster, node, pod, report

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.model.usage import NodeUsage


def column(*values: float) -> FloatColumn:
    return np.array(values, np.float64)


def test_a_flat_distribution_is_its_argument() -> None:
    x = column(0, 0.25, 0.5, 1)
    assert distribution(x, column(1, 1, 1, 1), column(1, 1, 1, 1)).tolist() == pytest.approx(x)


@settings(max_examples=100)
@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 99))
def test_with_whole_parameters_it_is_a_binomial_tail(alpha: int, beta: int, percent: int) -> None:
    # P(X <= x) = P(at least alpha of alpha + beta - 1 trials succeed with probability x).
    x, trials = Fraction(percent, 100), alpha + beta - 1
    tail = sum(
        comb(trials, hits) * x**hits * (1 - x) ** (trials - hits)
        for hits in range(alpha, trials + 1)
    )
    got = distribution(column(float(x)), column(alpha), column(beta))
    assert got.tolist() == pytest.approx([float(tail)], abs=1e-9)


def test_there_is_no_distribution_without_parameters_and_nothing_outside_its_range() -> None:
    x = column(0.5, 0.5, -0.1, 1.1)
    got = distribution(x, column(0, 2, 2, 2), column(2, -1, 2, 2))
    assert got.tolist() == [0, 0, 0, 0]


@settings(max_examples=100)
@given(st.floats(0.001, 0.999), st.floats(0.0001, 0.99))
def test_a_fit_has_the_moments_it_was_made_from(mean: float, part: float) -> None:
    variance = greatest_variance(column(mean)) * part
    (alpha,), (beta,) = fitted(column(mean), variance)
    total = alpha + beta
    assert alpha / total == pytest.approx(mean)
    assert mean * (1 - mean) / (total + 1) == pytest.approx(variance[0])


def test_a_variance_as_great_as_can_be_or_negative_is_fitted_by_nothing() -> None:
    alpha, beta = fitted(column(0.5, 0.5, 0, 1), column(0.25, -0.1, 0, 0))
    assert alpha.tolist() == beta.tolist() == [0, 0, 0, 0]


def test_the_narrowest_distribution_is_still_a_smooth_step() -> None:
    mean = column(0.5, 0.5, 0.5)
    alpha, beta = fitted(mean, column(1e-30, 1e-30, 0))
    # Its deviation is 0.0005: at 8 of them off the mean there is nothing left to add.
    got = distribution(column(0.496, 0.504, 0.5), alpha, beta)
    assert got.tolist() == pytest.approx([0, 1, 0.5], abs=1e-6)


ONE_CORE = {"cpu": "1", "memory": "1Gi"}


def asked(offered: int, requests: int, limits: int) -> Totals:
    """Return what one resource of one node is asked for, the same with and without a pod."""
    columns = [np.array([[amount]]) for amount in (offered, requests, limits)]
    return Totals(*columns, *columns[1:])


def load(average: float, deviation: float, *, measured: bool = True) -> LoadStats:
    """Return the load of 100 offered."""
    offered, mean, spread = (np.array([[number]]) for number in (100.0, average, deviation))
    return LoadStats(offered, mean, spread, np.array([[measured]]))


def likely(asks: Totals, stats: LoadStats) -> float:
    return float(load_risk(asks, stats, 1)[0, 0])


def scores(one: Pod, pods: list[Pod], the_report: NodeUsage, **args: Any) -> dict[str, int]:  # noqa: ANN401 (any args)
    rule = LowRiskOverCommitmentScore(LowRiskOverCommitmentArgs.model_validate(args))
    view = cluster([node("a", cpu="4", memory="4Gi")], pods, [the_report], [COMMITTED])
    return by_node(view, rule.normalize(rule.score(Cycle(one, view, NOW)).values))


def test_limits_are_a_risk_by_how_much_of_what_may_burst_is_not_there() -> None:
    assert limit_risk(asked(4000, 3000, 5000)).tolist() == [[0.5]]
    assert limit_risk(asked(4000, 3000, 4000)).tolist() == [[0]]


def test_a_steady_load_exceeds_requests_or_does_not() -> None:
    assert likely(asked(100, 50, 200), load(50, 0)) == 0
    assert likely(asked(100, 50, 200), load(51, 0)) == 1
    assert likely(asked(100, 0, 200), load(0, 30)) == 0


def test_an_even_load_exceeds_half_of_what_is_offered_half_of_the_time() -> None:
    assert likely(asked(100, 50, 200), load(50, 20)) == pytest.approx(0.5)


def test_load_beyond_limits_is_ruled_out() -> None:
    # A deviation of 1/sqrt(12) makes it flat: of 0..0.8 that is possible, 0.6..0.8 is a quarter.
    assert likely(asked(100, 60, 80), load(50, 100 / 12**0.5)) == pytest.approx(0.25)
    assert likely(asked(100, 0, 0), load(50, 20)) == 0


def test_a_load_that_hardly_varies_is_a_steady_one() -> None:
    # 60 of 100 are used, never 80: no risk. Upstream sees one of 1 below some 1e-9 %.
    assert likely(asked(100, 80, 200), load(60, 2.5e-10)) == pytest.approx(0)


def test_smoothing_hides_the_square_root_of_its_windows() -> None:
    flat = load(50, 100 / 12**0.5 / 2)
    assert load_risk(asked(100, 60, 200), flat, 4)[0, 0] == pytest.approx(0.4)


def test_a_load_that_is_not_measured_is_no_risk() -> None:
    assert likely(asked(100, 10, 200), load(90, 5, measured=False)) == 0


def test_requests_end_at_what_is_offered_and_limits_start_at_requests() -> None:
    pods = [pod("p", "a", requests={"cpu": "3"}), pod("q", "a", limits={"memory": "6Gi"})]
    view = cluster([node("a", cpu="4", memory="4Gi")], pods, profiles=[COMMITTED])
    got = totals(COMMITTED.of(pod(requests={"cpu": "2", "memory": "1Gi"}).shape), view)
    assert got.requests[:, 0].tolist() == [4000, GI]
    assert got.limits[:, 0].tolist() == [5000, 7 * GI]
    assert got.requests_before[:, 0].tolist() == [3000, 0]
    assert got.limits_before[:, 0].tolist() == [3000, 6 * GI]


def test_the_parts_are_weighed() -> None:
    # Limits of 5 cores with 3 requested of 4: 0.5; the load of 3.2 cores exceeds 2 for certain.
    pods = [pod("p", "a", requests={"cpu": "2"}, limits={"cpu": "4"})]
    busy = report("a", {"cpu": 3200})
    one = pod(requests=ONE_CORE, limits=ONE_CORE)
    assert scores(one, pods, busy) == {"a": 25}
    assert scores(one, pods, busy, riskLimitWeights={"cpu": 1}) == {"a": 50}
    assert scores(one, pods, busy, riskLimitWeights={"cpu": 0}) == {"a": 0}


def test_a_pod_without_wants_and_a_node_without_metrics_get_nothing() -> None:
    idle = report("a", {"cpu": 100})
    assert scores(pod(requests=ONE_CORE), [], idle) == {"a": 100}
    assert scores(pod(requests={"x.com/gpu": "1"}), [], idle) == {"a": 0}
    assert scores(pod(requests=ONE_CORE), [], report("a", None)) == {"a": 0}
    assert scores(pod(requests=ONE_CORE), [], report("a", {})) == {"a": 0}


def test_args_out_of_range_are_the_defaults() -> None:
    args = LowRiskOverCommitmentArgs.model_validate(
        {"smoothingWindowSize": 0, "riskLimitWeights": {"cpu": 1.5, "memory": 1}}
    )
    assert args.smoothing_window_size == 5
    assert args.risk_limit_weights == {"cpu": 0.5, "memory": 1}
