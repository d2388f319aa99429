"""Composition of the release of held pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from engine.model.elastic_quota import ReclaimMode
from engine.model.time import Micros
from engine.queue import QueueOrder
from webhook.cluster import Cluster
from webhook.cluster.client.connection import Connection
from webhook.controllers.eviction import EvictionWriter, RunningPods
from webhook.controllers.gang import (
    GangCollector,
    GangController,
    GangEvents,
    GangMetrics,
    GangParts,
)
from webhook.controllers.leader_election import LeaseElector
from webhook.controllers.release import (
    DecidedPods,
    GangDecider,
    PodWriter,
    Preemptors,
    QueuedConditions,
    QuotaPace,
    QuotaQueue,
    Reclaims,
    Refusals,
    ReleaseCollector,
    ReleaseController,
    ReleaseMetrics,
    ReleaseParts,
    ReleasingStatus,
    SchedulerLease,
    UnboundReleases,
    WriteParts,
)
from webhook.placement.gang_members import GangMembers
from webhook.placement.held_pods import HeldPod, HeldPods
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts
from webhook.quota import DeploymentPods


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseServices:
    """What the release of held pods works with.

    Attributes:
        connection: to the API server, for nothing else.
        elector: of the leader.
        held: the pods that are held.
        unbound: those that are released and not bound.
        gang_members: the members of all gangs.
        deployments: the pods that others may replace.
        metrics: of writes and holds.
        pace: how long pods wait for their quotas.
        reclaims: the held pods that others are evicted for.
        preemptors: those that no node takes, and that pods of lower priority may be evicted for.
        running: the pods that may be evicted; None where none ever is.
    """

    connection: Connection
    elector: LeaseElector
    held: HeldPods
    unbound: UnboundReleases
    gang_members: GangMembers
    deployments: DeploymentPods
    metrics: ReleaseMetrics
    pace: QuotaPace
    reclaims: Reclaims
    preemptors: Preemptors
    running: RunningPods | None


def release_controller(  # noqa: PLR0913 - named parts, joined in one place
    services: ReleaseServices,
    cluster: Cluster,
    *,
    placer: Placer,
    policies: LivePolicies,
    counts: PolicyCounts,
    order: QueueOrder,
    quota_queue: QuotaQueue,
    node_for: Callable[[HeldPod], str],
    preemption_of: Callable[[HeldPod], ReclaimMode],
    recreates_gangs: bool,
    registry: CollectorRegistry,
    now: Callable[[], Micros],
) -> tuple[ReleaseController, GangController]:
    """Return the controller, a task of the leader, and the gangs that it releases.

    Args:
        services: what it works with.
        cluster: the cluster.
        placer: decides.
        policies: those in force.
        counts: where decisions are counted.
        order: of the held pods.
        quota_queue: the pods that wait for quota.
        node_for: a node that would take a held pod that counts on none, "" for none.
        preemption_of: what the policy of a held pod says of preemption.
        recreates_gangs: whether members of gangs that failed to start may be evicted.
        registry: of metrics.
        now: the time of day.
    """
    elector, metrics = services.elector, services.metrics
    refusals = Refusals(services.connection, identity=elector.identity)
    registry.register(
        ReleaseCollector(
            held=services.held,
            unbound=services.unbound,
            refusals=refusals,
            now=now,
            quota_queue=quota_queue,
            is_leader=lambda: elector.is_leader,
        )
    )
    writer = PodWriter(
        services.connection,
        may_write=lambda: elector.is_leader,
        count_write=metrics.written,
        observe_hold=metrics.held_for,
    )
    writes = WriteParts(
        state=cluster.state,
        held=services.held,
        unbound=services.unbound,
        writer=writer,
        refusals=refusals,
        releasing=ReleasingStatus(elector.annotate),
        conditions=QueuedConditions(),
        quota_queue=quota_queue,
    )
    decided = DecidedPods(writes, now=now)
    decider = GangDecider(placer, lambda: policies.current, cluster.state, counts)
    gang_metrics = GangMetrics(registry)
    gangs = GangController(
        GangParts(
            state=cluster.state,
            held=services.held,
            members=services.gang_members,
            decided=decided,
            decider=decider,
            writer=writer,
            evictions=EvictionWriter(services.connection, may_write=lambda: elector.is_leader)
            if recreates_gangs
            else None,
            events=GangEvents(
                services.connection, identity=elector.identity, view=cluster.state.view
            ),
            reclaims=services.reclaims,
            now=now,
            count=gang_metrics.ended,
        )
    )
    registry.register(GangCollector(gangs))
    parts = ReleaseParts(
        writes=writes,
        decided=decided,
        gangs=gangs,
        order=order,
        pace=services.pace,
        scheduler_lease=SchedulerLease(services.connection),
        reclaims=services.reclaims,
        node_for=node_for,
        preemption_of=preemption_of,
        preemptors=services.preemptors,
    )
    controller = ReleaseController(
        parts, is_ready=lambda: cluster.is_synced and policies.is_loaded, now=now
    )
    return controller, gangs
