"""Held pods that no node takes, for which pods of lower priority may be evicted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from engine.model.queued_condition import QueuedReason
from webhook.controllers.release.reclaims import BlockedPod
from webhook.placement.held_pods import HeldPod

_LOOK_AGAIN_SECONDS: Final = 2.0
"""Between two decisions for one pod that no node takes."""


class Preemptors:
    """The held pods whose policies evict others for them, while no node takes them.

    Args:
        is_enabled: whether anybody may be evicted for them.
        clock: seconds that only go forward.
    """

    def __init__(
        self, *, is_enabled: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self.is_enabled: Final = is_enabled
        self._kept: dict[str, tuple[HeldPod, float]] = {}  # by uid, with when to look again

    def __contains__(self, held: object) -> bool:
        """Whether a held pod waits for others to be evicted."""
        return isinstance(held, HeldPod) and held.pod.uid in self._kept

    def keep(self, held: HeldPod) -> None:
        """Note that no node takes a pod, which stays held."""
        self._kept[held.pod.uid] = held, self._clock() + _LOOK_AGAIN_SECONDS

    def rests(self, held: HeldPod) -> bool:
        """Return whether a pod is not to be decided again yet."""
        known = self._kept.get(held.pod.uid)
        return known is not None and self._clock() < known[1]

    def retain(self, ordered: Iterable[HeldPod]) -> None:
        """Forget all but some pods, in the queue order."""
        if self._kept:
            kept = self._kept
            self._kept = {
                held.pod.uid: (held, kept[held.pod.uid][1])
                for held in ordered
                if held.pod.uid in kept
            }

    def blocked(self) -> list[BlockedPod]:
        """Return the pods that wait for a node, in the queue order."""
        return [
            BlockedPod(held, QueuedReason.WAITING_FOR_CAPACITY) for held, _ in self._kept.values()
        ]
