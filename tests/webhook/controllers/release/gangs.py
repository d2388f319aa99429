"""The controller of gangs beside a release controller under test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.model.time import Micros
from webhook.cluster.client.connection import Connection
from webhook.controllers.eviction import EvictionWriter
from webhook.controllers.gang import GangController, GangEvents, GangOutcome, GangParts
from webhook.controllers.release import DecidedPods, GangDecider, Reclaims, WriteParts
from webhook.placement.gang_members import GangMembers


def gangs_beside(  # noqa: PLR0913 - named parts, joined in one place
    *,
    writes: WriteParts,
    decided: DecidedPods,
    decider: GangDecider,
    members: GangMembers,
    reclaims: Reclaims,
    connection: Connection,
    may_write: Callable[[], bool],
    now: Callable[[], Micros],
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    count: Callable[[GangOutcome], None] = lambda _outcome: None,
) -> GangController:
    """Return the controller of the gangs whose members an observer has seen."""
    return GangController(
        GangParts(
            state=writes.state,
            held=writes.held,
            members=members,
            decided=decided,
            decider=decider,
            writer=writes.writer,
            evictions=EvictionWriter(connection, may_write=may_write, clock=clock),
            events=GangEvents(connection, identity="me", view=writes.state.view),
            reclaims=reclaims,
            now=now,
            count=count,
            clock=clock,
            sleep=sleep,
        )
    )
