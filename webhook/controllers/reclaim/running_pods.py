"""The running pods of a cluster, as far as reclaim may evict them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator

import msgspec

from engine.model.pod import Pod
from engine.reclaim import RunningPod, running_pod_of


class RunningPods:
    """An observer that keeps what matters of each bound pod, some 300 bytes.

    Args:
        excluded_namespaces: whose pods are never evicted for others.
    """

    def __init__(self, excluded_namespaces: Container[str] = ()) -> None:
        self._excluded = excluded_namespaces
        self._by_key: dict[str, RunningPod] = {}
        self._deleting: dict[str, RunningPod] = {}
        self._count_of = Counter[str]()  # by namespace

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RunningPod]:
        """Iterate over those of this moment, in any order."""
        return iter(self._by_key.values())

    @property
    def deleting(self) -> Collection[RunningPod]:
        """Those that are on their way out."""
        return self._deleting.values()

    def count_of(self, namespace: str) -> int:
        """Return how many pods of a namespace are bound and have not finished."""
        return self._count_of[namespace]

    def get(self, key: str) -> RunningPod | None:
        """Return a pod by `namespace/name`, None if it is not bound."""
        return self._by_key.get(key)

    def runs(self, key: str, uid: str) -> bool:
        """Return whether a pod is bound and has not finished."""
        found = self._by_key.get(key)
        return found is not None and found.uid == uid

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Keep a pod if it is bound."""
        running = None if pod.namespace in self._excluded else running_pod_of(pod)
        self.pod_deleted(pod.namespace, pod.name)
        if running is not None:
            self._by_key[running.key] = running
            self._count_of[running.namespace] += 1
            if running.deleting:
                self._deleting[running.key] = running

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        key = f"{namespace}/{name}"
        self._deleting.pop(key, None)
        if self._by_key.pop(key, None) is not None:
            self._count_of[namespace] -= 1
            if not self._count_of[namespace]:
                del self._count_of[namespace]
