"""What the pods of each namespace request in all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class NamespaceTotals:
    """Requests and number of pods by namespace; what was given out is never written to."""

    def __init__(self) -> None:
        self._totals: dict[str, dict[str, int]] = {}
        self._own: set[str] = set()  # namespaces whose totals nobody else holds

    def lent(self) -> Mapping[str, Mapping[str, int]]:
        """Return the totals, to be held until `part_with` is called."""
        return self._totals

    def part_with(self) -> None:
        """Leave what was given out so far to those who hold it, and write to others."""
        self._totals = self._totals.copy()
        self._own.clear()

    def add(self, namespace: str, requests: Iterable[tuple[str, int]]) -> None:
        """Count a pod by its requests, the pod itself among them as `pods`."""
        total = self._of(namespace)
        for name, amount in requests:
            total[name] = total.get(name, 0) + amount

    def subtract(self, namespace: str, requests: Iterable[tuple[str, int]]) -> None:
        """Take off a pod that was added, exactly."""
        total = self._of(namespace)
        for name, amount in requests:
            total[name] -= amount
        if not total["pods"]:
            del self._totals[namespace]
            self._own.remove(namespace)

    def _of(self, namespace: str) -> dict[str, int]:
        """Return the totals of a namespace, to be written."""
        if namespace not in self._own:
            self._own.add(namespace)
            self._totals[namespace] = dict(self._totals.get(namespace, {}))
        return self._totals[namespace]
