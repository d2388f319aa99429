"""The pods that are bound while somebody counts them, each once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.model.advice import ADVICE_ANNOTATION, Advice, advice_in
from engine.model.pod import Pod
from webhook.binding import BindingRecord, BindingRecords

_MOST_UNBOUND: Final = 20_000
"""Beyond that bindings are missed: tenants decide how many pods wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    """A pod that was bound.

    Attributes:
        namespace: of the pod.
        node_name: the node that it is bound to.
        decided: the record of its binding; None where that was not decided.
        advice: that it was given when it was created; None without any.
    """

    namespace: str
    node_name: str
    decided: BindingRecord | None
    advice: Advice | None


class BoundPods:
    """Tells of the pods that are bound, if we had a say in where to; an observer of pods.

    A pod that was advised counts if it was seen without a node before.

    Args:
        records: of decisions at bindings.
    """

    def __init__(self, records: BindingRecords) -> None:
        self._records = records
        self._advised: dict[str, str] = {}  # uid by key, of those without a node
        self._count: Callable[[BoundPod], None] | None = None

    def begin(self, count: Callable[[BoundPod], None]) -> None:
        """Have bound pods counted from now on."""
        self._count = count

    def end(self) -> None:
        """Count no more; what waits to be bound is known all the same."""
        self._count = None

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Note that a pod waits, or count it once it is bound."""
        key = pod.key
        if not pod.node_name and not pod.is_terminal:
            is_known = key in self._advised or len(self._advised) < _MOST_UNBOUND
            if is_known and ADVICE_ANNOTATION in pod.annotations:
                self._advised[key] = pod.uid
            return
        was_advised = self._advised.pop(key, None) == pod.uid
        decided = self._records.take(key, pod.uid, pod.node_name)
        advice = advice_in(pod.annotations) if was_advised and decided is None else None
        if (
            self._count is not None
            and pod.node_name
            and (decided is not None or advice is not None)
        ):
            self._count(
                BoundPod(
                    namespace=pod.namespace,
                    node_name=pod.node_name,
                    decided=decided,
                    advice=advice,
                )
            )

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Note that a pod is gone."""
        self._advised.pop(f"{namespace}/{name}", None)
