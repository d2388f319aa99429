"""The usage one pod is expected to have, and how long that is believed over its measurements.

Source: Koordinator, pkg/scheduler/plugins/loadaware (estimator/default_estimator.go,
pod_assign_cache.go).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model.pod_shape import PodShape, PriorityClass
from engine.model.resources import Amounts
from engine.model.shape_cache import cached_by_shape
from engine.model.time import SECOND
from engine.view import capped

_TRANSLATED: Mapping[PriorityClass, Mapping[str, str]] = {
    PriorityClass.MID: {"cpu": "kubernetes.io/mid-cpu", "memory": "kubernetes.io/mid-memory"},
    PriorityClass.BATCH: {
        "cpu": "kubernetes.io/batch-cpu",
        "memory": "kubernetes.io/batch-memory",
    },
    PriorityClass.FREE: {},
}
"""The name under which a class requests a resource; production uses the plain name."""

_DEFAULTS = {
    "cpu": 250,
    "memory": 200 * 1024 * 1024,
    "kubernetes.io/batch-cpu": 250,
    "kubernetes.io/batch-memory": 200 * 1024 * 1024,
}
"""The estimate of a pod without request and limit: millicores and bytes, not scaled."""

_LONGEST_WINDOW = 10**10  # seconds; keeps moments within int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimation:
    """The arguments of LoadAware that estimates depend on.

    Attributes:
        known: resource names, sorted.
        factors: estimation factor in percent by resource name.
        seconds_after_scheduled: forced estimation window, 0 for none.
        seconds_after_initialized: forced estimation window, 0 for none.
        customize: whether a pod's own annotations are honoured.
    """

    known: tuple[str, ...]
    factors: tuple[tuple[str, int], ...]
    seconds_after_scheduled: int = 0
    seconds_after_initialized: int = 0
    customize: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.known, self.factors)))

    def __hash__(self) -> int:
        return self._hash  # needed several times in each decision


@cached_by_shape
def estimate(shape: PodShape, estimation: Estimation) -> Amounts:
    """Return the expected usage of a pod of this shape, for every resource with a factor.

    The greater of limit and request, scaled and never above the limit; of a pod that is being
    resized in place, by its specification alone. The pod's own factors, where honoured, win over
    the arguments and may add resources.
    """
    factors = dict(estimation.factors)
    if estimation.customize and shape.scaling_factors:
        factors.update(shape.scaling_factors)
    translated = _TRANSLATED.get(shape.priority_class)
    return {
        name: _estimated(shape, name if translated is None else translated.get(name, ""), factor)
        for name, factor in factors.items()
    }


@cached_by_shape
def estimate_vector(shape: PodShape, estimation: Estimation) -> tuple[int, ...]:
    """Return the estimate of the known resources, in their order."""
    estimated = estimate(shape, estimation)
    return tuple(estimated.get(name, 0) for name in estimation.known)


def windows(estimation: Estimation, shape: PodShape) -> tuple[int, int]:
    """Return the forced estimation windows after PodScheduled and Initialized, microseconds.

    0 stands for none. A window of the pod's own replaces that of the arguments, also by none.
    """
    scheduled, initialized = (
        estimation.seconds_after_scheduled,
        estimation.seconds_after_initialized,
    )
    if estimation.customize and shape.seconds_after_scheduled is not None:
        scheduled = shape.seconds_after_scheduled
    if estimation.customize and shape.seconds_after_initialized is not None:
        initialized = shape.seconds_after_initialized
    return _window(scheduled), _window(initialized)


def deadline(
    assigned_at: int, initialized_at: int, after_scheduled: int, after_initialized: int
) -> int | None:
    """Return the moment until which a pod's estimate is believed, None when no window applies.

    A window after Initialized, once it has begun, makes that after PodScheduled void: the latter
    may be long, to wait for slow init containers.

    Args:
        assigned_at: microseconds since the epoch.
        initialized_at: microseconds since the epoch, 0 if the pod is not initialized.
        after_scheduled: window in microseconds, 0 for none.
        after_initialized: window in microseconds, 0 for none.
    """
    if after_initialized > 0 and initialized_at:
        return initialized_at + after_initialized
    return assigned_at + after_scheduled if after_scheduled > 0 else None


def _window(seconds: int) -> int:
    return min(max(seconds, 0), _LONGEST_WINDOW) * SECOND


def _estimated(shape: PodShape, name: str, factor: int) -> int:
    """Return the estimate of one resource, requested under `name`."""
    limit = shape.spec_limits.get(name, 0)
    wanted = max(limit, shape.spec_requests.get(name, 0))
    if wanted == 0:
        return _DEFAULTS.get(name, 0)
    scaled = _rounded(float(wanted) * float(factor) / 100)
    if 0 < limit < scaled:
        scaled = limit
    return capped(scaled)


def _rounded(value: float) -> int:
    """Return Go's `math.Round`: half away from zero."""
    whole = math.trunc(value)
    return whole + int(math.copysign(abs(value - whole) >= 0.5, value))  # noqa: PLR2004 (a half)
