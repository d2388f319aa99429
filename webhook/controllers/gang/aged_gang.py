"""The gang that has waited for long, and what there is of room for it.

That room counts as taken in our view alone: nothing is written, so nothing is held from the
scheduler, and there is but one such gang. So it cannot wait for another that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.model.time import SECOND, Micros, micros
from engine.view import ClusterState
from webhook.controllers.gang.gang_unit import GangUnit
from webhook.controllers.release import Reclaims, ReleaseDecision
from webhook.placement.held_pods import HeldPod

_AGED_AFTER: Final = 600 * SECOND


class AgedGang:
    """Nothing smaller of its priority that we release overtakes it on its nodes.

    Args:
        state: the cluster, in which its members count where they have room.
        reclaims: the held pods that others are evicted for; these have room by that.
        now: the time of day.
    """

    def __init__(self, state: ClusterState, reclaims: Reclaims, now: Callable[[], Micros]) -> None:
        self._state = state
        self._reclaims = reclaims
        self._now = now
        self._unit: GangUnit | None = None

    def is_unit(self, unit: GangUnit) -> bool:
        """Return whether it is this gang."""
        return self._unit is not None and self._unit.member_keys == unit.member_keys

    def offer(self, unit: GangUnit, decisions: Mapping[str, ReleaseDecision]) -> None:
        """Count the members of a gang that have room, if it has been complete for 10 minutes.

        Args:
            unit: the gang, which has no room as a whole.
            decisions: for the members that have some, by key.
        """
        created = [held.pod.created for held in unit.members if held.pod.created is not None]
        has_aged = created and self._now() - micros(max(created)) >= _AGED_AFTER
        if self._unit is not None or not has_aged:
            return
        self._unit = unit
        for key, decision in decisions.items():
            self._state.nominate(key, decision.node_name)

    def retain(self, units: Mapping[str, GangUnit]) -> None:
        """Let the room go if the gang is no longer complete.

        Args:
            units: those that are, by the key of each member.
        """
        if self._unit is not None:
            unit = units.get(self._unit.first.key)
            if unit is None or not self.is_unit(unit):
                self.give_up()

    def give_up(self) -> None:
        """Let the room go."""
        unit, self._unit = self._unit, None
        if unit is not None:
            for held in unit.members:
                if not self._reclaims.counts(held):
                    self._state.nominate(held.key, "")

    def reserves_from(self, held: HeldPod) -> bool:
        """Return whether a single pod that finds no room must not have what the gang waits for.

        That room is free to the scheduler: a pod without a node would get there. So it stays held,
        for as long as it may be.
        """
        return self._unit is not None and held.pod.priority <= self._unit.first.pod.priority
