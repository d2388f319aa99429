"""What runs of a gang that could not start as a whole is evicted, so that owners create it again.

A gate cannot be put back on a pod, so this is the only way back into the queue: the new members are
held, as all are when they are created. Budgets hold; where one stands against an eviction, it is
tried again for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from engine.gang import Gang, GangMember
from engine.model.count_text import counted
from webhook.controllers.eviction import EvictionResult, EvictionWriter
from webhook.controllers.gang.events import GangEvents
from webhook.controllers.gang.starts import Start, partial_start
from webhook.placement.gang_members import GangMembers

_LONGEST_SECONDS: Final = 600.0
_TRY_AGAIN_SECONDS: Final = 2.0
_DONE: Final = frozenset({EvictionResult.EVICTED, EvictionResult.GONE})

_log = logging.getLogger(__name__)


async def end_failed(  # noqa: PLR0913 - named parts
    gang: Gang,
    start: Start,
    text: str,
    *,
    members: GangMembers,
    events: GangEvents,
    evictions: EvictionWriter | None,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Do what is to be done with the members of a gang that has failed to start, and tell it.

    Args:
        gang: the gang.
        start: how far it came.
        text: how far it came, for people.
        members: of all gangs.
        events: tells it.
        evictions: evicts; None where nothing may be evicted.
        clock: seconds that only go forward.
        sleep: waits for some seconds.
    """
    of_gang = members.of(gang.key)
    member = next(iter(of_gang), None)
    partial = partial_start(of_gang, start.moment)
    is_kept = not gang.is_recreated or not partial
    if is_kept or evictions is None:
        why = "" if is_kept else ", as no gang may be created again (`recreateGangs`)"
        await events.failed(gang.key, member, f"{text}; they are kept{why}")
        return
    await events.failed(gang.key, member, f"{text}; {len(partial)} are evicted")
    left = await recreate(partial, evictions, clock=clock, sleep=sleep)
    if left:
        _log.warning("gang `%s`: %s could not be evicted", gang.key, counted(left, "member"))


async def recreate(
    members: Sequence[GangMember],
    evictions: EvictionWriter,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """Evict members of a gang, each by its uid; return how many could not be in ten minutes.

    Args:
        members: to evict.
        evictions: evicts.
        clock: seconds that only go forward.
        sleep: waits for some seconds.
    """
    left, until = list(members), clock() + _LONGEST_SECONDS
    while True:
        left = [member for member in left if not await _is_evicted(member, evictions)]
        if not left or clock() >= until:
            return len(left)
        await sleep(max(_TRY_AGAIN_SECONDS, evictions.pause_seconds))


async def _is_evicted(member: GangMember, evictions: EvictionWriter) -> bool:
    eviction = await evictions.evict(member.gang.namespace, member.name, member.uid)
    if eviction.result not in _DONE:
        _log.info("member `%s` of a gang is not evicted: %s", member.key, eviction.message)
    return eviction.result in _DONE
