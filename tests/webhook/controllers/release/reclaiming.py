"""The reclaim controller beside a release controller, as they are in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.quota import RESOURCE_QUOTA_RULES
from engine.quota.tree import QuotaPaths
from engine.view import FRESH
from webhook.cluster.client.connection import Connection
from webhook.controllers.gang import GangController
from webhook.controllers.reclaim import (
    EvictionEvents,
    EvictionWriter,
    Guards,
    OveruseParts,
    OveruseRevocation,
    PlannedVictims,
    PlanParts,
    PreemptionSource,
    QuotaSource,
    ReclaimController,
    ReclaimParts,
    RunningPods,
    WaitingForQuota,
)
from webhook.controllers.release import Preemptors, Reclaims, WriteParts
from webhook.serving.reclaiming import quota_mode, quotas_without


def reclaims_beside(  # noqa: PLR0913 - named parts, joined in one place
    *,
    writes: WriteParts,
    running: RunningPods,
    reclaims: Reclaims,
    guards: Guards,
    policies: PolicySet,
    connection: Connection,
    may_write: Callable[[], bool],
    is_ready: Callable[[], bool],
    now: Callable[[], Micros],
    clock: Callable[[], float],
    after: Micros,
    preemptors: Preemptors,
    gangs: GangController,
) -> ReclaimController:
    """Return a controller of quotas and of preemption, and of nothing of Koordinator's tree."""
    state, queue, planned = writes.state, writes.quota_queue, PlannedVictims(running)
    evictions = EvictionWriter(connection, may_write=may_write, clock=clock)
    events = EvictionEvents(connection, identity="me")
    parts = ReclaimParts(
        state=state,
        held=writes.held,
        running=running,
        reclaims=reclaims,
        planned=planned,
        guards=guards,
        writer=writes.writer,
        evictions=evictions,
        events=events,
        clock=clock,
    )
    plans = PlanParts(
        state=state,
        running=running,
        planned=planned,
        standing=partial(quotas_without, queue, state),
        policies=lambda: policies,
        freshness=lambda: FRESH,
        scope=Scope(),
        now=now,
    )
    overuse = OveruseParts(
        state=state,
        running=running,
        planned=planned,
        guards=guards,
        evictions=evictions,
        events=events,
        tree=QuotaPaths(RESOURCE_QUOTA_RULES).tree,
        is_limited=lambda _view, _namespace: False,
        now=now,
        clock=clock,
    )
    waiting = WaitingForQuota(queue.blocked, partial(quota_mode, queue))
    return ReclaimController(
        parts,
        [
            QuotaSource(plans, waiting, gangs, after),
            PreemptionSource(plans, preemptors.blocked, gangs),
        ],
        OveruseRevocation(overuse),
        is_ready=is_ready,
        now=now,
    )
