"""One reclaim, step by step: room is reserved before anybody is evicted for it.

All that must outlive the leader is on the objects: the nomination and the annotation of the pod,
and that victims are being deleted. So it may end between any two writes, and another leader plans
again for the pods that it finds so: whoever is on the way out is no victim of that plan.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason
from engine.reclaim import NoPlan, NoPlanReason, Plan, RunningPod, Victim
from webhook.cluster.client.connection import ApiError
from webhook.cluster.object_event import pod_reference
from webhook.controllers.reclaim.events import EvictionEvents, victims_text
from webhook.controllers.reclaim.eviction_round import (
    GONE_SECONDS,
    EndedError,
    EvictionParts,
    EvictionRound,
)
from webhook.controllers.reclaim.outcome import Outcome
from webhook.controllers.reclaim.plan_source import PlanSource
from webhook.controllers.release.node_room import is_within_room
from webhook.controllers.release.pod_writer import PodWriter, all_of
from webhook.controllers.release.reclaims import ReclaimNote, Reclaims
from webhook.controllers.release.write_error import WriteError, WriteFailure
from webhook.placement.held_pods import HeldPod, HeldPods

_MOST_PLANS: Final = 3
"""Plans for one reclaim until one is right when the own watch has shown its nomination."""

_SEEN_SECONDS: Final = 15.0
_ROOM_SECONDS: Final = 5.0
"""For which room may be missing when the victims are gone: events come in any order."""

_BOUND_SECONDS: Final = 90.0

_COUNTED: Final = {Outcome.BOUND, Outcome.LOST, Outcome.NO_ROOM}
"""What guards count: whether room that was made for a pod was used."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimParts(EvictionParts):
    """What reclaims work with.

    Attributes:
        held: the pods that are held.
        reclaims: what the release controller knows of reclaims.
        writer: writes held pods.
        events: tells both sides.
    """

    held: HeldPods
    reclaims: Reclaims
    writer: PodWriter
    events: EvictionEvents


class Reclaim:
    """The steps for one pod, or for those of a gang that get room together.

    Args:
        pods: that get room, at least one; the first stands for all where one must.
        plan: for them; None where an earlier leader has begun, and left them nominated.
        source: of plans for them.
        parts: what it works with.
    """

    def __init__(
        self, pods: Sequence[HeldPod], plan: Plan | None, source: PlanSource, parts: ReclaimParts
    ) -> None:
        self._pods = pods
        self._first = pods[0]
        self._plan = plan
        self._source = source
        self._parts = parts
        self._nodes = (
            {held.key: held.pod.nominated_node_name for held in pods}
            if plan is None
            else self._nodes_of(plan)
        )
        self._has_evicted = plan is None  # for all that is known

    async def run(self) -> Outcome:
        """Carry it out; return how it ended. Where it is cancelled, the next leader goes on."""
        parts, held = self._parts, self._first
        for each in self._pods:
            parts.reclaims.keep(each)
        try:
            await self._carry_out()
        except EndedError as end:
            _log.info("reclaim for pod `%s` ended: %s", held.key, end)
            outcome = end.outcome
        except WriteError as error:
            _log.info("reclaim for pod `%s` ended: %s", held.key, error)
            is_refused = error.failure is WriteFailure.REFUSED
            outcome = Outcome.REFUSED if is_refused else Outcome.UNREACHABLE
            if error.failure in {WriteFailure.GONE, WriteFailure.CHANGED}:
                outcome = Outcome.ABANDONED
        except ApiError as error:
            _log.info("reclaim for pod `%s` ended: %s", held.key, error)
            outcome = Outcome.UNREACHABLE
        else:
            outcome = Outcome.BOUND if self._has_evicted else Outcome.NEEDLESS
        parts.planned.remove(held.pod.uid)
        await self._count(outcome)
        await self._leave()
        return outcome

    async def _carry_out(self) -> None:
        # 1. Reserve: the scheduler and all views keep the room, while the pod is held.
        # 2. Plan again, on the newest view, once our own watch shows the nomination.
        plan = await self._reserved()

        # 3. Evict, once dry runs say that all may be evicted; wait until they are gone.
        if plan is None:
            await self._wait_for_leaving()
        else:
            await self._evict(plan)

        # 4. Wait for the room.
        await self._parts.until(self._is_room, _ROOM_SECONDS, Outcome.NO_ROOM)

        # 5. Let the release controller decide and release the pods, before others.
        self._note(None)
        for held in self._pods:
            self._parts.reclaims.set_ready(held)

        # 6. See where it ends.
        await self._bound()

    async def _reserved(self) -> Plan | None:
        """Nominate the pods; return the plan that is right then, None if nobody is in the way."""
        plan, held, source = self._plan, self._first, self._source
        for _ in range(_MOST_PLANS):
            if plan is not None:
                await self._nominate(plan)
            if source.mode_of(held) is not ReclaimMode.ON:
                raise EndedError(Outcome.CHANGED, "nobody is to be evicted for it any more")
            again = await source.plan(self._pods, self._parts.guards)
            if isinstance(again, NoPlan):
                if again.reason is NoPlanReason.NOT_NEEDED:
                    # Who evicts nobody claims nobody: else two would wait for each other.
                    self._parts.planned.remove(held.pod.uid)
                    return None
                raise EndedError(_outcome_of(again), again.message)
            if plan is not None and again.node_names == plan.node_names:
                self._parts.planned.set(held.pod.uid, again.victims)
                return again
            plan = again
        raise EndedError(Outcome.CHANGED, "the best nodes are others each time")

    async def _nominate(self, plan: Plan) -> None:
        parts = self._parts
        self._nodes = self._nodes_of(plan)
        parts.planned.set(self._first.pod.uid, plan.victims)
        self._note(self._waiting(plan))
        for key, node_name in self._nodes.items():
            parts.state.nominate(key, node_name)
        text = victims_text(plan.victims)

        async def write(held: HeldPod) -> None:
            # In this order: whoever finds the nomination finds why.
            await parts.writer.note_plan(held, f"{self._nodes[held.key]}: {text}")
            await parts.writer.nominate(held, self._nodes[held.key])

        await all_of(write(held) for held in self._pods)
        await parts.until(self._is_seen, _SEEN_SECONDS, Outcome.UNREACHABLE)

    async def _evict(self, plan: Plan) -> None:
        """Evict the victims of a plan, and wait until they are gone."""
        parts, held = self._parts, self._first

        async def tell(victim: Victim) -> None:
            message = f"evicted for pod `{held.key}`: {plan.message}"
            await parts.events.evicted(victim, message, self._source.event_reasons)

        evictions = EvictionRound(
            plan.victims,
            parts,
            is_evicted=tell,
            is_blocked=self._note_blocked,
            check=self._check_held,
        )
        await evictions.dry_run()
        await evictions.record()
        self._has_evicted = True
        about = pod_reference(held.pod.namespace, held.pod.name, held.pod.uid)
        await parts.events.evicting(about, plan, self._source.event_reasons)
        await evictions.evict()
        self._note(self._waiting(plan))
        await evictions.wait_until_gone()
        parts.planned.remove(held.pod.uid)

    async def _wait_for_leaving(self) -> None:
        """Wait for the room of pods that leave the nodes without an eviction of this leader."""
        parts = self._parts
        if not all(self._nodes.values()):
            # Nobody is evicted before all are nominated.
            self._has_evicted = False
            raise EndedError(Outcome.CHANGED, "not all of them were nominated")
        leaving = self._leaving(parts.running)
        if not leaving and not self._is_room():
            # The room is on other nodes: whoever nominated the pods had evicted nobody yet.
            self._has_evicted = False
            names = ", ".join(f"`{name}`" for name in sorted({*self._nodes.values()}))
            raise EndedError(Outcome.CHANGED, f"nobody leaves node {names}")

        def is_over() -> bool:
            now = (parts.running.get(pod.key) for pod in leaving)
            return self._is_room() or not self._leaving(pod for pod in now if pod is not None)

        await parts.until(is_over, GONE_SECONDS, Outcome.STILL_ENDING)

    def _leaving(self, pods: Iterable[RunningPod]) -> list[RunningPod]:
        """Return the pods on the nodes that are being deleted, or evicted for others.

        Nobody waits for one that should be gone by now: its node may not answer.
        """
        parts, nodes = self._parts, {*self._nodes.values()}
        claimed = parts.planned.of_others(self._first.pod.uid)
        leaving = (
            pod
            for pod in pods
            if (pod.deleting or pod.uid in claimed) and not parts.state.is_overdue(pod.key)
        )
        placed = ((pod, parts.state.placement(pod.key)) for pod in leaving)
        return [pod for pod, placement in placed if placement and placement[0] in nodes]

    async def _bound(self) -> None:
        parts = self._parts

        def is_bound(pod: Pod) -> bool:
            if parts.running.runs(pod.key, pod.uid):
                return True
            if parts.state.entry(pod.key) is None:
                raise EndedError(Outcome.ABANDONED, f"pod `{pod.key}` is gone")
            return False

        def are_bound() -> bool:
            return all(is_bound(held.pod) for held in self._pods)

        await parts.until(are_bound, _BOUND_SECONDS, Outcome.LOST)

    def _nodes_of(self, plan: Plan) -> dict[str, str]:
        """Return the node of each pod by its key."""
        keys = (held.key for held in self._pods)
        return dict(zip(keys, plan.node_names, strict=True))

    def _is_seen(self) -> bool:
        return all(
            held.pod.nominated_node_name == self._nodes[held.key] for held in self._check_held()
        )

    def _is_unnominated(self) -> bool:
        return not any(held.pod.nominated_node_name for held in self._still_held())

    def _is_room(self) -> bool:
        self._check_held()
        view = self._parts.state.view()
        return all(is_within_room(view, self._nodes[held.key], held.pod) for held in self._pods)

    def _check_held(self) -> list[HeldPod]:
        """Return the pods as they are seen now; end the reclaim if one is not held any more."""
        found = self._still_held()
        if len(found) < len(self._pods):
            keys = {held.key for held in found}
            gone = next(held.key for held in self._pods if held.key not in keys)
            raise EndedError(Outcome.ABANDONED, f"pod `{gone}` is not held any more")
        return found

    def _still_held(self) -> list[HeldPod]:
        """Return the pods that are held, as they are seen now."""
        seen = ((held, self._parts.held.get(held.key)) for held in self._pods)
        return [now for held, now in seen if now is not None and now.pod.uid == held.pod.uid]

    def _note(self, note: ReclaimNote | None) -> None:
        for held in self._pods:
            self._parts.reclaims.set_note(held, note)

    def _waiting(self, plan: Plan) -> ReclaimNote:
        text = f"waits for the end of {victims_text(plan.victims)}: {plan.message}"
        return ReclaimNote(self._source.wait_reason, text)

    def _note_blocked(self, text: str) -> None:
        self._note(ReclaimNote(QueuedReason.BLOCKED_BY_PDB, text))

    async def _count(self, outcome: Outcome) -> None:
        """Let the guards know of a reclaim that has cost somebody something.

        What victims or their budgets put in its way is not the fault of the pod.
        """
        if not self._has_evicted or outcome not in _COUNTED:
            return
        pod, is_bound = self._first.pod, outcome is Outcome.BOUND
        try:
            await self._parts.guards.ended(pod.uid, pod.namespace, is_bound=is_bound)
        except ApiError as error:
            _log.warning("the end of a reclaim is not written down: %s", error)

    async def _leave(self) -> None:
        """Take back what the pods have that are still held, and leave them to the queue."""
        parts = self._parts
        counted = [held for held in self._still_held() if parts.reclaims.counts(held)]
        for held in counted:
            parts.state.nominate(held.key, "")

        async def write(held: HeldPod) -> None:
            await parts.writer.withdraw(held)
            await parts.writer.note_plan(held, None)

        if counted:
            try:
                await all_of(write(held) for held in counted)
                # Until our own watch shows it, a pod looks nominated: it would be released so.
                await parts.until(self._is_unnominated, _SEEN_SECONDS, Outcome.UNREACHABLE)
            except WriteError as error:
                _log.info("nomination for pod `%s` stays: %s", self._first.key, error)
            except EndedError as end:
                _log.info("nomination for pod `%s` is not seen to end: %s", self._first.key, end)
        for held in self._pods:
            parts.reclaims.give_up(held)


def _outcome_of(no_plan: NoPlan) -> Outcome:
    is_blocked = no_plan.reason is NoPlanReason.BLOCKED_BY_PDB
    return Outcome.BLOCKED if is_blocked else Outcome.CHANGED
