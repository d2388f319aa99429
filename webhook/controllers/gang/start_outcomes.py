"""What becomes of gangs that are released: they start, or fail, with their group or alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.gang import Gang, GangBackoff, GangKey, GangMode
from engine.view import ClusterView
from webhook.controllers.gang.gang_tasks import GangTasks
from webhook.controllers.gang.gang_unit import group_of
from webhook.controllers.gang.held_gangs import described_gang
from webhook.controllers.gang.memory import GangMemories
from webhook.controllers.gang.outcome import GangOutcome
from webhook.controllers.gang.parts import GangParts
from webhook.controllers.gang.recreation import end_failed
from webhook.controllers.gang.starts import Start, StartingGangs, start_of


class StartOutcomes:
    """Sees which released gangs have started, and does what those say that have failed to.

    Args:
        parts: what it works with.
        memories: what is remembered of gangs.
        backoff: those that failed lately.
        tasks: what is being done for gangs.
    """

    def __init__(
        self, parts: GangParts, memories: GangMemories, backoff: GangBackoff, tasks: GangTasks
    ) -> None:
        self._parts = parts
        self._memories = memories
        self._backoff = backoff
        self._tasks = tasks
        self._starting = StartingGangs(parts.members, parts.now)

    def begin(self) -> None:
        """Begin with those that an earlier leader has released."""
        self._starting.begin()

    def add(self, gangs: Iterable[Gang]) -> None:
        """Note gangs that are released now."""
        self._starting.add(gangs)

    def see(self, view: ClusterView) -> None:
        """Note which released gangs have started, and which have failed to."""
        failed: dict[GangKey, list[tuple[Gang, Start]]] = {}
        for gang, start in self._starting.ended(view, is_busy=self._tasks.__contains__):
            key = group_of(gang)[0]
            if start.bound >= gang.min_member:
                self._backoff.started(key)
                self._parts.count(GangOutcome.STARTED)
            elif start.is_late:
                failed.setdefault(key, []).append((gang, start))
        for key, gangs in failed.items():
            self._fail(key, gangs, view)

    def _fail(self, key: GangKey, gangs: list[tuple[Gang, Start]], view: ClusterView) -> None:
        """Count gangs of one group that have not started in time, and end what is to be ended."""
        texts: dict[GangKey, str] = {}
        for gang, start in gangs:
            self._parts.count(GangOutcome.FAILED)
            texts[gang.key] = (
                f"{start.bound} of {gang.min_member} members are bound after"
                f" {gang.schedule_timeout_seconds} s"
            )
        self._memories.of(key).failed(next(iter(texts.values())))
        self._backoff.failed(key, self._parts.now())
        ended = [(*each, texts[each[0].key]) for each in gangs]
        ended += self._failing_with(gangs, texts, view)
        for gang, _, _ in ended:
            if gang.is_recreated:
                self._keep_held(gang)
        self._tasks.run(key, self._end(ended))

    def _failing_with(
        self, gangs: list[tuple[Gang, Start]], texts: dict[GangKey, str], view: ClusterView
    ) -> Iterator[tuple[Gang, Start, str]]:
        """Yield the other gangs of a group that were released with a Strict one that has failed."""
        strict = next((each for each in gangs if each[0].mode is GangMode.STRICT), None)
        if strict is None:
            return
        gang, failed = strict
        for key in group_of(gang):
            other = None if key in texts else described_gang(key, self._parts.members, view)
            if other is None:
                continue
            start = start_of(other, self._parts.members.of(key), self._parts.now())
            if start.moment == failed.moment:
                yield other, start, f"gang `{gang.key}` of its group failed: {texts[gang.key]}"

    def _keep_held(self, gang: Gang) -> None:
        """Release no member any more that is held still: the others are about to end."""
        parts = self._parts
        for member in parts.members.of(gang.key):
            held = parts.held.get(member.key)
            if held is not None and held.key in parts.decided:
                parts.decided.take_back(held)

    async def _end(self, ended: Iterable[tuple[Gang, Start, str]]) -> None:
        parts = self._parts
        for gang, start, text in ended:
            await end_failed(
                gang,
                start,
                text,
                members=parts.members,
                events=parts.events,
                evictions=parts.evictions,
                clock=parts.clock,
                sleep=parts.sleep,
            )
