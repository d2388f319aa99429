"""The releases of gangs that are under way, each a task of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC

from engine.gang import Gang, GangBackoff, GangKey
from engine.model.time import date
from webhook.controllers.gang.completeness import missing_members
from webhook.controllers.gang.gang_release import GangRelease, GangReleaseParts
from webhook.controllers.gang.gang_tasks import GangTasks
from webhook.controllers.gang.gang_unit import GangUnit
from webhook.controllers.gang.memory import GangMemories
from webhook.controllers.gang.outcome import GangOutcome
from webhook.controllers.gang.parts import GangParts
from webhook.controllers.release import GangPart, ReleaseDecision
from webhook.placement.held_pods import HeldPod


class GangReleases:
    """Starts releases of gangs, and notes how they end.

    Args:
        parts: of the controller.
        memories: what is remembered of gangs.
        backoff: of those that failed.
        tasks: of gangs.
        released: called with the gangs that were released.
    """

    def __init__(
        self,
        parts: GangParts,
        memories: GangMemories,
        backoff: GangBackoff,
        tasks: GangTasks,
        released: Callable[[Sequence[Gang]], None],
    ) -> None:
        self._parts = parts
        self._release_parts = GangReleaseParts(
            state=parts.state,
            held=parts.held,
            decided=parts.decided,
            writer=parts.writer,
            place=lambda unit: parts.decider.decide(unit.parts),
            missing=lambda unit: missing_members(unit, parts.members),
            clock=parts.clock,
            sleep=parts.sleep,
        )
        self._memories = memories
        self._backoff = backoff
        self._tasks = tasks
        self._released = released
        self._by_key: dict[GangKey, GangRelease] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def prepared(self) -> list[HeldPod]:
        """Return the pods that are nominated and wait for the nominations of their gang."""
        return [held for release in self._by_key.values() for held in release.prepared()]

    def go_on(self, gang: Gang, members: Sequence[HeldPod]) -> None:
        """Release the other members of a gang of which an earlier leader has released some."""
        prepared = tuple(held for held in members if held.pod.nominated_node_name)
        if not prepared:
            return  # they are decided already
        unit = GangUnit(parts=(GangPart(gang, prepared),), first=prepared[0])
        decisions = {
            held.key: ReleaseDecision(node_name=held.pod.nominated_node_name) for held in prepared
        }
        moment = max((each.released_with for each in self._parts.members.of(gang.key)), default="")
        self.start(unit, decisions, moment=moment, is_begun=True)

    def start(
        self,
        unit: GangUnit,
        decisions: Mapping[str, ReleaseDecision],
        *,
        moment: str = "",
        is_begun: bool = False,
    ) -> None:
        """Begin to release a gang.

        Args:
            unit: the gang.
            decisions: for its members, by key.
            moment: of the release, where it is under way already.
            is_begun: whether it is, or no room is to be reserved.
        """
        moment = moment or f"{date(self._parts.now()).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        release = GangRelease(unit, decisions, moment, self._release_parts)
        self._by_key[unit.key] = release
        self._tasks.run(unit.key, self._run(release, is_begun=is_begun))

    async def _run(self, release: GangRelease, *, is_begun: bool) -> None:
        unit, parts = release.unit, self._parts
        try:
            outcome = await release.run(is_begun=is_begun)
        finally:
            del self._by_key[unit.key]
        parts.count(outcome)
        member = next(iter(parts.members.of(unit.key)), None)
        if outcome is GangOutcome.RELEASED:
            self._released(unit.gangs)
            for part in unit.parts:
                await parts.events.released(part.gang.key, member, len(part.members))
            return
        self._memories.of(unit.key).failed(release.message)
        self._backoff.failed(unit.key, parts.now())
        await parts.events.taken_back(unit.key, member, release.message)
