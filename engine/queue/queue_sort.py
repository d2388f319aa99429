"""What a queue sort is: upstream's relation of two pods, and keys that order all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias

from engine.gang import Gang, GangKey
from engine.model.network import AppGroup
from engine.model.pod import Pod

AppGroups: TypeAlias = Callable[[str], AppGroup | None]
"""Finds the AppGroup of a name, None where there is none."""

SortKey: TypeAlias = tuple[int | str | datetime, ...]
"""Compared field by field, the least first; keys of one sort have the same fields."""


def _no_app_group(_: str) -> AppGroup | None:
    return None


def _no_gang(_: Pod) -> Gang | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What queue sorts know besides the pods.

    Attributes:
        app_group: finds an AppGroup by the name in a label of its pods.
        gang: finds the gang of a pod.
        failed_at: when gangs that have not started since failed last.
    """

    app_group: AppGroups = _no_app_group
    gang: Callable[[Pod], Gang | None] = _no_gang
    failed_at: Mapping[GangKey, datetime] = field(default_factory=dict)


_ZERO_TIME: Final = datetime.min.replace(tzinfo=UTC)


class QueueSort(Protocol):
    """A queue sort; upstream's moment of queueing is the creation of the pod."""

    def less(self, first: Pod, second: Pod) -> bool:
        """Return whether upstream puts `first` before `second`; not always an order."""

    def keys(self, pods: Sequence[Pod]) -> list[SortKey]:
        """Return a key for each pod; equal keys only where upstream tells no difference."""


def queued_at(queued: Pod | Gang) -> datetime:
    """Return the creation of a pod or gang; of one that is not stored Go's zero time."""
    return queued.created or _ZERO_TIME
