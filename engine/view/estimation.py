"""What one pod is expected to use, and for how long that is believed over its measurements.

Source: Koordinator, pkg/scheduler/plugins/loadaware (estimator/default_estimator.go,
pod_assign_cache.go).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.model.pod import PriorityClass
from engine.model.time import SECOND
from engine.view.axis import capped

if TYPE_CHECKING:
    from engine.model.pod import PodShape
    from engine.model.resources import Amounts
    from engine.view.load import LoadProfile

_TRANSLATED: Mapping[PriorityClass, Mapping[str, str]] = {
    PriorityClass.MID: {"cpu": "kubernetes.io/mid-cpu", "memory": "kubernetes.io/mid-memory"},
    PriorityClass.BATCH: {
        "cpu": "kubernetes.io/batch-cpu",
        "memory": "kubernetes.io/batch-memory",
    },
    PriorityClass.FREE: {},
}
"""Under which name a class asks for a resource; production asks for it as it is called."""

_DEFAULTS = {
    "cpu": 250,
    "memory": 200 * 1024 * 1024,
    "kubernetes.io/batch-cpu": 250,
    "kubernetes.io/batch-memory": 200 * 1024 * 1024,
}
"""The estimate of a pod that asks for none: millicores and bytes, not scaled by any factor."""

_SHAPES_REMEMBERED = 4096
_LONGEST_WINDOW = 10**10  # seconds; keeps moments within int64


@lru_cache(maxsize=_SHAPES_REMEMBERED)
def estimate(profile: LoadProfile, shape: PodShape) -> Amounts:
    """Return what a pod of this shape is expected to use, for every resource with a factor.

    The greater of limit and request, scaled and never above the limit. The pod's own factors,
    where honoured, win over those of the profile and may add resources.
    """
    factors = dict(profile.factors)
    if profile.customize and shape.scaling_factors:
        factors.update(shape.scaling_factors)
    translated = _TRANSLATED.get(shape.priority_class)
    return {
        name: _estimated(shape, name if translated is None else translated.get(name, ""), factor)
        for name, factor in factors.items()
    }


@lru_cache(maxsize=_SHAPES_REMEMBERED)
def estimate_vector(profile: LoadProfile, shape: PodShape) -> tuple[int, ...]:
    """Return the estimate of the known resources, in their order."""
    estimated = estimate(profile, shape)
    return tuple(estimated.get(name, 0) for name in profile.known)


def windows(profile: LoadProfile, shape: PodShape) -> tuple[int, int]:
    """Return the forced estimation windows after PodScheduled and Initialized, microseconds.

    0 stands for none. A window of the pod's own replaces the profile's, also by none.
    """
    scheduled, initialized = profile.seconds_after_scheduled, profile.seconds_after_initialized
    if profile.customize and shape.seconds_after_scheduled is not None:
        scheduled = shape.seconds_after_scheduled
    if profile.customize and shape.seconds_after_initialized is not None:
        initialized = shape.seconds_after_initialized
    return _window(scheduled), _window(initialized)


def deadline(
    assigned_at: int, initialized_at: int, after_scheduled: int, after_initialized: int
) -> int | None:
    """Return until when a pod's estimate is believed, None when no window applies.

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
    """Return the estimate of one resource, asked for under `name`."""
    limit = shape.limits.get(name, 0)
    asked = max(limit, shape.requests.get(name, 0))
    if asked == 0:
        return _DEFAULTS.get(name, 0)
    scaled = _rounded(float(asked) * float(factor) / 100)
    if 0 < limit < scaled:
        scaled = limit
    return capped(scaled)


def _rounded(value: float) -> int:
    """Return Go's `math.Round`: half away from zero."""
    whole = math.trunc(value)
    return whole + int(math.copysign(abs(value - whole) >= 0.5, value))  # noqa: PLR2004 (a half)
