"""The ledger of claims: the victims of all plans under way, of whatever source.

A claim ends with its plan: whoever gives up evicting gives up its victims at once. Until then no
other plan takes them, and all count them as leaving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.reclaim import DEFAULT_IN_FLIGHT_PERCENT, Victim, most_in_flight
from webhook.controllers.reclaim.running_pods import RunningPods


class PlannedVictims:
    """Who is about to be evicted, for whom.

    Args:
        running: the pods of the cluster.
        percent: of the running pods of a namespace, as many may be on their way out at a time.
    """

    def __init__(self, running: RunningPods, percent: int = DEFAULT_IN_FLIGHT_PERCENT) -> None:
        self._running = running
        self._percent = percent
        self._claimed: dict[str, tuple[Victim, ...]] = {}  # by claimant

    def set(self, claimant: str, victims: Iterable[Victim]) -> None:
        """Count pods as leaving in the plans of others; those claimed before are not any more.

        Args:
            claimant: uid of the pod that they are evicted for, or what else stands for the plan.
            victims: of the plan.
        """
        self._claimed[claimant] = tuple(victims)

    def remove(self, claimant: str) -> None:
        """Forget a plan, which has ended or whose victims are gone."""
        self._claimed.pop(claimant, None)

    def of_others(self, claimant: str) -> frozenset[str]:
        """Return the uids of the victims of all other plans."""
        return frozenset(victim.uid for victim in self.victims_of_others(claimant))

    def victims_of_others(self, claimant: str) -> list[Victim]:
        """Return the victims of all other plans."""
        return [
            victim
            for key, victims in self._claimed.items()
            if key != claimant
            for victim in victims
        ]

    def room(self, namespace: str) -> int:
        """Return how many pods of a namespace may be evicted beside those of plans under way."""
        return self._room(namespace, self._leaving()[namespace])

    def at_limit(self, claimant: str) -> frozenset[str]:
        """Return the namespaces of which plans evict as many pods as may be at a time.

        None for a plan under way: it has its place.
        """
        if claimant in self._claimed:
            return frozenset()
        leaving = self._leaving().items()
        return frozenset(name for name, count in leaving if self._room(name, count) <= 0)

    def _room(self, namespace: str, leaving: int) -> int:
        return most_in_flight(self._running.count_of(namespace), self._percent) - leaving

    def _leaving(self) -> Counter[str]:
        """Return how many victims of all plans still run, by namespace."""
        return Counter(
            victim.namespace
            for victim in self.victims_of_others("")
            if self._running.runs(victim.key, victim.uid)
        )
