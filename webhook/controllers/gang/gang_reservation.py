"""Room that is reserved for a gang which has found none for long, as it comes free.

Where pods come and go, room for all members is hardly ever free at one moment. So one gang at a
time keeps what there is: each member is nominated as soon as a node has room for it, never before.
All that must outlive the leader is on the pods: the next one takes such nominations back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from datetime import UTC
from typing import Final

from engine.errors import counted
from engine.gang import GangKey, ReservationTurns
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND, Micros, date
from engine.release import HeldPod, ReclaimStage, ReleaseDecision, WriteFailure, would_stay
from engine.view import ClusterView
from webhook.controllers.gang.gang_context import GangContext, GangMemories
from webhook.controllers.gang.gang_unit import GangUnit, exceeds_cluster
from webhook.controllers.release.pod_writer import WriteError

_LONGEST_SECONDS: Final = 600.0
_TURN_SECONDS: Final = 5.0
"""After which a gang whose turn does not come, as its quota has no room, keeps none either."""

_MOST_SHAPES: Final = 8
"""Of members, for which room is kept from pods that are not held before it is nominated."""

_MAYBE_WRITTEN: Final = frozenset({WriteFailure.UNREACHABLE, WriteFailure.NOT_LEADING})

_log = logging.getLogger(__name__)


class GangReservation:
    """The gang that reserves room; namespaces have their turns one after the other.

    It lasts as long as the gang has waited for room, 10 minutes at most; after one in vain no gang
    of its namespaces reserves anything for as long: gangs are as many as a tenant likes. What is
    nominated is written beside the cycles.

    Args:
        context: what the release of gangs works with.
        memories: what is remembered of each gang.
    """

    def __init__(self, context: GangContext, memories: GangMemories) -> None:
        self._context = context
        self._memories = memories
        self._turns = ReservationTurns()
        self._rests_until: dict[str, float] = {}  # by namespace
        self._unit: GangUnit | None = None
        self._decisions: dict[str, ReleaseDecision] = {}  # of the members that have room, by key
        self._seconds = 0.0  # that it lasts
        self._until = 0.0
        self._due_at: float | None = None  # since when it waits for its turn in the queue
        self._refusal = ""  # of a nomination
        self._is_released = False  # all members have room, and are being released
        self._leaving: dict[str, HeldPod] = {}  # those that keep room until that can be written
        self._writing: frozenset[str] = frozenset()  # keys of members
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Begin with no gang."""
        self._turns.clear()
        self._rests_until.clear()

    async def end(self) -> None:
        """End all writes; what is nominated by then is left to the next leader."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writing = frozenset()  # a task that had not begun did not do so
        for held in (*self._forget(), *self._leaving.values()):
            # The view follows the watch, which shows a nomination of ours no second time.
            self._context.release.nominations.follow(held)
        self._leaving.clear()

    # Who has it.

    @property
    def gangs(self) -> Sequence[GangKey]:
        """The gangs that wait for room to reserve: one, or those of its group."""
        if self._unit is None or self._is_released:
            return []
        return [gang.key for gang in self._unit.gangs]

    def is_of(self, unit: GangUnit) -> bool:
        """Return whether a gang reserves room."""
        return self._unit is not None and self._unit.key == unit.key

    def is_for(self, held: HeldPod) -> bool:
        """Return whether the gang of a pod reserves room, for this pod or not yet."""
        return self._unit is not None and held.key in self._unit.member_keys

    def __contains__(self, held: HeldPod) -> bool:
        """Return whether room is reserved for a pod."""
        return held.key in self._decisions

    def is_writing(self, unit: GangUnit) -> bool:
        """Return whether nominations of members are being written."""
        return bool(self._writing) and not self._writing.isdisjoint(unit.member_keys)

    def reserves_from(self, held: HeldPod) -> bool:
        """Return whether a single pod that finds no room must not have what comes free next.

        The scheduler would give that to a pod without a node. So it stays held, for as long as it
        may be.
        """
        return self._unit is not None and held.pod.priority <= self._unit.first.pod.priority

    @property
    def members(self) -> Sequence[HeldPod]:
        """The members that room is reserved for."""
        return [] if self._unit is None else [held for held in self._unit.members if held in self]

    @property
    def without_room(self) -> Collection[Sequence[HeldPod]]:
        """The members that have no room yet, those of each shape together: of the first shapes.

        For each, all nodes are looked at for every pod that is bound.
        """
        by_shape: dict[PodShape, list[HeldPod]] = {}
        for held in () if self._unit is None else self._unit.members:
            shape = held.pod.shape
            if (
                held.raw
                and held not in self
                and (shape in by_shape or len(by_shape) < _MOST_SHAPES)
            ):
                by_shape.setdefault(shape, []).append(held)
        return by_shape.values()

    @property
    def until(self) -> str:
        """The moment at which it ends."""
        left = self._until - self._context.clock()
        moment = Micros(self._context.now() + int(left * SECOND))
        return f"{date(moment).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

    def describe(self, unit: GangUnit, reason: str) -> str:
        """Return what a gang waits for that has no room, for this reason."""
        if not self.is_of(unit):
            return reason
        count, reserved = len(unit.members), len(self._decisions)
        waits = f"waits for room for {count - reserved}"
        return f"reserves room for {reserved} of {counted(count, 'member')}, {waits}: {reason}"

    def update(self, units: Mapping[GangKey, GangUnit], view: ClusterView) -> None:
        """End what is over, and begin what is due.

        Args:
            units: the gangs that are complete, by their keys.
            view: the cluster.
        """
        if self._unit is not None and not self._is_released:
            unit = units.get(self._unit.key)
            why = self._over(unit)
            if unit is None or why:
                self._end(why)
            else:
                self._go_on(unit)
        for held in list(self._leaving.values()):
            self._give_back(held)
        if self._unit is None:
            self._begin_next(units, view)

    def turn_is_due(self) -> None:
        """Note that the gang waits for its turn in the queue; it looks for room each time."""
        now = self._context.clock()
        if self._unit is not None:
            self._due_at = now if self._due_at is None else self._due_at
            self._context.pods.of(self._unit.first).looks_again(now)

    # Its room.

    def room(self, unit: GangUnit) -> Mapping[str, ReleaseDecision]:
        """Return where members have room, by their keys; empty if this gang reserves none."""
        return self._decisions if self.is_of(unit) else {}

    def has_lost_room(self, unit: GangUnit) -> bool:
        """Return whether a member has no room any more where it is nominated to."""
        return self.is_of(unit) and any(map(self._has_lost_room, unit.members))

    def keep(self, unit: GangUnit, decisions: Mapping[str, ReleaseDecision]) -> None:
        """Nominate the members that have room, if this gang reserves any; its turn has come.

        Args:
            unit: the gang.
            decisions: by the keys of members that have room, beside each other.
        """
        if not self.is_of(unit):
            return
        self._due_at = None
        self._decisions = dict(decisions)
        for held in unit.members:
            if self._node(held):
                self._context.release.nominations.nominate(held.pod, self._node(held))
        self._write_due(unit)

    # Its release, which has its room as long as nothing is lost.

    def release_begins(self, unit: GangUnit, decisions: Mapping[str, ReleaseDecision]) -> None:
        """Keep the turn of a gang while it is being released, if it has the turn."""
        if self.is_of(unit):
            self._decisions, self._is_released = dict(decisions), True

    def release_ends(self, unit: GangUnit) -> None:
        """Note that a gang is not being released any more."""
        if self.is_of(unit):
            self._is_released = False

    def go_on_without(
        self, unit: GangUnit, decisions: Mapping[str, ReleaseDecision], lost: str
    ) -> None:
        """Wait for room again that others have taken at the last moment; the rest is kept.

        Args:
            unit: the gang that reserves room.
            decisions: by the keys of its members, all of which are nominated.
            lost: what room, for people.
        """
        self.keep(unit, decisions)
        self._go_on(unit)
        count = counted(len(unit.members), "member")
        left = len(unit.members) - len(self._decisions)
        self._tell(unit, f"room for {left} of {count} was lost: {lost}; it is waited for again")

    def leave(self, unit: GangUnit) -> None:
        """Leave the room of a gang, if it has any, to its members."""
        if self.is_of(unit):
            self._forget()

    def _has_lost_room(self, held: HeldPod) -> bool:
        """Return whether a member counts on its node no longer, or others leave no room for it."""
        node_name, state = self._node(held), self._context.state
        if not node_name:
            return False
        is_counted = state.assumed_node(held.key) == node_name
        return not (is_counted and would_stay(state.view(), node_name, held.pod))

    def _node(self, held: HeldPod) -> str:
        """Return the node where a member has room, "" for none."""
        decision = self._decisions.get(held.key)
        return "" if decision is None else decision.node_name

    # Its beginning and its end.

    def _begin_next(self, units: Mapping[GangKey, GangUnit], view: ClusterView) -> None:
        context, now = self._context, self._context.clock()
        waiting: dict[GangKey, float] = {}  # since when, or since it may again
        waited_for: dict[GangKey, float] = {}
        for key, unit in units.items():
            memory = self._memories.of(key)
            since = memory.without_room_since
            is_long = since is not None and now - since >= context.reserve_after_seconds
            rests = (self._rests_until.get(gang.key.namespace, 0.0) for gang in unit.gangs)
            begin = max(memory.reserves_again_at, *rests)
            if since is None or not is_long or now < begin or not self._may_reserve(unit):
                continue
            if exceeds_cluster(unit, view, context.release.fit):
                memory.reserves_again_at = now + context.reserve_after_seconds
            else:
                waiting[key] = max(since, memory.reserves_again_at)
                waited_for[key] = now - since
        chosen = self._turns.take(waiting)
        if chosen is None:
            return
        self._unit, waited = units[chosen], waited_for[chosen]
        self._seconds = min(waited, _LONGEST_SECONDS)
        self._until = now + self._seconds
        self._tell(
            self._unit,
            f"there was no room for all {counted(len(self._unit.members), 'member')} for"
            f" {waited:.0f} s, so it is reserved as it comes free, for {self._seconds:.0f} s at"
            f" most: {self._memories.of(chosen).message}",
        )

    def _may_reserve(self, unit: GangUnit) -> bool:
        """Return whether room that is reserved in parts helps a gang.

        That of one domain is found as a whole; a gang that others are evicted for gets theirs.
        """
        is_in_one_domain = any(gang.topology and gang.topology.required for gang in unit.gangs)
        is_bound_elsewhere = unit.is_released_without_room or self._is_reclaimed_for(unit)
        return not (is_in_one_domain or is_bound_elsewhere)

    def _is_reclaimed_for(self, unit: GangUnit) -> bool:
        records = map(self._context.pods.of, unit.members)
        return any(each.is_reclaiming or each.reclaim is ReclaimStage.READY for each in records)

    def _over(self, unit: GangUnit | None) -> str:
        """Return why the reservation is over, "" if it is not."""
        now = self._context.clock()
        if unit is None:
            return "it is not complete any more"
        if self._is_reclaimed_for(unit):
            return "others are evicted for it"
        if self._refusal:
            return self._refusal
        if self._due_at is not None and now >= self._due_at + _TURN_SECONDS:
            return "its turn does not come"
        if now >= self._until:
            return f"not all of it came free within {self._seconds:.0f} s"
        return ""

    def _go_on(self, unit: GangUnit) -> None:
        """Go on with the members that a gang has now, and with those nodes that have room still."""
        before, self._unit = self._unit, unit
        members = () if before is None else before.members
        gone = [held for held in members if held.key not in unit.member_keys]
        for held in (*gone, *filter(self._has_lost_room, unit.members)):
            if self._decisions.pop(held.key, None) is not None:
                self._give_back(held)

    def _end(self, why: str) -> None:
        """Give all room back."""
        unit, reserved = self._unit, len(self._decisions)
        if unit is None:
            return
        for held in self._forget():
            self._give_back(held)
        memory = self._memories.of(unit.key)
        memory.reserves_again_at = self._context.clock() + self._seconds
        for gang in unit.gangs:
            self._rests_until[gang.key.namespace] = memory.reserves_again_at
        count = counted(len(unit.members), "member")
        memory.message = f"room for {reserved} of {count} was reserved and is given back: {why}"
        self._tell(unit, memory.message)

    def _forget(self) -> list[HeldPod]:
        """End it; return the members that had room."""
        unit, self._unit = self._unit, None
        found = [] if unit is None else [held for held in unit.members if held in self]
        self._decisions, self._due_at, self._refusal = {}, None, ""
        self._is_released = False
        return found

    def _give_back(self, held: HeldPod) -> None:
        """Let the room of a member go; until that can be written, it counts there."""
        context, now = self._context, self._context.held.now(held)
        self._leaving.pop(held.key, None)
        if now is None or context.pods.attempt(now.pod) or context.pods.of(now).is_kept_for_reclaim:
            return
        if not context.releases.may_try(now):
            self._leaving[held.key] = held
        elif now.pod.nominated_node_name:
            context.releases.take_back(now)
        else:
            context.release.nominations.withdraw(now.pod)

    # What is written.

    def _tell(self, unit: GangUnit, message: str) -> None:
        context = self._context
        for gang in unit.gangs:
            member = next(iter(context.members.of(gang.key)), None)
            self._run(context.events.reserving(gang.key, member, message))

    def _write_due(self, unit: GangUnit) -> None:
        """Begin to write the nominations that are not seen, unless others are being written."""
        context = self._context
        if self._writing:
            return
        now = filter(None, map(context.held.now, unit.members))
        due = [
            held
            for held in now
            if self._node(held) not in {"", held.pod.nominated_node_name}
            and context.releases.may_try(held)
        ]
        if due:
            self._writing = frozenset(held.key for held in due)
            self._run(self._write(due))

    async def _write(self, due: Sequence[HeldPod]) -> None:
        try:
            await asyncio.gather(*(self._nominate(held, self._node(held)) for held in due))
        finally:
            self._writing = frozenset()

    async def _nominate(self, held: HeldPod, node_name: str) -> None:
        """Nominate a member; nothing else is written of it until that is seen, or for a while."""
        context, record = self._context, self._context.pods.of(held)
        record.outdated(held.version, context.clock(), is_unseen=True)
        try:
            await context.release.writer.nominate(held, node_name)
        except WriteError as error:
            record.outdated(held.version, context.clock())
            _log.info("room for member `%s` is not reserved: %s", held.key, error)
            if error.failure not in _MAYBE_WRITTEN and self._node(held) == node_name:
                del self._decisions[held.key]
                context.release.nominations.follow(held)
            if error.failure is WriteFailure.REFUSED and self.is_for(held):
                self._refusal = f"member `{held.key}` could not be nominated: {error.message}"

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
