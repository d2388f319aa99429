"""What a queue sort is: upstream's relation of two pods, and keys that order all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias

from engine.model.network import AppGroup
from engine.model.pod import Pod

AppGroups: TypeAlias = Callable[[str], AppGroup | None]
"""Finds the AppGroup of a name, None where there is none."""

SortKey: TypeAlias = tuple[int | str | datetime, ...]
"""Compared field by field, the least first; keys of one sort have the same fields."""

_ZERO_TIME: Final = datetime.min.replace(tzinfo=UTC)


class QueueSort(Protocol):
    """A queue sort; upstream's moment of queueing is the creation of the pod."""

    def less(self, first: Pod, second: Pod) -> bool:
        """Return whether upstream puts `first` before `second`; not always an order."""

    def keys(self, pods: Sequence[Pod]) -> list[SortKey]:
        """Return a key for each pod; equal keys only where upstream tells no difference."""


def queued_at(pod: Pod) -> datetime:
    """Return the creation of a pod; of one that is not stored Go's zero time."""
    return pod.created or _ZERO_TIME
