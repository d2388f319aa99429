"""A budget that namespaces share."""

from __future__ import annotations

from collections import Counter


class Shares:
    """What namespaces have of a budget: none may have more than is left.

    So one alone has half of it at most, and the next half of what is left then: something is left
    for each, and less for each.

    Args:
        budget: of all namespaces together.
    """

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._by_namespace = Counter[str]()  # INVARIANT: together with what is left, the budget

    def has_room(self, namespace: str, amount: int) -> bool:
        """Return whether a namespace may have so much more."""
        return self._by_namespace[namespace] + amount <= self._left

    def take(self, namespace: str, amount: int) -> None:
        """Let a namespace have more, or less of a negative amount."""
        self._left -= amount
        self._by_namespace[namespace] += amount
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]
