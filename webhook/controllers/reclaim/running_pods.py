"""The running pods of a cluster, as far as reclaim may evict them."""

from __future__ import annotations

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

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RunningPod]:
        """Iterate over those of this moment, in any order."""
        return iter(self._by_key.values())

    @property
    def deleting(self) -> Collection[RunningPod]:
        """Those that are on their way out."""
        return self._deleting.values()

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
        self._deleting.pop(pod.key, None)
        if running is None:
            self._by_key.pop(pod.key, None)
        else:
            self._by_key[running.key] = running
            if running.deleting:
                self._deleting[running.key] = running

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        key = f"{namespace}/{name}"
        self._by_key.pop(key, None)
        self._deleting.pop(key, None)
