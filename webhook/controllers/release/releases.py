"""The releases of held pods: their writes until our gate is gone.

A release is an UPDATE that other admission sees: a policy, a webhook or a missing right can stand
against it, for one pod or for all. Such a pod stays held, shows the reason, and must not keep
others waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from datetime import UTC
from typing import Final

from engine.model.hold import RELEASED_ANNOTATION
from engine.model.time import date
from engine.release import (
    HeldPod,
    HeldPodRecord,
    HeldPodRegistry,
    Next,
    ReleaseAttempt,
    ReleaseDecision,
    WriteRefusal,
)
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, pod_reference
from webhook.controllers.release.context import ReleaseContext
from webhook.controllers.release.pod_writer import WriteError

_EVENT_INTERVAL_SECONDS: Final = 600.0
_EVENT_RETRY_SECONDS: Final = 60.0
_MOST_EVENTS: Final = 20  # in a call

_log = logging.getLogger(__name__)


class Releases:
    """Writes the pods that the leader releases now.

    What fails is left for a later cycle. Writes may end between any two requests, and be repeated.
    """

    def __init__(self, context: ReleaseContext) -> None:
        self._context = context
        self._pods = context.pods
        self._tasks: set[asyncio.Task[None]] = set()

    def may_try(self, held: HeldPod) -> bool:
        """Whether a pod may be written: nobody refuses it, and it is as we know it."""
        return self._pods.of(held).may_be_written(held.version, self._context.clock())

    def begin(
        self, held: HeldPod, decision: ReleaseDecision, *, is_overdue: bool = False
    ) -> ReleaseAttempt:
        """Release a pod, beside others; where it is nominated, it counts on its node already."""
        attempt = self._pods.of(held).release_begins(held, decision, is_overdue=is_overdue)
        self._start(attempt)
        return attempt

    def retry(self) -> None:
        """Write again what failed."""
        for attempt in self._pods.releasing():
            is_idle = not (attempt.is_writing or attempt.is_accepted)
            if is_idle and self.may_try(attempt.held):
                self._start(attempt)

    def take_back(self, held: HeldPod) -> None:
        """Let the room go that a pod is nominated to, which waits by now; no write is under way.

        Until that is seen, or for a while, nothing else is written of the pod.
        """
        record = self._pods.of(held)
        if record.attempt is not None:
            self._give_back(record.attempt)
        if self.may_try(held):
            record.outdated(held.version, self._context.clock())
            self._context.nominations.withdraw(held.pod)
            self._run(self._write_back(held))

    def withdraw_unfollowed(self, record: HeldPodRecord) -> None:
        """Take the nomination of a released pod back that is not bound, beside other writes.

        As long as it stays the scheduler keeps the room, and an autoscaler adds no node for the
        pod.
        """
        self._run(self._write_unfollowed(record))

    async def end(self) -> None:
        """End the writes, and take back what the view counts ahead of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for attempt in self._pods.releasing():
            self._give_back(attempt)
            # The view follows the watch, which shows a nomination of ours no second time.
            if not attempt.is_accepted:
                self._context.nominations.follow(attempt.held)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start(self, attempt: ReleaseAttempt) -> None:
        is_prepared = attempt.is_sent
        attempt.write_begins()
        self._run(self._write(attempt, is_prepared=is_prepared))

    async def _write(self, attempt: ReleaseAttempt, *, is_prepared: bool) -> None:
        held = attempt.held
        was_refused = self._pods.of(held).was_refused  # it is forgotten once the release is seen
        try:
            if not is_prepared:
                await self._prepare(attempt, was_refused=was_refused)
            await self._release(attempt)
            self._pods.of(held).release_accepted(attempt)
            self._context.health.accepted()
            if was_refused:
                await self._end_condition(attempt)
        except WriteError as error:
            await self._failed(attempt, error)
        except Exception:  # noqa: BLE001 - no bug in the writes of a pod ends those of others
            _log.exception("pod `%s` could not be released", held.key)
            self._pods.of(held).outdated(held.version, self._context.clock())
            self._give_back(attempt)
        finally:
            attempt.write_ended()

    async def _prepare(self, attempt: ReleaseAttempt, *, was_refused: bool) -> None:
        """End the condition of a pod, and take back what it is nominated to without a reason.

        Of a pod whose release was refused the condition stays until it is released after all: it
        would come back with each attempt.
        """
        held, writer = attempt.held, self._context.writer
        condition = None if was_refused else self._last_condition(attempt)
        if held.pod.nominated_node_name and not attempt.decision.node_name:
            await writer.withdraw(held, condition)
        elif condition is not None:
            await writer.set_condition(held, condition)

    def _last_condition(self, attempt: ReleaseAttempt) -> Mapping[str, str] | None:
        """Return the condition that ends the wait of a pod, None if it has none."""
        node_name = attempt.decision.node_name
        message = f"nominated to {node_name}" if node_name else attempt.decision.reason
        return self._context.conditions.released(attempt.held, message, self._context.now())

    async def _end_condition(self, attempt: ReleaseAttempt) -> None:
        """Write that the wait of a pod has ended which is released; nothing else depends on it."""
        condition = self._last_condition(attempt)
        if condition is not None:
            try:
                await self._context.writer.set_condition(attempt.held, condition)
            except WriteError as error:
                _log.info("condition of pod `%s` stays: %s", attempt.held.key, error)

    async def _release(self, attempt: ReleaseAttempt) -> None:
        """Remove the gate; the pod counts as unbound before, as its binding may be seen first."""
        held, decision = attempt.held, attempt.decision
        record = self._pods.of(held)
        record.release_sent(attempt, self._context.clock())
        released = {RELEASED_ANNOTATION: decision.node_name or decision.reason}
        await self._context.writer.release(
            held,
            {**decision.annotations, **released},
            is_repeated=attempt.is_doubtful or record.was_refused,
        )

    async def _failed(self, attempt: ReleaseAttempt, error: WriteError) -> None:
        """Do what the failure of a write asks for."""
        held, context, record = attempt.held, self._context, self._pods.of(attempt.held)
        was_refused, was_counted = record.was_refused, record.released_at is not None
        follows = record.release_failed(
            attempt,
            error.failure,
            error.message,
            retry_after=error.retry_after_seconds,
            now=context.now(),
            at=context.clock(),
        )
        if was_counted and record.released_at is None:
            context.unbound.changed.set()
        if record.refusal is not None and not was_refused and follows is not Next.WAIT_FOR_QUOTA:
            context.health.refused(held.pod.namespace)
        if follows is Next.WAIT_FOR_QUOTA:
            context.quota_queue.refused(held, error.message)
        if follows in {Next.GIVE_BACK, Next.WITHDRAW, Next.WAIT_FOR_QUOTA}:
            self._give_back(attempt)
        if follows in {Next.WITHDRAW, Next.WAIT_FOR_QUOTA}:
            await self._write_back(held)

    async def _write_back(self, held: HeldPod) -> None:
        if await self._withdraw(held) and held.pod.nominated_node_name:
            # Until our own watch shows it, the pod looks nominated, and would be released as such.
            self._pods.of(held).outdated(held.version, self._context.clock(), is_unseen=True)

    async def _write_unfollowed(self, record: HeldPodRecord) -> None:
        try:
            await self._context.writer.withdraw_unfollowed(record.pod, record.unfollowed_nomination)
        except WriteError as error:
            key = record.pod.key
            _log.info("nomination of pod `%s`, which is not bound, stays: %s", key, error)

    async def _withdraw(self, held: HeldPod) -> bool:
        """Let the room go that the scheduler keeps for a pod; return whether that is written."""
        try:
            await self._context.writer.withdraw(held)
        except WriteError as error:
            _log.info("nomination of pod `%s` stays: %s", held.key, error)
            return False
        return True

    def _give_back(self, attempt: ReleaseAttempt) -> None:
        if self._pods.of(attempt.held).given_back(attempt):
            self._context.nominations.withdraw(attempt.held.pod)


async def write_refusals(
    pods: HeldPodRegistry, connection: Connection, identity: str, at: float
) -> None:
    """Write the Events that are due: on pods that were refused three times, some at a call."""
    due = [
        (record, refusal)
        for record in pods.refused()
        if (refusal := record.refusal) is not None and refusal.is_lasting and at >= refusal.event_at
    ]
    for record, refusal in due[:_MOST_EVENTS]:
        written = await _event_of(record, refusal).write(connection, identity)
        refusal.event_at = at + (_EVENT_INTERVAL_SECONDS if written else _EVENT_RETRY_SECONDS)


def _event_of(record: HeldPodRecord, refusal: WriteRefusal) -> ObjectEvent:
    pod = record.pod
    return ObjectEvent(
        about=pod_reference(pod.namespace, pod.name, pod.uid),
        reason="ReleaseRefused",
        action="Release",
        message=f"the pod stays held, its release is refused: {refusal.message}",
        count=refusal.count,
        since=date(refusal.since).astimezone(UTC),
        until=date(refusal.until).astimezone(UTC),
    )
