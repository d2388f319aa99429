"""The beta distribution, on whole columns: what load between nothing and all is fitted with.

The distribution function is the regularised incomplete beta function, evaluated by its continued
fraction (NIST Digital Library of Mathematical Functions, 8.17.22) with the modified method of
Lentz, on the side where that converges fast.
"""

from __future__ import annotations

import math

import numpy as np

from engine.plugins.lib.arithmetic import FloatColumn

_PRECISION = 1e-10
_MOST_TERMS = 2_000
_TINY = 1e-300
_SHARPEST = 1e6
"""The greatest alpha + beta. Narrower than a deviation of 0.0005 nothing is measured, and the
continued fraction takes as many terms as the root of this."""


def greatest_variance(mean: FloatColumn) -> FloatColumn:
    """Return what the variance of a distribution on 0..1 stays below, 0 for a mean at its ends."""
    return np.where((mean > 0) & (mean < 1), mean * (1 - mean), 0.0)


def fitted(mean: FloatColumn, variance: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """Return alpha and beta of the distributions with these moments, 0 where there is none."""
    most = greatest_variance(mean)
    exists = (variance >= 0) & (variance < most)
    least = most / (_SHARPEST + 1)
    ratio = np.divide(most, np.maximum(variance, least), out=np.ones_like(most), where=exists)
    total = ratio - 1
    return mean * total, (1 - mean) * total


def distribution(x: FloatColumn, alpha: FloatColumn, beta: FloatColumn) -> FloatColumn:
    """Return the probability of at most `x`; 0 where alpha or beta is none, or x not in 0..1."""
    probability = np.where((alpha > 0) & (beta > 0) & (x >= 1), 1.0, 0.0)
    probability[x > 1] = 0
    (inside,) = np.nonzero((alpha > 0) & (beta > 0) & (x > 0) & (x < 1))
    if not inside.size:
        return probability
    x, alpha, beta = x[inside], alpha[inside], beta[inside]
    # Beyond its mean the function of x is 1 less that of 1 - x, whose fraction converges fast.
    mirrored = x > (alpha + 1) / (alpha + beta + 2)
    x = np.where(mirrored, 1 - x, x)
    alpha, beta = np.where(mirrored, (beta, alpha), (alpha, beta))
    lower = np.exp(_log_front(x, alpha, beta)) * _continued_fraction(x, alpha, beta)
    probability[inside] = np.clip(np.where(mirrored, 1 - lower, lower), 0, 1)
    return probability


def _log_front(x: FloatColumn, alpha: FloatColumn, beta: FloatColumn) -> FloatColumn:
    """Return the logarithm of x^alpha * (1-x)^beta / (alpha * B(alpha, beta))."""
    return (
        alpha * np.log(x)
        + beta * np.log1p(-x)
        - np.log(alpha)
        + _log_gamma(alpha + beta)
        - _log_gamma(alpha)
        - _log_gamma(beta)
    )


def _log_gamma(values: FloatColumn) -> FloatColumn:
    return np.array([math.lgamma(value) for value in values.tolist()], np.float64)


def _continued_fraction(x: FloatColumn, alpha: FloatColumn, beta: FloatColumn) -> FloatColumn:
    """Return the continued fraction of the incomplete beta function."""
    total = alpha + beta
    numerator = np.ones_like(x)
    inverse = 1 / _not_zero(1 - total * x / (alpha + 1))
    value = inverse.copy()
    for term in range(1, _MOST_TERMS):
        at = alpha + 2 * term
        even = term * (beta - term) * x / ((at - 1) * at)
        odd = -(alpha + term) * (total + term) * x / (at * (at + 1))
        step = np.ones_like(x)
        for coefficient in (even, odd):
            inverse = 1 / _not_zero(1 + coefficient * inverse)
            numerator = _not_zero(1 + coefficient / numerator)
            step *= inverse * numerator
        value *= step
        if np.abs(step - 1).max() < _PRECISION:
            break
    return value


def _not_zero(values: FloatColumn) -> FloatColumn:
    return np.where(np.abs(values) < _TINY, _TINY, values)
