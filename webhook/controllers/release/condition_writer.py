"""Writes on held pods why they wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from webhook.controllers.release.conditions import IN_ORDER, DueCondition, Wait
from webhook.controllers.release.parts import ReleaseParts
from webhook.controllers.release.write_error import WriteError
from webhook.placement.held_pods import HeldPod

_NOT_BOUND: Final = Wait(QueuedReason.WAITING_FOR_BINDINGS, "the one before it is not bound yet")
_NO_NODE: Final = Wait(QueuedReason.WAITING_FOR_CAPACITY, "no node takes it")

_log = logging.getLogger(__name__)


class ConditionWriter:
    """Writes the conditions of held pods, in a task of its own beside the cycles.

    Args:
        parts: of the release controller.
        now: the time of day.
    """

    def __init__(self, parts: ReleaseParts, *, now: Callable[[], Micros]) -> None:
        self._parts = parts
        self._writes = parts.writes
        self._now = now
        self._task: asyncio.Task[None] | None = None

    def write_due(self, waiting: Sequence[HeldPod]) -> None:
        """Begin to write the conditions that are due, unless the last ones are still under way.

        Args:
            waiting: the pods that stay held, in the queue order.
        """
        is_writing = self._task is not None and not self._task.done()
        now = self._now()
        if is_writing or not self._writes.conditions.is_due(now):
            return
        due = self._writes.conditions.due(waiting, now, self._wait)
        if due:
            self._task = asyncio.create_task(self._write(due))

    async def end(self) -> None:
        """End all writes."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _wait(self, held: HeldPod) -> Wait:
        """Return what a pod waits for."""
        refusal = self._writes.refusals.message(held.pod)
        if refusal:
            return Wait(QueuedReason.RELEASE_REFUSED, refusal)
        parts = self._parts
        busy = self._writes.unbound.schedulers_in_order()
        is_next = held.pod.is_held_for_order and held.pod.scheduler_name in busy
        in_order = _NOT_BOUND if is_next else IN_ORDER
        in_order = _NO_NODE if held in parts.preemptors else in_order
        of_quota = parts.pace.condition(parts.gangs.first(held).key)
        wait = of_quota or parts.gangs.wait(held) or in_order
        note = parts.reclaims.note(held)
        if note is None:
            return wait
        detail = "; ".join(filter(None, (wait.detail, note.text)))
        return wait._replace(reason=note.reason or wait.reason, detail=detail)

    async def _write(self, due: Sequence[DueCondition]) -> None:
        for held, condition in due:
            if self._writes.held.get(held.key) is not held or held.key in self._parts.decided:
                continue
            try:
                await self._writes.writer.set_condition(held, condition)
            except WriteError as error:
                _log.debug("condition of pod `%s`: %s", held.key, error)
