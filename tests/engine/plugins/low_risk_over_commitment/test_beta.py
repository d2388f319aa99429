from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.low_risk_over_commitment.beta import distribution, fitted, greatest_variance


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
