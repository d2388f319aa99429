"""The victims of plans under way: no other plan takes them, and guards count them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized

from engine.model.time import Micros
from engine.reclaim import GuardState, Victim, evictions_allowed


class PlannedVictims:
    """Who is about to be evicted, for whom.

    Args:
        running: the pods of the cluster; guards allow a part of them.
        now: the time of day.
    """

    def __init__(self, running: Sized, now: Callable[[], Micros]) -> None:
        self._running = running
        self._now = now
        self._claimed: dict[str, tuple[Victim, ...]] = {}  # by claimant

    def __contains__(self, uid: object) -> bool:
        """Whether a pod is a victim of a plan under way."""
        return any(uid == victim.uid for victim in self.victims_of_others(""))

    def set(self, claimant: str, victims: Iterable[Victim]) -> None:
        """Count pods as leaving in the plans of others; those claimed before are not any more.

        Args:
            claimant: uid of the pod that they are evicted for, or what else stands for the plan.
            victims: of the plan.
        """
        self._claimed[claimant] = tuple(victims)

    def remove(self, claimant: str) -> None:
        """Forget a plan."""
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

    def allowed(self, guards: GuardState) -> int:
        """Return how many evictions guards allow now, beside those of plans under way."""
        planned = self.of_others("") - guards.in_flight.keys()
        return evictions_allowed(guards, len(self._running), self._now()) - len(planned)
