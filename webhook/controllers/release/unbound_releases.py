"""Pods that were released and are not bound yet, and nominations of ours that were not followed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from engine.model.hold import HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from engine.model.pod import Pod
from webhook.controllers.release.release_patch import is_tried_in_vain

_LOST_SECONDS: Final = 60.0
_MOST_STALE: Final = 100
"""Nominations that are withdrawn at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A pod as it was released.

    Attributes:
        key: `namespace/name`.
        uid: of the pod.
        scheduler_name: of its scheduler.
        is_in_order: whether the next pod of an order waits until it is bound.
    """

    key: str
    uid: str
    scheduler_name: str
    is_in_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """The nomination of a pod that has no gates any more.

    Attributes:
        namespace: of the pod.
        name: of the pod.
        uid: of the pod.
        node_name: the nominated node.
    """

    namespace: str
    name: str
    uid: str
    node_name: str


class UnboundReleases:
    """Released pods that are not bound yet; an observer of pods.

    Args:
        lost_seconds: after which a pod that is not bound is lost.
        clock: seconds that only go forward.

    Attributes:
        changed: set whenever a pod counts no longer; to be cleared by whom it wakes.
    """

    def __init__(
        self,
        *,
        lost_seconds: float = _LOST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = asyncio.Event()
        self._lost_seconds = lost_seconds
        self._clock = clock
        self._by_key: dict[str, tuple[Release, float]] = {}  # oldest first
        self._in_order: dict[str, Release] = {}  # by key, those that others wait for
        self._nominations: dict[str, tuple[Nomination, float]] = {}  # oldest first

    def __len__(self) -> int:
        """Return the number of released pods that are not bound."""
        return len(self._by_key)

    def keys(self) -> Iterable[str]:
        """Return the keys of the released pods that are not bound."""
        return self._by_key.keys()

    def schedulers_in_order(self) -> set[str]:
        """Return the schedulers of which the next pod of an order has to wait."""
        return {release.scheduler_name for release in self._in_order.values()}

    def add(self, release: Release) -> None:
        """Count a pod; to be called before the write, as its binding may be seen before the answer.

        A write that fails is taken back by `discard`, but for one without an answer.
        """
        self.discard(release.key)
        self._by_key[release.key] = release, self._clock()
        if release.is_in_order:
            self._in_order[release.key] = release

    def discard(self, key: str) -> None:
        """Count a pod no longer."""
        if self._by_key.pop(key, None) is not None:
            self._in_order.pop(key, None)
            self.changed.set()

    def clear(self) -> None:
        """Forget all releases, as a replica does that begins to lead; nominations stay."""
        self._by_key.clear()
        self._in_order.clear()

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Note that a pod is bound or has no node, or that it is none of ours any more."""
        self._note_nomination(pod)
        counted = self._by_key.get(pod.key)
        if counted is None:
            return
        if pod.uid != counted[0].uid or pod.node_name or pod.is_terminal or pod.deleting:
            self.discard(pod.key)
        elif pod.key in self._in_order and not pod.gated and is_tried_in_vain(bytes(raw)):
            del self._in_order[pod.key]
            self.changed.set()

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Note that a pod is gone."""
        key = f"{namespace}/{name}"
        self._nominations.pop(key, None)
        self.discard(key)

    def take_lost(self) -> Sequence[Release]:
        """Return the pods that are not bound after the time they have; they count no longer."""
        before = self._clock() - self._lost_seconds
        lost = []
        for release, since in self._by_key.values():
            if since > before:
                break  # the others are younger
            lost.append(release)
        for release in lost:
            self.discard(release.key)
        return lost

    def take_stale_nominations(self) -> Sequence[Nomination]:
        """Return nominations of ours that were not followed in the time that a released pod has.

        Each is returned again after the same time, for as long as it is seen: the write that
        withdraws it may fail, and a leader may end before it.
        """
        now = self._clock()
        stale = [
            (key, nomination)
            for key, (nomination, since) in islice(self._nominations.items(), _MOST_STALE)
            if now - since >= self._lost_seconds
        ]
        for key, nomination in stale:
            del self._nominations[key]
            self._nominations[key] = nomination, now
        return [nomination for _, nomination in stale]

    def _note_nomination(self, pod: Pod) -> None:
        """Note the nomination of a pod, or that it has none of ours any more."""
        if not (pod.nominated_node_name or self._nominations):
            return
        if not _is_nominated_by_us(pod):
            self._nominations.pop(pod.key, None)
            return
        nomination = Nomination(
            namespace=pod.namespace, name=pod.name, uid=pod.uid, node_name=pod.nominated_node_name
        )
        known = self._nominations.get(pod.key)
        if known is None or known[0] != nomination:
            self._nominations.pop(pod.key, None)
            self._nominations[pod.key] = nomination, self._clock()


def _is_nominated_by_us(pod: Pod) -> bool:
    """Return whether a pod that is released and not bound is nominated as we left it.

    Whoever released it: the deadman and kubectl note no node.
    """
    nominated = pod.nominated_node_name
    if not nominated or pod.node_name or pod.gated or pod.is_terminal or pod.deleting:
        return False
    was_held = HOLD_REASONS_ANNOTATION in pod.annotations
    return pod.annotations.get(RELEASED_ANNOTATION, nominated if was_held else "") == nominated
