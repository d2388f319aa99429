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
from webhook.controllers.eviction import (
    EvictionContext,
    EvictionController,
    EvictionMetrics,
    Guards,
    RunningPods,
    build,
    quotas_without,
)
from webhook.controllers.gang import GangController
from webhook.controllers.release import ReleaseContext


def evictions_beside(
    release: ReleaseContext,
    *,
    running: RunningPods,
    guards: Guards,
    policies: PolicySet,
    is_ready: Callable[[], bool],
    after: Micros,
    gangs: GangController,
) -> EvictionController:
    """Return a controller of quotas and of preemption, and of nothing of Koordinator's tree."""
    context = EvictionContext(
        connection=release.connection,
        may_write=release.may_write,
        identity="me",
        metrics=EvictionMetrics(CollectorRegistry(), lambda: False),
        state=release.state,
        held=release.held,
        running=running,
        pods=release.pods,
        nominations=release.nominations,
        guards=guards,
        standing=partial(quotas_without, release.quota_queue, release.state),
        tree=QuotaPaths(RESOURCE_QUOTA_RULES).tree,
        is_limited=lambda _view, _namespace: False,
        policies=lambda: policies,
        freshness=lambda: FRESH,
        scope=Scope(),
        now=release.now,
        clock=release.clock,
    )
    return build(
        context,
        waiting=release.quota_queue,
        gangs=gangs,
        eviction_delay=after,
        is_ready=is_ready,
    )
