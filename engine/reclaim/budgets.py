"""PodDisruptionBudgets, as far as they allow that a pod is evicted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from engine.model.disruption_budget import DisruptionBudget
from engine.reclaim.candidates import RunningPod


class PodBudget(NamedTuple):
    """What budgets say of one pod.

    Attributes:
        may_disrupt: whether it may be evicted, as the first of its budget.
        budget: that its eviction counts against, None for none.
    """

    may_disrupt: bool
    budget: DisruptionBudget | None = None


_UNLIMITED: Final = PodBudget(may_disrupt=True)


class Budgets:
    """The budgets of a moment; false where there are none.

    Args:
        budgets: of all namespaces.
    """

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[DisruptionBudget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.namespace, []).append(budget)

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def of(self, pod: RunningPod) -> PodBudget:
        """Return what budgets say of a pod; the API server evicts no pod of several."""
        of_pod = [
            budget
            for budget in self._by_namespace.get(pod.namespace, ())
            if budget.selects(pod.namespace, pod.labels)
        ]
        if not of_pod:
            return _UNLIMITED
        may_disrupt = len(of_pod) == 1 and of_pod[0].disruptions_allowed > 0
        return PodBudget(may_disrupt, of_pod[0] if len(of_pod) == 1 else None)
