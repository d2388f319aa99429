"""Composition of the release of held pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.model.time import Micros
from engine.queue import QueueOrder
from webhook.cluster import Cluster
from webhook.cluster.client.connection import Connection
from webhook.controllers.leader_election import LeaseElector
from webhook.controllers.release import (
    HeldPodDecider,
    Outcomes,
    PodWriter,
    Refusals,
    ReleaseController,
    ReleaseParts,
    ReleasingStatus,
    SchedulerLease,
    UnboundReleases,
)
from webhook.placement.held_pods import HeldPods
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseServices:
    """What the release of held pods works with.

    Attributes:
        connection: to the API server, for nothing else.
        elector: of the leader.
        held: the pods that are held.
        unbound: those that are released and not bound.
    """

    connection: Connection
    elector: LeaseElector
    held: HeldPods
    unbound: UnboundReleases


def release_controller(
    services: ReleaseServices,
    cluster: Cluster,
    placer: Placer,
    policies: LivePolicies,
    now: Callable[[], Micros],
) -> ReleaseController:
    """Return the controller, a duty of the leader.

    Args:
        services: what it works with.
        cluster: the cluster.
        placer: decides; must not assume pods, which are nominated instead.
        policies: those in force.
        now: the time of day.
    """
    elector, outcomes = services.elector, Outcomes()
    parts = ReleaseParts(
        held=services.held,
        unbound=services.unbound,
        state=cluster.state,
        decider=HeldPodDecider(placer, lambda: policies.current, cluster.state, outcomes.nominates),
        order=QueueOrder(),
        writer=PodWriter(services.connection, may_write=lambda: elector.is_leader),
        outcomes=outcomes,
        refusals=Refusals(services.connection, identity=elector.identity),
        releasing=ReleasingStatus(elector.annotate),
        scheduler_lease=SchedulerLease(services.connection),
    )
    return ReleaseController(
        parts, is_ready=lambda: cluster.is_synced and policies.is_loaded, now=now
    )
