"""The controller of evictions beside a release controller, as they are in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry

from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.quota import RESOURCE_QUOTA_RULES
from engine.quota.tree import QuotaPaths
from engine.view import FRESH
from webhook.cluster.client.connection import Connection
from webhook.controllers.eviction import (
    EvictionContext,
    EvictionController,
    EvictionMetrics,
    Guards,
    RunningPods,
    build,
    quotas_without,
    waiting_for,
)
from webhook.controllers.gang import GangController
from webhook.controllers.release import Preemptors, Reclaims, WriteParts


def evictions_beside(  # noqa: PLR0913 - named parts, joined in one place
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
) -> EvictionController:
    """Return a controller of quotas and of preemption, and of nothing of Koordinator's tree."""
    context = EvictionContext(
        connection=connection,
        may_write=may_write,
        identity="me",
        metrics=EvictionMetrics(CollectorRegistry(), lambda: False),
        state=writes.state,
        held=writes.held,
        running=running,
        reclaims=reclaims,
        guards=guards,
        standing=partial(quotas_without, writes.quota_queue, writes.state),
        tree=QuotaPaths(RESOURCE_QUOTA_RULES).tree,
        is_limited=lambda _view, _namespace: False,
        policies=lambda: policies,
        freshness=lambda: FRESH,
        scope=Scope(),
        now=now,
        clock=clock,
    )
    return build(
        context,
        waiting=waiting_for(writes.quota_queue),
        preemptors=preemptors,
        gangs=gangs,
        eviction_delay=after,
        is_ready=is_ready,
    )
