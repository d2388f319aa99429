"""The controllers of releases and gangs under test, as one process has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.gang import DEFAULT_RESERVE_AFTER_SECONDS
from webhook.controllers.eviction import EvictionWriter
from webhook.controllers.gang import GangContext, GangController, GangOutcome
from webhook.controllers.release import (
    GangDecider,
    ReleaseContext,
    ReleaseController,
    Releases,
)
from webhook.placement.held_pods import GangMembers


def controllers(
    release: ReleaseContext,
    decider: GangDecider,
    members: GangMembers,
    *,
    is_ready: Callable[[], bool],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    count: Callable[[GangOutcome], None] = lambda _outcome: None,
    reserve_after_seconds: float = DEFAULT_RESERVE_AFTER_SECONDS,
) -> tuple[ReleaseController, GangController]:
    """Return the controller of held pods, and that of the gangs whose members are seen."""
    releases = Releases(release)
    gangs = GangController(
        GangContext(
            release=release,
            releases=releases,
            decider=decider,
            members=members,
            evictions=EvictionWriter(
                release.connection, may_write=release.may_write, clock=release.clock
            ),
            count=count,
            reserve_after_seconds=reserve_after_seconds,
            sleep=sleep,
        )
    )
    return ReleaseController(release, releases, gangs, is_ready=is_ready), gangs
