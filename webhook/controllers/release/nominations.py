"""Where held and released pods count: nominations ahead of the watch, and what the watch shows.

A pod counts on one node at most. Releases, gangs and evictions ask here, whoever of them nominates
it; what they write on the pod goes by `PodWriter`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from engine.model.hold import HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.release import HeldPod, HeldPodRecord, HeldPodRegistry
from engine.view import ClusterState
from webhook.controllers.release.pod_writer import is_tried_in_vain
from webhook.placement.held_pods import HeldPods

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Nominations:
    """The nodes that held pods count on in the view."""

    state: ClusterState  # the view's
    held: HeldPods  # the pods that are held
    pods: HeldPodRegistry  # the records of these, and of the released ones

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Count a pod on a node, in place of the one that it counted on; "" for none.

        A pod that was withdrawn in between still names the node of its last nomination.
        """
        before = self.state.assumed_node(pod.key) or pod.nominated_node_name
        if node_name and before not in {"", node_name}:
            _log.info("pod `%s` is nominated to `%s`, not to `%s`", pod.key, node_name, before)
        self._count(pod, node_name)

    def withdraw(self, pod: Pod) -> None:
        """Count a pod on no node."""
        self._count(pod, "")

    def follow(self, held: HeldPod) -> None:
        """Count a pod on the node that the watch shows it nominated to, if any."""
        now = self.held.now(held)
        self._count(held.pod, "" if now is None else now.pod.nominated_node_name)

    @contextmanager
    def set_aside(self, pods: Sequence[HeldPod]) -> Iterator[None]:
        """Count pods on no node for a moment: they compete with others, not with themselves."""
        nodes = {held.key: self.state.assumed_node(held.key) for held in pods}
        counted = [(held.pod, nodes[held.key]) for held in pods if nodes[held.key]]
        for pod, _ in counted:
            self._count(pod, "")
        try:
            yield
        finally:
            for pod, node_name in counted:
                self._count(pod, node_name)

    def _count(self, pod: Pod, node_name: str) -> None:
        """Count a pod, unless another one has its name by now: the view knows pods by names."""
        known = self.held.get(pod.key) or self.pods.by_key(pod.key)
        if known is None or known.pod.uid == pod.uid:
            self.state.nominate(pod.key, node_name)
        else:
            _log.info("pod `%s` is another one by now: it keeps its nomination", pod.key)


@dataclass(kw_only=True, eq=False)
class ReleasedPods:
    """An observer that moves the records of pods which were released."""

    clock: Callable[[], float] = time.monotonic  # seconds that only go forward

    def __post_init__(self) -> None:
        self.pods = HeldPodRegistry()  # the records of all held and released pods
        # set whenever a pod counts as released no longer; to be cleared by whom it wakes
        self.changed = asyncio.Event()

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
        record.nomination_seen(nominated_node, self.clock())
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
