"""Composition of reclaim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry

from engine.model.elastic_quota import QuotaKey, ReclaimMode
from engine.model.kinds import DISRUPTION_BUDGETS, WATCHED_FOR_RECLAIM
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.quota import QuotaMode, mode_of
from engine.quota.tree import QuotaPaths
from engine.reclaim import quota_standing
from engine.view import ClusterState, ClusterView
from webhook.cluster import Cluster
from webhook.cluster.client.config_map import ConfigMapStore
from webhook.controllers.gang import GangController
from webhook.controllers.reclaim import (
    EvictionEvents,
    EvictionWriter,
    GuardRecord,
    Guards,
    OveruseParts,
    OveruseRevocation,
    PlanInputs,
    PlannedVictims,
    PlanParts,
    PreemptionSource,
    QuotasOfMoment,
    QuotaSource,
    ReclaimController,
    ReclaimMetrics,
    ReclaimParts,
    RunningPods,
    WaitingForQuota,
)
from webhook.controllers.release import PodWriter, QuotaQueue
from webhook.placement.held_pods import HeldPod
from webhook.placement.live_policies import LivePolicies
from webhook.serving.releasing import ReleaseServices
from webhook.settings import Settings


def reclaim_controller(  # noqa: PLR0913 - named parts, joined in one place
    services: ReleaseServices,
    cluster: Cluster,
    *,
    running: RunningPods,
    gangs: GangController,
    quota_queue: QuotaQueue,
    policies: LivePolicies,
    settings: Settings,
    registry: CollectorRegistry,
    now: Callable[[], Micros],
) -> ReclaimController:
    """Return the controller, a task of the leader.

    Args:
        services: those of the release.
        cluster: the cluster.
        running: the pods that may be evicted.
        gangs: those that wait.
        quota_queue: the pods that wait for quota.
        policies: those in force.
        settings: the settings.
        registry: of metrics.
        now: the time of day.
    """
    connection, elector = services.connection, services.elector
    may_write = lambda: elector.is_leader  # noqa: E731 - one for all writers
    planned = PlannedVictims(running, settings.evictions_in_flight_percent)
    waiting = WaitingForQuota(quota_queue.blocked, partial(quota_mode, quota_queue))
    plans = PlanParts(
        state=cluster.state,
        running=running,
        planned=planned,
        standing=partial(quotas_without, quota_queue, cluster.state),
        policies=lambda: policies.current,
        freshness=cluster.freshness,
        scope=settings.scope(),
        now=now,
    )
    config_map = ConfigMapStore(
        connection,
        namespace=settings.namespace,
        name=f"{settings.lease}-reclaim",
        may_write=may_write,
    )
    guards = Guards(GuardRecord(config_map), now)
    metrics = ReclaimMetrics(registry, lambda: elector.is_leader and guards.is_paused)
    evictions = EvictionWriter(connection, may_write=may_write, count=metrics.evicted)
    events = EvictionEvents(connection, identity=elector.identity)
    parts = ReclaimParts(
        state=cluster.state,
        held=services.held,
        running=running,
        reclaims=services.reclaims,
        planned=planned,
        guards=guards,
        writer=PodWriter(connection, may_write=may_write, count_write=services.metrics.written),
        evictions=evictions,
        count_pod=metrics.evicted_pod,
        events=events,
    )
    overuse = OveruseParts(
        state=cluster.state,
        running=running,
        planned=planned,
        guards=guards,
        evictions=evictions,
        count_pod=metrics.evicted_pod,
        events=events,
        tree=QuotaPaths(settings.quota_rules()).tree,
        is_limited=partial(_is_limited, settings.quota_mode),
        now=now,
        count=metrics.ended,
    )
    inputs = PlanInputs(
        lambda: cluster.is_synced and policies.is_loaded,
        [cluster.sources[kind.name] for kind in (DISRUPTION_BUDGETS, *WATCHED_FOR_RECLAIM)],
        now,
    )
    return ReclaimController(
        parts,
        [
            QuotaSource(plans, waiting, gangs, Micros(settings.reclaim_after_seconds * SECOND)),
            PreemptionSource(plans, services.preemptors.blocked, gangs),
        ],
        OveruseRevocation(overuse),
        is_ready=inputs.are_ready,
        now=now,
        count=metrics.ended,
    )


def _is_limited(default: QuotaMode, view: ClusterView, namespace: str) -> bool:
    return mode_of(view, namespace, default) == "Queue"


def quota_mode(queue: QuotaQueue, pod: Pod) -> ReclaimMode:
    """Return what is to be done for a pod within the min of its quota that has no room."""
    quota = queue.quota_of(pod.namespace, pod.labels)
    return ReclaimMode.OFF if quota is None else quota.reclaim


def quotas_without(
    queue: QuotaQueue, state: ClusterState, pods: Sequence[HeldPod]
) -> QuotasOfMoment:
    """Return the quotas as they would be without pods that are held, or were until now."""
    counted: dict[QuotaKey | None, Counter[str]] = {}
    for held in pods:
        own = queue.quota_of(held.pod.namespace, held.pod.labels)
        amounts = counted.setdefault(None if own is None else own.key, Counter())
        amounts.update(state.requests(held.key))

    def quotas_of(namespace: str, labels: Mapping[str, str]) -> tuple[QuotaKey, ...]:
        quota = queue.quota_of(namespace, labels)
        return () if quota is None else (quota.key,)

    return QuotasOfMoment(
        standing=quota_standing(
            queue.situation_without(pods), [held.pod.shape for held in pods], counted
        ),
        quotas_of=quotas_of,
    )
