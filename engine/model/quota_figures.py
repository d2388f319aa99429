"""Annotations of an ElasticQuota that the leader writes for people; no verdict rests on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.model.time import SECOND, Micros

BORROWED_ANNOTATION: Final = "stowplan.dev/borrowed"
"""What its pods use beyond `min`, as JSON."""

LENT_ANNOTATION: Final = "stowplan.dev/lent"
"""What others use of its `min`, as JSON."""

RUNTIME_ANNOTATION: Final = "stowplan.dev/runtime"
"""What its pods may use now, where quotas form a tree; as JSON."""

QUEUED_ANNOTATION: Final = "stowplan.dev/queued"
"""The number of pods that wait for it."""

FREE_ANNOTATION: Final = "stowplan.dev/free"
"""What is left of what its first pod lacks, as JSON."""

BLOCKED_BY_ANNOTATION: Final = "stowplan.dev/blocked-by"
"""The quotas that borrow it, `namespace/name`, separated by commas."""

SECONDS_PER_RELEASE_ANNOTATION: Final = "stowplan.dev/seconds-per-release"
"""The mean time between two releases of pods that had to wait for it."""

FIGURE_ANNOTATIONS: Final = (
    BORROWED_ANNOTATION,
    LENT_ANNOTATION,
    RUNTIME_ANNOTATION,
    QUEUED_ANNOTATION,
    FREE_ANNOTATION,
    BLOCKED_BY_ANNOTATION,
    SECONDS_PER_RELEASE_ANNOTATION,
)

_MOST_TEXT: Final = 4_096  # of an annotation that is read: whoever may write quotas may write it
_SECONDS: Final = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)
_amounts_in: Final = msgspec.json.Decoder(dict[str, str]).decode


def release_interval(figures: Mapping[str, str]) -> Micros | None:
    """Return the mean time between two releases, None if nobody knows it."""
    text = figures.get(SECONDS_PER_RELEASE_ANNOTATION, "")
    return Micros(round(float(text) * SECOND)) if _SECONDS.fullmatch(text) else None


def seconds_text(interval: Micros) -> str:
    """Return a time between two releases as `release_interval` reads it, to two digits."""
    seconds = float(f"{interval / SECOND:.2g}")
    return f"{seconds:f}".rstrip("0").rstrip(".")


def free_amounts(figures: Mapping[str, str]) -> Mapping[str, str]:
    """Return what is left of what the first pod lacks, as quantities; nothing if it is unknown."""
    text = figures.get(FREE_ANNOTATION, "")
    if not text or len(text) > _MOST_TEXT:
        return {}
    try:
        return _amounts_in(text)
    except (msgspec.DecodeError, RecursionError):
        return {}


def blocking_quotas(figures: Mapping[str, str]) -> tuple[str, ...]:
    """Return the quotas that borrow what the first pod lacks."""
    text = figures.get(BLOCKED_BY_ANNOTATION, "")
    return tuple(filter(None, text.split(","))) if len(text) <= _MOST_TEXT else ()
