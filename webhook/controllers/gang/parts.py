"""What the release of gangs works with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.model.time import Micros
from engine.view import ClusterState
from webhook.controllers.eviction import EvictionWriter
from webhook.controllers.gang.events import GangEvents
from webhook.controllers.gang.outcome import GangOutcome
from webhook.controllers.release import DecidedPods, GangDecider, PodWriter, Reclaims
from webhook.placement.gang_members import GangMembers
from webhook.placement.held_pods import HeldPods


@dataclass(frozen=True, slots=True, kw_only=True)
class GangParts:
    """What the release of gangs works with.

    Attributes:
        state: the cluster, in which nominated pods count.
        held: the pods that are held.
        members: of all gangs.
        decided: writes releases.
        decider: decides where members go.
        writer: writes nominations.
        evictions: evicts what runs of a gang that failed; None where nothing may be.
        events: tells what became of a gang.
        reclaims: the held pods that others are evicted for.
        now: the time of day.
        count: called with each outcome.
        clock: seconds that only go forward.
        sleep: waits for some seconds.
    """

    state: ClusterState
    held: HeldPods
    members: GangMembers
    decided: DecidedPods
    decider: GangDecider
    writer: PodWriter
    evictions: EvictionWriter | None
    events: GangEvents
    reclaims: Reclaims
    now: Callable[[], Micros]
    count: Callable[[GangOutcome], None] = lambda _outcome: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
