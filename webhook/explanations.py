"""The latest decisions with their reasons, for the debug page and for support."""

from __future__ import annotations

from collections import deque
from typing import Any


class Explanations:
    """A bounded memory of explanations; the oldest makes room for the newest.

    They are kept as plain JSON values, not as decisions: those hold whole columns.
    """

    def __init__(self, most: int) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def wanted(self) -> bool:
        """Whether any are kept at all."""
        return self._kept.maxlen != 0

    def add(self, explanation: dict[str, Any]) -> None:
        """Remember one explanation, as `engine.explain.explanation` gives it."""
        self._kept.append(explanation)

    def latest(self, *, pod: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """Return explanations, newest first.

        Args:
            pod: keep only those whose `namespace/name` contains this text.
            limit: return at most so many.
        """
        found = [one for one in reversed(self._kept) if pod in _key(one)]
        return found[:limit]


def _key(explanation: dict[str, Any]) -> str:
    return f"{explanation['pod']['namespace']}/{explanation['pod']['name']}"
