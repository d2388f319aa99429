"""The PodDisruptionBudgets that allow no disruption now: their pods are evicted by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.model.disruption_budget import DisruptionBudget
from engine.view.trait_book import PodQuery

_MOST: int = 1_000
"""That are heeded: anyone may write them, and each is looked at for every new kind of pod."""


class ExhaustedBudgets:
    """What these budgets select; what was given out never changes."""

    def __init__(self) -> None:
        self._queries: Mapping[str, PodQuery] = MappingProxyType({})
        self._changed: list[PodQuery] = []

    def snapshot(self) -> Mapping[str, PodQuery]:
        """Return what each selects, by `namespace/name`; the same object until one changes."""
        return self._queries

    def take_changed(self) -> list[PodQuery]:
        """Return what the budgets select that became exhausted or ceased to be, since last time."""
        changed, self._changed = self._changed, []
        return changed

    def put(self, budget: DisruptionBudget) -> None:
        """Note a budget as it now is."""
        query = None
        if budget.selector is not None and budget.disruptions_allowed <= 0:
            query = PodQuery(frozenset((budget.namespace,)), budget.selector)
        self._replace(budget.key, query)

    def drop(self, key: str) -> None:
        """Forget a budget, by `namespace/name`."""
        self._replace(key, None)

    def _replace(self, key: str, query: PodQuery | None) -> None:
        old = self._queries.get(key)
        if query == old or (old is None and len(self._queries) >= _MOST):
            return
        queries = dict(self._queries)
        queries.pop(key, None)
        if query is not None:
            queries[key] = query
        self._queries = MappingProxyType(queries)
        self._changed += [each for each in (old, query) if each is not None]
