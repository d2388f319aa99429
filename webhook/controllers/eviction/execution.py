"""The steps of an eviction for held pods: room is reserved before anybody is evicted for it.

All that must outlive the leader is on the objects: the nomination and the annotation of the pod,
and that victims are being deleted. So it may end between any two writes, and another leader plans
again for the pods that it finds so: pods on their way out are no victims of that plan.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from engine.eviction import NoPlan, NoPlanReason, Plan, RunningPod, Victim
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import EvictionMode
from engine.model.hold import QueuedReason
from engine.model.pod import Pod
from engine.release import HeldPod, ReclaimNote, WriteFailure, is_within_room
from webhook.cluster.client.connection import ApiError
from webhook.cluster.object_event import pod_reference
from webhook.controllers.eviction.context import EndedError, EvictionContext
from webhook.controllers.eviction.sources import PlanSource
from webhook.controllers.eviction.writer import (
    Eviction,
    EvictionOutcome,
    EvictionResult,
    victims_text,
)
from webhook.controllers.release.pod_writer import WriteError, all_of

GONE_SECONDS: Final = 600.0
"""Within which victims are to end; a longer grace period is not waited for."""

_REFUSED_SECONDS: Final = 10.0
"""For which evictions that the dry run let pass are tried again; there may be other victims."""

_DONE: Final = {EvictionResult.EVICTED, EvictionResult.DELETED, EvictionResult.GONE}
_REFUSED: Final = {EvictionResult.BLOCKED, EvictionResult.REFUSED}

_TRY_AGAIN_SECONDS: Final = 2.0


@dataclass(eq=False)
class EvictionRound:
    """The evictions of one plan; each step may end in an EndedError.

    `is_blocked` gets a text wherever a budget stands against an eviction; where budgets are
    overridden the pod is deleted then. `check` raises EndedError where the plan is not to be
    carried out any further.
    """

    victims: Sequence[Victim]
    context: EvictionContext
    _: KW_ONLY
    is_evicted: Callable[[Victim], Awaitable[None]]
    is_blocked: Callable[[str], None] = lambda _text: None
    check: Callable[[], object] = lambda: None
    overrides_budgets: bool = False

    async def dry_run(self) -> None:
        """Let the API server check all evictions."""
        for victim in self.victims:
            eviction = await self._evict(victim, is_dry_run=True)
            if eviction.result in _DONE:
                continue
            if eviction.result is EvictionResult.BLOCKED:
                raise EndedError(EvictionOutcome.BLOCKED, self._blocked_text(victim))
            is_refused = eviction.result is EvictionResult.REFUSED
            outcome = EvictionOutcome.REFUSED if is_refused else EvictionOutcome.UNREACHABLE
            raise EndedError(outcome, eviction.message)

    async def record(self) -> None:
        """Write the evictions down, before any: else an ApiError, and nobody may be evicted."""
        await self.context.guards.about_to_evict(self.victims)

    async def evict(self) -> None:
        """Evict all, as their workloads allow.

        What may have failed is tried again until the time for it is over.
        """
        context, left, begin = self.context, list(self.victims), self.context.clock()
        while True:
            await context.turns.read(left)
            results = {
                victim.uid: await self._send(victim)
                for victim in left
                if context.turns.take(victim)
            }
            left = [victim for victim in left if results.get(victim.uid) not in _DONE]
            if not left:
                return
            self.check()
            if not _DONE.isdisjoint(results.values()):
                begin = context.clock()
            is_refused = not _REFUSED.isdisjoint(results.values()) or context.turns.keeps(left)
            if context.clock() >= begin + (_REFUSED_SECONDS if is_refused else GONE_SECONDS):
                outcome = EvictionOutcome.BLOCKED if is_refused else EvictionOutcome.UNREACHABLE
                raise EndedError(outcome, "victims could not be evicted in time")
            await context.sleep(max(_TRY_AGAIN_SECONDS, context.evictions.pause_seconds))

    async def wait_until_gone(self) -> None:
        """Wait until no victim runs any more, or those that do should be gone by now."""
        context, left = self.context, {victim.uid: victim.key for victim in self.victims}

        def are_gone() -> bool:
            self.check()
            for uid, key in list(left.items()):
                if not context.running.runs(key, uid) or context.state.is_overdue(key):
                    del left[uid]
            return not left

        await context.until(are_gone, GONE_SECONDS, EvictionOutcome.STILL_ENDING)

    async def _send(self, victim: Victim) -> EvictionResult:
        eviction = await self._evict(victim)
        match eviction.result:
            case EvictionResult.EVICTED | EvictionResult.DELETED:
                self.context.metrics.evicted_pod(victim.quota)
                await self.is_evicted(victim)
            case EvictionResult.NOT_LEADING:
                raise EndedError(EvictionOutcome.UNREACHABLE, eviction.message)
            case EvictionResult.BLOCKED:
                self.is_blocked(self._blocked_text(victim))
            case _:
                pass
        if eviction.result in _REFUSED:
            self.context.turns.give_back(victim)
        return eviction.result

    async def _evict(self, victim: Victim, *, is_dry_run: bool = False) -> Eviction:
        namespace, _, name = victim.key.partition("/")
        evictions = self.context.evictions
        eviction = await evictions.evict(namespace, name, victim.uid, is_dry_run=is_dry_run)
        if eviction.result is EvictionResult.BLOCKED and self.overrides_budgets:
            return await evictions.delete(namespace, name, victim.uid, is_dry_run=is_dry_run)
        return eviction

    def _blocked_text(self, victim: Victim) -> str:
        running = self.context.running.get(victim.key)
        labels = {} if running is None else running.labels
        names = [
            f"`{budget.key}`"
            for budget in self.context.state.view().all_of(DisruptionBudget)
            if budget.selects(victim.key.partition("/")[0], labels)
        ]
        of = f" {', '.join(names)}" if names else ""
        return f"PodDisruptionBudget{of} protects pod `{victim.key}`"


_MOST_PLANS: Final = 3
"""Plans for one reclaim until one is right when the own watch has shown its nomination."""

_SEEN_SECONDS: Final = 15.0
_ROOM_SECONDS: Final = 5.0
"""For which room may be missing when the victims are gone: events come in any order."""

_BOUND_SECONDS: Final = 90.0

_COUNTED: Final = {EvictionOutcome.BOUND, EvictionOutcome.LOST, EvictionOutcome.NO_ROOM}
"""What guards count: whether room that was made for a pod was used."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class PlanExecution:
    """The steps for one pod, or for those of a gang that get room together.

    The first of the pods stands for all where one must. There is no plan where an earlier leader
    has begun, and left them nominated.
    """

    pods: Sequence[HeldPod]
    plan: Plan | None
    source: PlanSource
    context: EvictionContext

    def __post_init__(self) -> None:
        self._first = self.pods[0]
        self._nodes = (
            {held.key: held.pod.nominated_node_name for held in self.pods}
            if self.plan is None
            else self._nodes_of(self.plan)
        )
        self._has_evicted = self.plan is None  # for all that is known

    async def run(self) -> EvictionOutcome:
        """Carry it out; return how it ended. Where it is cancelled, the next leader goes on."""
        context, held = self.context, self._first
        for each in self.pods:
            context.pods.of(each).reclaim_begins()
        try:
            await self._carry_out()
        except EndedError as end:
            _log.info("reclaim for pod `%s` ended: %s", held.key, end)
            outcome = end.outcome
        except WriteError as error:
            _log.info("reclaim for pod `%s` ended: %s", held.key, error)
            is_refused = error.failure is WriteFailure.REFUSED
            outcome = EvictionOutcome.REFUSED if is_refused else EvictionOutcome.UNREACHABLE
            if error.failure in {WriteFailure.GONE, WriteFailure.CHANGED}:
                outcome = EvictionOutcome.ABANDONED
        except ApiError as error:
            _log.info("reclaim for pod `%s` ended: %s", held.key, error)
            outcome = EvictionOutcome.UNREACHABLE
        else:
            outcome = EvictionOutcome.BOUND if self._has_evicted else EvictionOutcome.NEEDLESS
        context.planned.remove(held.pod.uid)
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

        # 4. Wait for the room. Others that are nominated there may wait for victims of theirs:
        # until these are gone, the scheduler finds no room for either.
        await self._wait_for(self._leaving(self.context.running))
        await self.context.until(self._is_room, _ROOM_SECONDS, EvictionOutcome.NO_ROOM)

        # 5. Let the release controller decide and release the pods, before others.
        self._note(None)
        for held in self.pods:
            self.context.pods.of(held).room_is_there()

        # 6. See where it ends.
        await self._bound()

    async def _reserved(self) -> Plan | None:
        """Nominate the pods; return the plan that is right then, None if nobody is in the way."""
        plan, held, source = self.plan, self._first, self.source
        for _ in range(_MOST_PLANS):
            if plan is not None:
                await self._nominate(plan)
            if source.mode_of(held) is not EvictionMode.ON:
                raise EndedError(EvictionOutcome.CHANGED, "nobody is to be evicted for it any more")
            again = await source.plan(self.pods)
            if isinstance(again, NoPlan):
                if again.reason is NoPlanReason.NOT_NEEDED:
                    # Who evicts nobody claims nobody: else two would wait for each other.
                    self.context.planned.remove(held.pod.uid)
                    return None
                is_blocked = again.reason is NoPlanReason.BLOCKED_BY_PDB
                outcome = EvictionOutcome.BLOCKED if is_blocked else EvictionOutcome.CHANGED
                raise EndedError(outcome, again.message)
            if plan is not None and again.node_names == plan.node_names:
                self.context.planned.set(held.pod.uid, again.victims)
                return again
            plan = again
        raise EndedError(EvictionOutcome.CHANGED, "the best nodes are others each time")

    async def _nominate(self, plan: Plan) -> None:
        context = self.context
        self._nodes = self._nodes_of(plan)
        context.planned.set(self._first.pod.uid, plan.victims)
        self._note(self._waiting(plan))
        for held in self.pods:
            context.nominations.nominate(held.pod, self._nodes[held.key])
        text = victims_text(plan.victims)

        async def write(held: HeldPod) -> None:
            # In this order: with the nomination its reason is found.
            await context.writer.note_plan(held, f"{self._nodes[held.key]}: {text}")
            await context.writer.nominate(held, self._nodes[held.key])

        def are_seen() -> bool:
            now = self._check_held()
            return all(held.pod.nominated_node_name == self._nodes[held.key] for held in now)

        await all_of(write(held) for held in self.pods)
        await context.until(are_seen, _SEEN_SECONDS, EvictionOutcome.UNREACHABLE)

    async def _evict(self, plan: Plan) -> None:
        """Evict the victims of a plan, and wait until they are gone."""
        context, held = self.context, self._first

        async def tell(victim: Victim) -> None:
            message = f"evicted for pod `{held.key}`: {plan.message}"
            await context.events.evicted(victim, message, self.source.event_reasons)

        evictions = EvictionRound(
            plan.victims,
            context,
            is_evicted=tell,
            is_blocked=lambda text: self._note(ReclaimNote(QueuedReason.BLOCKED_BY_PDB, text)),
            check=self._check_held,
            overrides_budgets=plan.overrides_budgets,
        )
        await evictions.dry_run()
        await evictions.record()
        self._has_evicted = True
        about = pod_reference(held.pod.namespace, held.pod.name, held.pod.uid)
        await context.events.evicting(about, plan, self.source.event_reasons)
        await evictions.evict()
        self._note(self._waiting(plan))
        await evictions.wait_until_gone()
        context.planned.remove(held.pod.uid)

    async def _wait_for_leaving(self) -> None:
        """Wait for the room of pods that leave the nodes without an eviction of this leader."""
        context = self.context
        if not all(self._nodes.values()):
            # Nobody is evicted before all are nominated.
            self._has_evicted = False
            raise EndedError(EvictionOutcome.CHANGED, "not all of them were nominated")
        leaving = self._leaving(context.running)
        if not leaving and not self._is_room():
            # The room is on other nodes: the leader that nominated the pods had evicted nobody yet.
            self._has_evicted = False
            names = ", ".join(f"`{name}`" for name in sorted({*self._nodes.values()}))
            raise EndedError(EvictionOutcome.CHANGED, f"nobody leaves node {names}")
        await self._wait_for(leaving)

    async def _wait_for(self, leaving: Sequence[RunningPod]) -> None:
        """Wait until there is room, or pods do not leave the nodes any more."""
        context = self.context

        def is_over() -> bool:
            now = (context.running.get(pod.key) for pod in leaving)
            return self._is_room() or not self._leaving(pod for pod in now if pod is not None)

        await context.until(is_over, GONE_SECONDS, EvictionOutcome.STILL_ENDING)

    def _leaving(self, pods: Iterable[RunningPod]) -> list[RunningPod]:
        """Return the pods on the nodes that are being deleted, or evicted for others.

        Nobody waits for one that should be gone by now: its node may not answer.
        """
        context, nodes = self.context, {*self._nodes.values()}
        claimed = context.planned.of_others(self._first.pod.uid)
        leaving = (
            pod
            for pod in pods
            if (pod.deleting or pod.uid in claimed) and not context.state.is_overdue(pod.key)
        )
        placed = ((pod, context.state.placement(pod.key)) for pod in leaving)
        return [pod for pod, placement in placed if placement and placement[0] in nodes]

    async def _bound(self) -> None:
        context = self.context

        def is_bound(pod: Pod) -> bool:
            if context.running.runs(pod.key, pod.uid):
                return True
            if context.state.entry(pod.key) is None:
                raise EndedError(EvictionOutcome.ABANDONED, f"pod `{pod.key}` is gone")
            return False

        def are_bound() -> bool:
            return all(is_bound(held.pod) for held in self.pods)

        await context.until(are_bound, _BOUND_SECONDS, EvictionOutcome.LOST)

    def _nodes_of(self, plan: Plan) -> dict[str, str]:
        keys = (held.key for held in self.pods)
        return dict(zip(keys, plan.node_names, strict=True))

    def _is_room(self) -> bool:
        self._check_held()
        view = self.context.state.view()
        return all(is_within_room(view, self._nodes[held.key], held.pod) for held in self.pods)

    def _check_held(self) -> list[HeldPod]:
        """Return the pods as they are seen now; end the reclaim if one is not held any more."""
        found = self._still_held()
        if len(found) < len(self.pods):
            keys = {held.key for held in found}
            gone = next(held.key for held in self.pods if held.key not in keys)
            raise EndedError(EvictionOutcome.ABANDONED, f"pod `{gone}` is not held any more")
        return found

    def _still_held(self) -> list[HeldPod]:
        return [*filter(None, map(self.context.held.now, self.pods))]

    def _note(self, note: ReclaimNote | None) -> None:
        for held in self.pods:
            self.context.pods.of(held).reclaim_note = note

    def _waiting(self, plan: Plan) -> ReclaimNote:
        text = f"waits for the end of {victims_text(plan.victims)}: {plan.message}"
        return ReclaimNote(self.source.queued_reason, text)

    async def _count(self, outcome: EvictionOutcome) -> None:
        """Let the guards know of a reclaim that has cost somebody something.

        What victims or their budgets put in its way is not the fault of the pod.
        """
        if not self._has_evicted or outcome not in _COUNTED:
            return
        pod, is_bound = self._first.pod, outcome is EvictionOutcome.BOUND
        try:
            await self.context.guards.ended(pod.uid, pod.namespace, is_bound=is_bound)
        except ApiError as error:
            _log.warning("the end of a reclaim is not written down: %s", error)

    async def _leave(self) -> None:
        """Take back what the pods have that are still held, and leave them to the queue."""
        context = self.context
        counted = [held for held in self._still_held() if context.pods.of(held).is_kept_for_reclaim]
        for held in counted:
            context.nominations.withdraw(held.pod)

        async def write(held: HeldPod) -> None:
            await context.writer.withdraw(held)
            await context.writer.note_plan(held, None)

        def are_seen() -> bool:
            return not any(held.pod.nominated_node_name for held in self._still_held())

        if counted:
            try:
                await all_of(write(held) for held in counted)
                # Until our own watch shows it, a pod looks nominated: it would be released so.
                await context.until(are_seen, _SEEN_SECONDS, EvictionOutcome.UNREACHABLE)
            except WriteError as error:
                _log.info("nomination for pod `%s` stays: %s", self._first.key, error)
            except EndedError as end:
                _log.info("nomination for pod `%s` is not seen to end: %s", self._first.key, end)
        for held in self.pods:
            context.pods.of(held).reclaim_given_up()
