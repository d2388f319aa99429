"""When reviews are due, in seconds after the beginning."""

from __future__ import annotations

import random

import numpy as np

from tests.bench.load.messages import Arrival, Phase

_ROLLOUT_SHAPE = (
    1.2  # of the Pareto distribution of their sizes, as that of the generated workloads
)
_LARGEST_ROLLOUT = 500
_BETWEEN_PODS_SECONDS = 0.001


def moments(phase: Phase, seed: int = 1) -> list[float]:
    """Return when each review of a phase is due, in order; empty where answers set the pace."""
    count = round(phase.rate * phase.seconds)
    if phase.arrival is Arrival.EVEN:
        return [number / phase.rate for number in range(count)]
    if phase.arrival is Arrival.RANDOM:
        due = np.random.default_rng(seed).uniform(0, phase.seconds, count)
        return [float(one) for one in np.sort(due)]
    if phase.arrival is Arrival.BURST:
        return sorted(_rollouts(phase.seconds, count, random.Random(seed)))
    return []


def _rollouts(seconds: float, count: int, chance: random.Random) -> list[float]:
    due: list[float] = []
    while len(due) < count:
        size = min(int(3 * chance.paretovariate(_ROLLOUT_SHAPE)), _LARGEST_ROLLOUT)
        length = size * _BETWEEN_PODS_SECONDS
        start = chance.uniform(0, seconds - length)
        due += [start + ordinal * _BETWEEN_PODS_SECONDS for ordinal in range(size)]
    return due[:count]
