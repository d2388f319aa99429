"""Held pods that are to be released, and their writes until our gate is gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.model.hold import RELEASED_ANNOTATION
from engine.model.time import Micros
from engine.view import ClusterState
from webhook.controllers.release.conditions import QueuedConditions
from webhook.controllers.release.pod_writer import PodWriter
from webhook.controllers.release.quota_queue import QuotaQueue
from webhook.controllers.release.refusals import Refusals
from webhook.controllers.release.releasing import ReleasingStatus
from webhook.controllers.release.states import DecidedPod, ReleaseDecision
from webhook.controllers.release.unbound_releases import Nomination, Release, UnboundReleases
from webhook.controllers.release.write_error import WriteError, WriteFailure
from webhook.placement.held_pods import HeldPod, HeldPods

_CHANGED_SECONDS: Final = 1.0
"""After which a pod that was not as we knew it is tried again, even if nothing is seen of it."""

_UNSEEN_SECONDS: Final = 15.0
"""After which a pod whose release may have been written is tried again, though nothing is seen."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteParts:
    """What writes work with.

    Attributes:
        state: the cluster, in which decided pods count.
        held: the pods that are held.
        unbound: those that are released and not bound.
        writer: writes them.
        refusals: those that somebody refuses.
        releasing: whether pods are released.
        conditions: what held pods say of their wait.
        quota_queue: those that wait for quota.
    """

    state: ClusterState
    held: HeldPods
    unbound: UnboundReleases
    writer: PodWriter
    refusals: Refusals
    releasing: ReleasingStatus
    conditions: QueuedConditions
    quota_queue: QuotaQueue


class DecidedPods:
    """The pods that the leader releases now, each with its writes.

    What fails is left for a later cycle. Writes may end between any two requests, and be repeated.

    Args:
        parts: what they work with.
        now: the time of day.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        parts: WriteParts,
        *,
        now: Callable[[], Micros],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._now = now
        self._clock = clock
        self._by_key: dict[str, DecidedPod] = {}
        self._not_before: dict[str, tuple[int, float]] = {}  # of a key: version, moment
        self._refused: set[str] = set()  # keys of pods whose latest release was refused
        self._writes: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[DecidedPod]:
        return iter(list(self._by_key.values()))

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    @property
    def keys(self) -> Iterable[str]:
        """The keys of the pods that are released now."""
        return self._by_key.keys()

    def get(self, key: str) -> DecidedPod | None:
        """Return a pod that is released now, None for any other."""
        return self._by_key.get(key)

    def schedulers_in_order(self) -> set[str]:
        """Return the schedulers of which a pod that others wait for is about to be released."""
        return {
            decided.held.pod.scheduler_name
            for decided in self._by_key.values()
            if decided.held.pod.is_held_for_order and decided.is_about_to_go
        }

    def may_try(self, held: HeldPod) -> bool:
        """Whether a pod may be written: nobody refuses it, and it is as we know it."""
        version, moment = self._not_before.get(held.key, (0, 0.0))
        is_as_known = held.version != version or self._clock() >= moment
        return is_as_known and self._parts.refusals.is_due(held.pod)

    def reserve(
        self, held: HeldPod, decision: ReleaseDecision, *, is_overdue: bool = False
    ) -> DecidedPod:
        """Release a pod, beside others; where room is reserved for it, the view counts it already.

        Args:
            held: the pod.
            decision: of a node that the pod is nominated to, or of none.
            is_overdue: whether it is released whatever the cluster is like.

        Returns:
            what becomes of it.
        """
        decided = DecidedPod(held=held, decision=decision, is_overdue=is_overdue)
        self._by_key[held.key] = decided
        self._start(decided)
        return decided

    def forget_unheld(self) -> None:
        """Forget what is gone, or seen without our gate: then the view follows the watch."""
        held = self._parts.held
        for key, decided in list(self._by_key.items()):
            now = held.get(key)
            if now is None or now.pod.uid != decided.held.pod.uid:
                del self._by_key[key]
        for key in [key for key in self._not_before if held.get(key) is None]:
            del self._not_before[key]
        self._refused = {key for key in self._refused if held.get(key) is not None}

    def retry(self) -> None:
        """Write again what failed."""
        for decided in self:
            is_left = decided.is_writing or decided.is_released
            if not is_left and self.may_try(decided.held):
                self._start(decided)

    def take_back(self, held: HeldPod) -> None:
        """Let the room go that a pod is nominated to, which waits by now; no write is under way.

        Until that is seen, or for a while, nothing else is written of the pod.
        """
        decided = self._by_key.get(held.key)
        if decided is not None:
            self._give_back(decided)
        if not self.may_try(held):
            return
        self._not_before[held.key] = held.version, self._clock() + _CHANGED_SECONDS
        self._parts.state.nominate(held.key, "")
        task = asyncio.create_task(self._write_back(held))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write_back(self, held: HeldPod) -> None:
        if await self._withdraw(held) and held.pod.nominated_node_name:
            # Until our own watch shows it, the pod looks nominated, and would be released as such.
            self._not_before[held.key] = held.version, self._clock() + _UNSEEN_SECONDS

    def withdraw_stale(self, nomination: Nomination) -> None:
        """Take the nomination of a released pod back that is not bound, beside other writes.

        As long as it stays the scheduler keeps the room, and an autoscaler adds no node for the
        pod.
        """
        task = asyncio.create_task(self._write_stale(nomination))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write_stale(self, nomination: Nomination) -> None:
        try:
            await self._parts.writer.withdraw_stale(nomination)
        except WriteError as error:
            key = f"{nomination.namespace}/{nomination.name}"
            _log.info("nomination of pod `%s`, which is not bound, stays: %s", key, error)

    async def end(self) -> None:
        """End the writes, and take back what the view counts ahead of them."""
        for task in self._writes:
            task.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        for decided in self:
            self._give_back(decided)
            # The view follows the watch, which shows a nomination of ours no second time.
            if not decided.is_released:
                self._parts.state.nominate(decided.held.key, self._seen_nomination(decided.held))

    def _start(self, decided: DecidedPod) -> None:
        decided.is_writing = True
        task = asyncio.create_task(self._write(decided))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write(self, decided: DecidedPod) -> None:
        held, parts = decided.held, self._parts
        try:
            if not decided.is_counted:
                await self._prepare(decided)
            await self._release(decided)
            decided.is_released = True
            self._not_before.pop(held.key, None)
            parts.refusals.forget(held.pod)
            parts.releasing.accepted()
            if held.key in self._refused:
                await self._end_condition(decided)
        except WriteError as error:
            await self._failed(decided, error)
        except Exception:  # noqa: BLE001 - no bug in the writes of a pod ends those of others
            _log.exception("pod `%s` could not be released", held.key)
            self._postpone(decided)
        finally:
            decided.is_writing = False

    async def _prepare(self, decided: DecidedPod) -> None:
        """End the condition of a pod, and take back what it is nominated to without a reason.

        Of a pod whose release was refused the condition stays until it is released after all: it
        would come back with each attempt.
        """
        held, writer = decided.held, self._parts.writer
        condition = None if held.key in self._refused else self._last_condition(decided)
        if held.pod.nominated_node_name and not decided.decision.node_name:
            await writer.withdraw(held, condition)
        elif condition is not None:
            await writer.set_condition(held, condition)

    def _last_condition(self, decided: DecidedPod) -> Mapping[str, str] | None:
        """Return the condition that ends the wait of a pod, None if it has none."""
        node_name = decided.decision.node_name
        message = f"nominated to {node_name}" if node_name else decided.decision.reason
        return self._parts.conditions.released(decided.held, message, self._now())

    async def _end_condition(self, decided: DecidedPod) -> None:
        """Write that the wait of a pod has ended which is released; nothing else depends on it."""
        condition = self._last_condition(decided)
        if condition is not None:
            try:
                await self._parts.writer.set_condition(decided.held, condition)
            except WriteError as error:
                _log.info("condition of pod `%s` stays: %s", decided.held.key, error)

    async def _release(self, decided: DecidedPod) -> None:
        """Remove the gate; the pod counts as unbound before, as its binding may be seen first."""
        held, decision = decided.held, decided.decision
        release = Release(
            key=held.key,
            uid=held.pod.uid,
            scheduler_name=held.pod.scheduler_name,
            is_in_order=held.pod.is_held_for_order,
        )
        self._parts.unbound.add(release)
        decided.is_counted = True
        released = {RELEASED_ANNOTATION: decision.node_name or decision.reason}
        is_repeated = decided.is_unanswered or held.key in self._refused
        annotations = {**decision.annotations, **released}
        await self._parts.writer.release(held, annotations, is_repeated=is_repeated)

    async def _failed(self, decided: DecidedPod, error: WriteError) -> None:
        """Do what the failure of a write asks for."""
        held, failure = decided.held, error.failure
        decided.failure = failure
        if failure is WriteFailure.UNREACHABLE:
            decided.is_unanswered = decided.is_counted
            return
        is_refused = failure in {WriteFailure.REFUSED, WriteFailure.OVER_QUOTA}
        is_new = is_refused and held.key not in self._refused
        if is_refused:
            self._refused.add(held.key)
        if decided.is_unanswered and not is_refused:
            # It was written after all. While the watch is behind, it must not be decided again.
            self._not_before[held.key] = held.version, self._clock() + _UNSEEN_SECONDS
            self._by_key.pop(held.key, None)
            return
        if decided.is_counted:
            self._parts.unbound.discard(held.key)
            decided.is_counted = False
        if failure is WriteFailure.OVER_QUOTA and held.is_queued:
            self._parts.quota_queue.refused(held, error.message)
            self._give_back(decided)
            await self._withdraw(held)
            return
        if not is_refused:
            self._postpone(decided)
            return
        if is_new:
            self._parts.releasing.refused(held.pod.namespace)
        if self._parts.refusals.refused(held.pod, error):
            self._give_back(decided)
            await self._withdraw(held)

    def _postpone(self, decided: DecidedPod) -> None:
        """Give back what a pod has until it is seen as it is now, or for a moment."""
        held = decided.held
        self._not_before[held.key] = held.version, self._clock() + _CHANGED_SECONDS
        self._give_back(decided)

    async def _withdraw(self, held: HeldPod) -> bool:
        """Let the room go that the scheduler keeps for a pod; return whether that is written."""
        try:
            await self._parts.writer.withdraw(held)
        except WriteError as error:
            _log.info("nomination of pod `%s` stays: %s", held.key, error)
            return False
        return True

    def _give_back(self, decided: DecidedPod) -> None:
        key = decided.held.key
        if self._by_key.get(key) is decided:
            del self._by_key[key]
            if not decided.is_released:
                self._parts.state.nominate(key, "")

    def _seen_nomination(self, held: HeldPod) -> str:
        """Return the node that the watch shows a pod nominated to, "" for none."""
        now = self._parts.held.get(held.key)
        if now is None or now.pod.uid != held.pod.uid:
            return ""
        return now.pod.nominated_node_name
