"""The pods that are bound while somebody counts them: those seen without a node before."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.model.pod import Pod

_MOST_UNBOUND: Final = 20_000
"""Beyond that bindings are missed: tenants decide how many pods wait."""

_MOST_NEW: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A pod that was bound.

    Attributes:
        pod: its model.
        raw: the object as the API server sent it; empty where it is not known.
    """

    pod: Pod
    raw: bytes


class Bindings:
    """Follows pods until they are bound; an observer of pods.

    Attributes:
        changed: set whenever there is a new binding; to be cleared by whom it wakes.
        missed: bindings that came too fast; only grows.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.missed = 0
        self._unbound: dict[str, str] = {}  # uid by key
        self._new: deque[Binding] = deque()
        self._is_counting = False

    def begin(self) -> None:
        """Collect bindings from now on."""
        self._is_counting = True
        self._new.clear()

    def end(self) -> None:
        """Collect bindings no more; which pods are unbound is known all the same."""
        self._is_counting = False
        self._new.clear()

    def pop(self) -> Binding | None:
        """Return the first binding that nobody took, None without any."""
        return self._new.popleft() if self._new else None

    def waiting(self) -> list[Binding]:
        """Return the bindings that nobody took, in order."""
        return [*self._new]

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Note that a pod waits, or is bound."""
        key = pod.key
        if not pod.node_name and not pod.is_terminal:
            if key in self._unbound or len(self._unbound) < _MOST_UNBOUND:
                self._unbound[key] = pod.uid
            return
        uid = self._unbound.pop(key, None)
        if uid != pod.uid or not pod.node_name or not self._is_counting:
            return
        if len(self._new) >= _MOST_NEW:
            self.missed += 1
            return
        self._new.append(Binding(pod=pod, raw=bytes(raw)))
        self.changed.set()

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Note that a pod is gone."""
        self._unbound.pop(f"{namespace}/{name}", None)
