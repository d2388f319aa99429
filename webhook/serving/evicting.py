"""Composition of evictions."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry

from engine.model.kinds import DISRUPTION_BUDGETS, WATCHED_FOR_RECLAIM
from engine.model.time import SECOND, Micros
from engine.quota import QuotaMode, mode_of
from engine.quota.tree import QuotaPaths
from engine.view import ClusterView
from webhook.cluster import Cluster
from webhook.cluster.client.config_map import ConfigMapStore
from webhook.controllers.eviction import (
    EvictionContext,
    EvictionController,
    EvictionMetrics,
    Guards,
    PlanInputs,
    RunningPods,
    build,
    quotas_without,
    waiting_for,
)
from webhook.controllers.gang import GangController
from webhook.controllers.release import ReleaseContext
from webhook.placement.live_policies import LivePolicies
from webhook.settings import Settings


def eviction_controller(
    release: ReleaseContext,
    cluster: Cluster,
    *,
    running: RunningPods,
    gangs: GangController,
    policies: LivePolicies,
    settings: Settings,
    registry: CollectorRegistry,
) -> EvictionController:
    """Return the controller, a task of the leader."""
    connection, may_write, now = release.connection, release.may_write, release.now
    quota_queue = release.quota_queue
    config_map = ConfigMapStore(
        connection,
        namespace=settings.namespace,
        name=f"{settings.lease}-reclaim",
        may_write=may_write,
    )
    guards = Guards(config_map, now)
    context = EvictionContext(
        connection=connection,
        may_write=may_write,
        identity=release.identity,
        metrics=EvictionMetrics(registry, lambda: may_write() and guards.is_paused),
        state=cluster.state,
        held=release.held,
        running=running,
        reclaims=release.reclaims,
        guards=guards,
        standing=partial(quotas_without, quota_queue, cluster.state),
        tree=QuotaPaths(settings.quota_rules()).tree,
        is_limited=partial(_is_limited, settings.quota_mode),
        policies=lambda: policies.current,
        freshness=cluster.freshness,
        scope=settings.scope(),
        in_flight_percent=settings.evictions_in_flight_percent,
        count_write=release.metrics.written,
        now=now,
    )
    inputs = PlanInputs(
        lambda: cluster.is_synced and policies.is_loaded,
        [cluster.sources[kind.name] for kind in (DISRUPTION_BUDGETS, *WATCHED_FOR_RECLAIM)],
        now,
    )
    return build(
        context,
        waiting=waiting_for(quota_queue),
        preemptors=release.preemptors,
        gangs=gangs,
        eviction_delay=Micros(settings.reclaim_after_seconds * SECOND),
        is_ready=inputs.are_ready,
    )


def _is_limited(default: QuotaMode, view: ClusterView, namespace: str) -> bool:
    return mode_of(view, namespace, default) == "Queue"
