"""The pods of a recording, for whoever shows single ones."""

from __future__ import annotations

import msgspec

from engine.model.pod import Pod


class RecordedPods:
    """An observer that keeps the pods of a recording as JSON."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - of the protocol
        """Keep a pod."""
        self._texts[pod.key] = bytes(raw)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Keep a pod no longer."""
        self._texts.pop(f"{namespace}/{name}", None)

    async def read(self, namespace: str, name: str) -> bytes | None:
        """Return a pod as JSON, None where there is none."""
        return self._texts.get(f"{namespace}/{name}")
