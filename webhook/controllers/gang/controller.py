"""The gangs whose members are held: which may be released now, and what became of the last ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from engine.gang import (
    Gang,
    GangBackoff,
    GangKey,
    GangStage,
    MemberState,
)
from engine.model.hold import QueuedReason
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND
from engine.release import HeldPod, ReclaimStage, ReleaseDecision
from engine.view import ClusterView, Sum
from webhook.controllers.gang.gang_context import GangContext, GangMemories, GangTasks
from webhook.controllers.gang.gang_outcome import GangState
from webhook.controllers.gang.gang_release import GangReleases
from webhook.controllers.gang.gang_reservation import GangReservation
from webhook.controllers.gang.gang_starts import StartOutcomes
from webhook.controllers.gang.gang_unit import (
    GangUnit,
    HeldGangs,
    complete_unit,
    group_of,
    held_gangs,
    lacking_resources,
    readiness,
)
from webhook.controllers.gang.reserved_room import ReservedRoom
from webhook.controllers.release import (
    GangDecision,
    GangPart,
    QueueTurns,
    Wait,
)

_RELEASED_WITHOUT_ROOM_AFTER: Final = 30.0

_DESCRIBED_WITHIN: Final = 2 * SECOND

_UNKNOWN: Final = "nothing says how many members must run together"
_RESERVING: Final = "there is room for it, which is being reserved"
_RECREATING: Final = "members of it are being evicted, as too few were bound in time"
_GIVING_BACK: Final = "room that an earlier leader reserved is given back"
_TOO_MANY: Final = "many gangs are being released"

_BEHIND_GANG: Final = Wait(
    QueuedReason.WAITING_FOR_CAPACITY, "what comes free is reserved for a gang"
)


class GangController:
    """Releases gangs in their turns; all that must outlive it is on the pods.

    Args:
        context: what it works with.

    Attributes:
        counts: the number of gangs with held members, by what they wait for.
    """

    def __init__(self, context: GangContext) -> None:
        self._context = context
        self._memories = GangMemories(context.clock)
        self._backoff = GangBackoff()
        self._tasks = GangTasks()  # releases, recreations and Events
        self._starts = StartOutcomes(context, self._memories, self._backoff, self._tasks)
        self._reservation = GangReservation(context, self._memories)
        self._releases = GangReleases(
            *(context, self._memories, self._backoff, self._tasks),
            reservation=self._reservation,
            released=self._starts.add,
        )
        self._tried: set[GangKey] = set()  # nominated by an earlier leader, and had their turn
        self._units: dict[str, GangUnit] = {}  # those that are complete, by the key of each member
        self._messages: dict[GangKey, str] = {}
        self._free: tuple[int, ...] = ()  # on all nodes, when the cycle began
        self._has_looked = False  # at whose turn may come, since it began
        self.counts: Mapping[GangState, int] = dict.fromkeys(GangState, 0)

    def begin(self) -> None:
        """Begin to release gangs; those that an earlier leader has left are found on their pods."""
        self._memories.clear()
        self._backoff.clear()
        self._tried.clear()
        self._has_looked = False
        self._starts.begin()
        self._reservation.begin()

    async def end(self) -> None:
        """End all writes; what is nominated by then is left to the next leader."""
        prepared = self._releases.prepared()
        await self._tasks.end()
        self._releases.clear()
        for held in prepared:
            # The view follows the watch, which shows a nomination of ours no second time.
            self._context.release.nominations.follow(held)
        await self._reservation.end()
        self._units = {}
        self.counts = dict.fromkeys(GangState, 0)

    def turns(self, ordered: Sequence[HeldPod], view: ClusterView) -> QueueTurns:
        """Return whose turn may come; go on with gangs that are released in part.

        Args:
            ordered: the pods that are not decided, in the queue order.
            view: the cluster.
        """
        self._free = _free(view)
        # 1. See what became of gangs that are released.
        self._starts.see(view)

        # 2. See what each gang with held members waits for.
        found = held_gangs(ordered, self._context.members, view)
        self._units, self._messages = {}, {}
        for record in self._context.pods:
            record.gang = None
        states: dict[GangKey, GangState] = {}
        for key in found.held.keys() - found.gangs.keys():
            self._await_description(key, found.held[key])
        for key, gang in found.gangs.items():
            state = self._state(gang, found)
            if state is not None:
                states[key] = state
                self._keep(found.held[key], key)

        # 3. See which gang reserves room.
        self._reservation.update({unit.key: unit for unit in self._units.values()}, view)
        states |= dict.fromkeys(self._reservation.gangs, GangState.RESERVING)
        counts = Counter(states.values())
        self.counts = {state: counts[state] for state in GangState}
        self._memories.forget_old()
        self._tried &= found.gangs.keys()
        self._has_looked = True

        # 4. The others have the turns of their first members.
        due = [unit for unit in self._units.values() if self._is_due(unit)]
        together = {unit.first.key: unit.members for unit in due}
        if any(map(self._reservation.is_of, due)):
            self._reservation.turn_is_due()
        queue = [each for each in ordered if each.key in together or not self.keeps(each)]
        return QueueTurns(queue=queue, together=together)

    def prepare(self, first: HeldPod) -> bool:
        """Place a gang whose turn has come, all of it or nothing; return whether it has room.

        Args:
            first: the member whose place it has.
        """
        unit, context = self._units[first.key], self._context
        if self._reservation.has_lost_room(unit):
            return False  # it is given back first
        is_ready = context.pods.of(first).reclaim is ReclaimStage.READY
        is_first = is_ready or self._reservation.is_of(unit)
        if not is_first and not self._releases.has_turn_for(unit.key.namespace):
            self._messages[unit.key] = _TOO_MANY
            return True
        memory, now = self._memories.of(unit.key), context.clock()
        placed = self._place(unit)
        for held in unit.members:
            context.pods.of(held).take_room()
        if not placed.reason:
            memory.has_room()
            self._releases.start(unit, placed.decisions)
            return True
        self._reservation.keep(unit, placed.decisions)
        for held in unit.members:
            if held.pod.nominated_node_name and held not in self._reservation:
                context.releases.take_back(held)  # it counts there no longer: others may be there
        message = self._messages[unit.key] = self._reservation.describe(unit, placed.reason)
        waited = memory.has_no_room(now, self._free, message)
        if unit.is_released_without_room and waited >= _RELEASED_WITHOUT_ROOM_AFTER:
            unplaced = ReleaseDecision(reason=f"its gang has no room: {placed.reason}")
            decisions = dict.fromkeys([held.key for held in unit.members], unplaced)
            self._releases.start(unit, decisions, is_begun=True)
            return True
        return False

    def _place(self, unit: GangUnit) -> GangDecision:
        """Return where all members go, beside those that have reserved room or anew; or why not."""
        context = self._context
        reserved = self._reservation.room(unit)
        for held in unit.members:
            context.release.nominations.withdraw(held.pod)  # else they would lack what they have
        lacking = lacking_resources(unit, context.state, context.members)
        if lacking and not self._reservation.is_of(unit):
            return GangDecision({}, lacking)
        placed = context.decider.decide(unit.parts, reserved)
        if placed.reason and reserved:
            anew = context.decider.decide(unit.parts)
            placed = placed if anew.reason else anew
        if placed.reason and self._reservation.is_of(unit):
            some = context.decider.decide_some(unit.parts, placed.decisions)
            placed = placed._replace(decisions=some)
        return placed._replace(reason=lacking or placed.reason)

    def keeps(self, held: HeldPod) -> bool:
        """Return whether a pod waits for its gang."""
        return self._context.pods.of(held).gang is not None

    def reserves_from(self, held: HeldPod) -> bool:
        """Return whether a single pod that finds no room must not have what a gang waits for."""
        return self._reservation.reserves_from(held)

    def reserved_room(self, view: ClusterView) -> ReservedRoom:
        """Return the room of a moment that gangs reserve, and pods that are not held must leave."""
        return ReservedRoom(self._context, self._reservation, self._releases.prepared(), view)

    def prepared(self) -> Iterable[HeldPod]:
        """Return the pods that are nominated and wait for the nominations of their gang."""
        return self._releases.prepared()

    def first(self, held: HeldPod) -> HeldPod:
        """Return the member whose place in the queue a pod has; itself where it has its own."""
        unit = self._units.get(held.key)
        return held if unit is None else unit.first

    def wait(self, held: HeldPod) -> Wait | None:
        """Return what a pod waits for, None where its gang waits for nothing but its turn."""
        gang = self._context.pods.of(held).gang
        if gang is None:
            return None if not self.reserves_from(held) else _BEHIND_GANG
        message = self._messages.get(gang, "")
        if not message:
            return None
        is_reserving = self._reservation.is_for(held)
        reason = QueuedReason.RESERVING_FOR_GANG if is_reserving else QueuedReason.WAITING_FOR_GANG
        return Wait(reason, f"gang `{gang}`: {message}")

    # Gangs that others are evicted for.

    def blocked(self) -> list[HeldPod]:
        """Return the first members of gangs that have no room as a whole, in queue order."""
        return [
            unit.first
            for unit in {id(unit): unit for unit in self._units.values()}.values()
            if unit.key not in self._tasks
            and not self._reservation.is_writing(unit)
            and self._memories.of(unit.key).without_room_since is not None
            and not any(map(self._is_reclaimed_for, unit.members))
        ]

    def waits(self, held: HeldPod) -> bool:
        """Return whether a pod is to be released with its gang, or nobody knows that yet."""
        is_member = self._context.members.gang_of(held.key) is not None
        return is_member and (self.keeps(held) or not self._has_looked)

    def parts_of(self, held: HeldPod) -> Sequence[GangPart]:
        """Return the gangs that start together with a member; none if they are not complete."""
        unit = self._units.get(held.key)
        return () if unit is None else unit.parts

    def running(self, gang: GangKey) -> list[tuple[str, PodShape]]:
        """Return the nodes and shapes of the members of a gang that run."""
        bound = (each for each in self._context.members.of(gang) if each.state is MemberState.BOUND)
        return list(filter(None, (self._context.state.placement(each.key) for each in bound)))

    @property
    def failed_at(self) -> Mapping[GangKey, datetime]:
        """When gangs that have not started since failed last."""
        return self._backoff.failed_at

    # Whose turn may come.

    def _await_description(self, key: GangKey, members: Sequence[HeldPod]) -> None:
        """Keep pods for a moment of a gang that nobody describes.

        Its PodGroup may have been created just before them, and be seen after them.
        """
        before = self._context.now() - _DESCRIBED_WITHIN
        young = [each for each in members if each.is_held_for_gang and each.seen_at > before]
        self._keep(young, key)
        self._messages[key] = _UNKNOWN

    def _state(self, gang: Gang, found: HeldGangs) -> GangState | None:
        """Return what a gang with held members waits for, None where each is a pod of its own."""
        key, held = group_of(gang)[0], found.held[gang.key]
        if key in self._releases:
            self._messages[gang.key] = _RESERVING
            return GangState.RELEASING
        if key in self._tasks:
            self._messages[gang.key] = _RECREATING
            return GangState.BACKING_OFF
        ready, memory = readiness(gang, self._context.members), self._memories.of(key)
        if ready.stage is GangStage.STARTED:
            return None
        if ready.stage is GangStage.COMMITTING:
            self._releases.go_on(gang, held)
            return GangState.RELEASING
        refusal = self._backoff.refusal(key, self._context.now())
        if ready.stage is GangStage.READY and not refusal and held[0].key not in self._units:
            self._add_unit(gang, found)
        if self._is_made_room_for(held) or self._take_back(gang, held):
            return GangState.WAITING
        if ready.stage is not GangStage.READY:
            self._messages[gang.key] = ready.message
            return GangState.GATHERING
        if refusal:
            self._messages[gang.key] = "; ".join(filter(None, (memory.message, refusal)))
            return GangState.BACKING_OFF
        if memory.without_room_since is not None and held[0].key in self._units:
            self._messages[gang.key] = memory.message
        return GangState.WAITING

    def _add_unit(self, gang: Gang, found: HeldGangs) -> None:
        """Note that a gang is complete, and all of its group; or what it lacks."""
        unit = complete_unit(gang, found, self._context.members)
        if isinstance(unit, GangUnit):
            self._units |= dict.fromkeys([each.key for each in unit.members], unit)
        else:
            self._messages[gang.key] = unit

    def _is_made_room_for(self, members: Sequence[HeldPod]) -> bool:
        """Return whether others are evicted for a complete gang, or its room is there."""
        return any(held.key in self._units and self._is_reclaimed_for(held) for held in members)

    def _is_reclaimed_for(self, held: HeldPod) -> bool:
        record = self._context.pods.of(held)
        return record.is_reclaiming or record.reclaim is ReclaimStage.READY

    def _keep(self, members: Iterable[HeldPod], key: GangKey) -> None:
        """Let members wait for their gang in this cycle."""
        for held in members:
            self._context.pods.of(held).gang = key

    def _is_due(self, unit: GangUnit) -> bool:
        """Return whether a gang may be placed now, and all its members be written."""
        memory, pods = self._memories.of(unit.key), self._context.pods
        if any(pods.of(held).is_reclaiming for held in unit.members):
            return False
        if pods.of(unit.first).reclaim is ReclaimStage.READY:
            return True
        if self._reservation.is_writing(unit):
            return False
        # It looks each time, before others do that would take what has come free.
        is_time = self._reservation.is_of(unit) or memory.is_due(
            self._context.clock(), self._free, is_eager=unit.is_released_without_room
        )
        return is_time and all(map(self._context.releases.may_try, unit.members))

    def _take_back(self, gang: Gang, members: Sequence[HeldPod]) -> bool:
        """Let the room go that an earlier leader reserved for members; return whether it goes.

        Those of a complete gang keep it for their turn in one cycle: it may be released at once.
        """
        nominated = [
            held
            for held in members
            if held.pod.nominated_node_name and held not in self._reservation
        ]
        if not nominated:
            self._tried.discard(gang.key)
            return False
        is_complete = any(held.key in self._units for held in nominated)
        if is_complete and gang.key not in self._tried:
            self._tried.add(gang.key)
            return False
        for held in nominated:
            self._context.releases.take_back(held)
        self._messages[gang.key] = _GIVING_BACK
        return True


def _free(view: ClusterView) -> tuple[int, ...]:
    """Return what all nodes have free, one number for each resource."""
    free = (view.allocatable - view.sums[Sum.REQUESTS])[:, view.valid]
    return tuple(free.sum(axis=1).tolist())
