"""The pods that wait for the scheduler, as far as a decision needs them."""

from __future__ import annotations

from typing import Final

import msgspec

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.request import PlacementRequest
from engine.release import creation_of
from webhook.placement.advice_limits import MOST_BYTES

_MOST_BYTES_OF_ALL: Final = 64 * 1024 * 1024  # their models take as much again


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that the scheduler may bind.

    Attributes:
        pod: its model; of one without `raw`, who it is and its shape, and nothing else.
        raw: the object as the API server sent it, which expressions may read any field of. Empty
            where it is too large for a decision, or there is no room for it.
    """

    pod: Pod
    raw: bytes

    @property
    def placement_request(self) -> PlacementRequest:
        """The request to place it: what expressions may read at a binding, see `compile_policy`."""
        return PlacementRequest(pod=self.pod, raw=self.raw, request=creation_of(self.pod))


class WaitingPods:
    """An observer that keeps the pods which nothing but the scheduler keeps from a node.

    Whoever may create pods may create any number that no node takes. So objects are kept within a
    number of bytes, and where these are exceeded, the namespace with the most of them loses those
    that have waited longest: its pods alone, and first those that no scheduler binds. Of the others
    only who they are is kept, about 500 bytes each, and no policy moves them.

    Args:
        most_bytes: of all objects together.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES_OF_ALL) -> None:
        self._most_bytes = most_bytes
        self._waiting: dict[str, dict[str, WaitingPod]] = {}  # by namespace and name, oldest first
        self._without_raw: dict[tuple[str, str], tuple[str, PodShape]] = {}  # uid and shape
        self._bytes: dict[str, int] = {}  # INVARIANT: of the objects in `_waiting`, by namespace
        self._all_bytes = 0  # INVARIANT: the sum of those

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + len(self._without_raw)

    def get(self, namespace: str, name: str, uid: str) -> WaitingPod | None:
        """Return a pod; None where it does not wait, or is not this one.

        Args:
            namespace: its namespace.
            name: its name.
            uid: its uid; "" where whoever binds it does not say.
        """
        found = self._waiting.get(namespace, {}).get(name) or self._identity(namespace, name)
        return found if found is not None and uid in {"", found.pod.uid} else None

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Keep a pod, or no longer."""
        if pod.node_name or pod.gated or pod.is_terminal or pod.deleting:
            self.pod_deleted(pod.namespace, pod.name)
        elif 0 < len(raw) <= MOST_BYTES:
            self._without_raw.pop((pod.namespace, pod.name), None)
            self._keep(WaitingPod(pod, bytes(raw)))
        else:
            self._drop(pod.namespace, pod.name)
            self._without_raw[pod.namespace, pod.name] = pod.uid, pod.shape

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Keep a pod no longer."""
        self._without_raw.pop((namespace, name), None)
        self._drop(namespace, name)

    def _identity(self, namespace: str, name: str) -> WaitingPod | None:
        found = self._without_raw.get((namespace, name))
        if found is None:
            return None
        uid, shape = found
        return WaitingPod(Pod(namespace=namespace, name=name, uid=uid, shape=shape), b"")

    def _keep(self, waiting: WaitingPod) -> None:
        namespace, name = waiting.pod.namespace, waiting.pod.name
        of_namespace = self._waiting.setdefault(namespace, {})
        old = of_namespace.get(name)
        of_namespace[name] = waiting
        self._count(namespace, len(waiting.raw) - (0 if old is None else len(old.raw)))
        while self._all_bytes > self._most_bytes:
            largest = max(self._bytes, key=self._bytes.__getitem__)
            oldest = next(iter(self._waiting[largest].values())).pod
            self._drop(largest, oldest.name)
            self._without_raw[largest, oldest.name] = oldest.uid, oldest.shape

    def _drop(self, namespace: str, name: str) -> None:
        of_namespace = self._waiting.get(namespace)
        gone = None if of_namespace is None else of_namespace.pop(name, None)
        if gone is not None:
            self._count(namespace, -len(gone.raw))

    def _count(self, namespace: str, added: int) -> None:
        self._all_bytes += added
        left = self._bytes.get(namespace, 0) + added
        if left:
            self._bytes[namespace] = left
        else:
            del self._bytes[namespace], self._waiting[namespace]
