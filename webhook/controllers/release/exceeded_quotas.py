"""Releases that were refused as they exceed their quota, until its usage changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from engine.model.resources import Amounts
from engine.quota.queueing import QueuedPod
from engine.view import ClusterState, ClusterView
from webhook.placement.held_pods import HeldPod

_TRY_AGAIN_SECONDS: Final = 5.0
"""After which a refused release is tried again though nothing is seen to have changed: what stood
against it may have been reserved for a pod that never came, which nobody sees end."""


class _Exceeded(NamedTuple):
    """The last refusals by the quota of a namespace.

    Attributes:
        used: by the namespace then.
        versions: of its quotas then.
        until: the latest moment at which it is tried again.
        requests: of the pods that were refused.
        message: of the last.
    """

    used: Amounts
    versions: tuple[int, ...]
    until: float
    requests: tuple[Amounts, ...]
    message: str

    def concerns(self, requests: Amounts) -> bool:
        """Return whether a pod requests as much as one that was refused."""
        return any(
            all(requests.get(name, 0) >= amount for name, amount in refused.items())
            for refused in self.requests
        )


class ExceededQuotas:
    """The refusals by quotas that still stand.

    Args:
        state: the cluster.
        clock: seconds that only go forward.
    """

    def __init__(self, state: ClusterState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._by_namespace: dict[str, _Exceeded] = {}

    def add(self, held: HeldPod, message: str) -> None:
        """Note that the release of a pod was refused: others were first, or the view is behind.

        Args:
            held: the pod.
            message: of who refused it.
        """
        namespace, view = held.pod.namespace, self._state.view()
        used, versions = _usage(namespace, view)
        old = self._by_namespace.get(namespace)
        requests = self._state.pod_requests(held.key)
        known = () if old is None or (old.used, old.versions) != (used, versions) else old.requests
        self._by_namespace[namespace] = _Exceeded(
            used,
            versions,
            self._clock() + _TRY_AGAIN_SECONDS,
            (*(each for each in known if each != requests), requests),
            message,
        )

    def keep(self, held: HeldPod, view: ClusterView) -> bool:
        """Return whether a pod would be refused again."""
        exceeded = self._standing(held.pod.namespace, view)
        return exceeded is not None and exceeded.concerns(self._state.pod_requests(held.key))

    def marked(self, queued: Iterable[QueuedPod], view: ClusterView) -> list[QueuedPod]:
        """Return pods with the refusals that keep them."""
        pods = list(queued)
        if not self._by_namespace:
            return pods
        standing = {name: self._standing(name, view) for name in list(self._by_namespace)}
        return [
            pod
            if (exceeded := standing.get(pod.key.partition("/")[0])) is None
            or not exceeded.concerns(pod.requests)
            else pod._replace(refusal=exceeded.message)
            for pod in pods
        ]

    def _standing(self, namespace: str, view: ClusterView) -> _Exceeded | None:
        exceeded = self._by_namespace.get(namespace)
        if exceeded is None:
            return None
        is_unchanged = (exceeded.used, exceeded.versions) == _usage(namespace, view)
        if is_unchanged and self._clock() < exceeded.until:
            return exceeded
        del self._by_namespace[namespace]
        return None


def _usage(namespace: str, view: ClusterView) -> tuple[Amounts, tuple[int, ...]]:
    """Return what a namespace uses, and the versions of its quotas."""
    quotas = view.namespaces.quotas.get(namespace, ())
    used = dict(view.namespaces.requested.get(namespace, {}))
    return used, tuple(quota.version for quota in quotas)
