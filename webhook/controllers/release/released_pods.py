"""Released pods until they are bound, as the watch of one replica shows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from engine.model.hold import HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.release import HeldPodRecord, HeldPodRegistry
from webhook.controllers.release.pod_writer import is_tried_in_vain


class ReleasedPods:
    """An observer that moves the records of pods which were released.

    Args:
        clock: seconds that only go forward.

    Attributes:
        pods: the records of all held and released pods.
        changed: set whenever a pod counts as released no longer; to be cleared by whom it wakes.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.pods = HeldPodRegistry()
        self.changed = asyncio.Event()
        self._clock = clock

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Note that a pod is bound or has no node, or that it is none of ours any more."""
        nominated_node = pod.nominated_node_name if _is_nominated_by_us(pod) else ""
        record = self.pods.find(pod)
        if record is None:
            self._end(self.pods.by_key(pod.key))  # that was another pod of the name
            if not nominated_node:
                return
            record = self.pods.of_pod(pod)
        record.pod = pod
        record.nomination_seen(nominated_node, self._clock())
        if pod.node_name or pod.is_terminal or pod.deleting:
            self._end(record)
        elif record.keeps_order and not pod.gated and is_tried_in_vain(bytes(raw)):
            record.scheduler_tried_in_vain()
            self.changed.set()
        self.pods.forget_if_idle(record)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Note that a pod is gone."""
        self._end(self.pods.by_key(f"{namespace}/{name}"))

    def _end(self, record: HeldPodRecord | None) -> None:
        if record is not None:
            if record.released_at is not None:
                self.changed.set()
            self.pods.ended(record.pod.key)


def _is_nominated_by_us(pod: Pod) -> bool:
    """Return whether a pod that is released and not bound is nominated as we left it.

    Whoever released it: the deadman and kubectl note no node.
    """
    nominated = pod.nominated_node_name
    if not nominated or pod.node_name or pod.gated or pod.is_terminal or pod.deleting:
        return False
    was_held = HOLD_REASONS_ANNOTATION in pod.annotations
    return pod.annotations.get(RELEASED_ANNOTATION, nominated if was_held else "") == nominated
