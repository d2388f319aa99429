"""The room that gangs reserve, as those meet it who are bound without having been held."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from engine.binding import AwaitedRoom, missing_of_place, takes_nominated_room
from engine.model.pod import Pod
from engine.release import HeldPod
from engine.view import ClusterView
from webhook.controllers.gang.gang_context import GangContext
from webhook.controllers.gang.gang_reservation import GangReservation
from webhook.controllers.gang.gang_unit import awaited_room


class ReservedRoom:
    """What gangs reserve in one view: where members are nominated to, and where they wait for room.

    The scheduler keeps the former, too, as soon as it hears of it; of the latter it knows nothing.

    Args:
        context: what the release of gangs works with.
        reservation: the gang that reserves room.
        prepared: members of all gangs that are nominated and about to be released.
        view: the cluster.
    """

    def __init__(
        self,
        context: GangContext,
        reservation: GangReservation,
        prepared: Sequence[HeldPod],
        view: ClusterView,
    ) -> None:
        self._context = context
        self._reservation = reservation
        self._view = view
        self._nominated: dict[str, list[HeldPod]] = {}  # by node
        for held in chain(prepared, reservation.members):
            self._nominated.setdefault(context.state.assumed_node(held.key), []).append(held)
        self._awaited: dict[str, AwaitedRoom] = {}  # by the key of the first of some members

    def __call__(self, pod: Pod, row: int) -> str:
        """Return whose room on the node of a row a pod would take, "" for nobody's.

        Where others were evicted for it, or it is a member itself, the room is its own.
        """
        node_name = self._view.names[row]
        if pod.nominated_node_name == node_name:
            return ""
        nominated = self._nominated.get(node_name, ())
        if nominated and takes_nominated_room(
            pod, row, self._view, [held.pod for held in nominated]
        ):
            return self._holder(nominated[0])
        for alike in self._reservation.without_room:
            first = alike[0]
            if pod.priority > first.pod.priority:
                continue
            missing = missing_of_place(pod, row, self._view, self._awaited_by(alike))
            if missing == 0:
                self._context.held.changed.set()  # so that it is nominated there at once
            if missing is not None:
                return self._holder(first)
        return ""

    def _awaited_by(self, alike: Sequence[HeldPod]) -> AwaitedRoom:
        first = alike[0]
        if first.key not in self._awaited:
            fit = self._context.release.fit
            self._awaited[first.key] = awaited_room(first, len(alike), self._view, fit)
        return self._awaited[first.key]

    def _holder(self, held: HeldPod) -> str:
        name = f"gang `{self._context.members.gang_of(held.key)}`"
        return f"{name} until {self._reservation.until}" if self._reservation.is_for(held) else name
