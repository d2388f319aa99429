"""What the release of held pods works with, built in one place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC

from prometheus_client import CollectorRegistry

from engine.model.elastic_quota import ReclaimMode
from engine.model.time import Micros, date
from engine.quota.queueing import QueueRules
from engine.release import HeldPod, HeldPodRegistry, QueueOrder
from engine.view import ClusterState
from webhook.cluster.client.connection import Connection
from webhook.controllers.release.conditions import QueuedConditions
from webhook.controllers.release.metrics import ReleaseMetrics
from webhook.controllers.release.nominations import Nominations
from webhook.controllers.release.pod_writer import PodWriter
from webhook.controllers.release.quota_queue import QuotaPace, QuotaQueue, SurgingPods
from webhook.controllers.release.release_health import ReleaseHealth, SchedulerLease
from webhook.controllers.release.released_pods import ReleasedPods
from webhook.placement.held_pods import HeldPods


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRules:
    """The rules by which held pods are released.

    Attributes:
        order: of the held pods.
        queue: the rules by which they wait for quota.
        reclaims: whether pods are evicted for others where their quota says so.
        preempts: whether pods of lower priority are.
    """

    order: QueueOrder = field(default_factory=QueueOrder)
    queue: QueueRules = field(default_factory=QueueRules)
    reclaims: bool = False
    preempts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseContext:
    """What the release of held pods works with.

    Attributes:
        connection: to the API server, for nothing else.
        identity: of this process, written in Events.
        may_write: whether this replica leads at this very moment.
        state: the cluster, in which nominated pods count.
        held: the pods that are held.
        unbound: observes those that are released.
        metrics: of writes and holds.
        writer: writes held pods.
        health: whether pods are released.
        conditions: what held pods say of their wait.
        quota_queue: those that wait for quota.
        pace: how long they wait for it.
        nominations: the nodes that held pods count on.
        preempts: whether others may be evicted for pods that no node takes.
        scheduler_lease: tells when the scheduler was restarted.
        order: of the held pods.
        now: the time of day.
        clock: seconds that only go forward.
        node_for: a node that would take a held pod that counts on none, "" for none.
        preemption_of: what the policy of a held pod says of preemption.
    """

    connection: Connection
    identity: str
    may_write: Callable[[], bool]
    state: ClusterState
    held: HeldPods
    unbound: ReleasedPods
    metrics: ReleaseMetrics
    writer: PodWriter
    health: ReleaseHealth
    conditions: QueuedConditions
    quota_queue: QuotaQueue
    pace: QuotaPace
    nominations: Nominations
    preempts: bool
    scheduler_lease: SchedulerLease
    order: QueueOrder
    now: Callable[[], Micros]
    clock: Callable[[], float]
    node_for: Callable[[HeldPod], str]
    preemption_of: Callable[[HeldPod], ReclaimMode]

    @property
    def pods(self) -> HeldPodRegistry:
        """The records of all held and released pods."""
        return self.unbound.pods


def build_context(  # noqa: PLR0913 - named parts, joined in one place
    connection: Connection,
    *,
    identity: str,
    may_write: Callable[[], bool],
    annotate: Callable[[str, str], None],
    state: ClusterState,
    held: HeldPods,
    unbound: ReleasedPods,
    now: Callable[[], Micros],
    rules: ReleaseRules,
    clock: Callable[[], float] = time.monotonic,
    metrics: ReleaseMetrics | None = None,
    surges: SurgingPods | None = None,
    node_for: Callable[[HeldPod], str] = lambda _held: "",
    preemption_of: Callable[[HeldPod], ReclaimMode] = lambda _held: ReclaimMode.OFF,
) -> ReleaseContext:
    """Return what the release works with; nothing of it is written before somebody leads.

    Args:
        connection: to the API server, for nothing else: renewals of the Lease must not wait.
        identity: of this process, written in Events.
        may_write: whether this replica leads at this very moment.
        annotate: writes an annotation on the Lease.
        state: the cluster.
        held: the pods that are held.
        unbound: observes those that are released.
        now: the time of day.
        rules: of the release.
        clock: seconds that only go forward.
        metrics: of writes and holds.
        surges: finds the pods that may go above `max`; none does without it.
        node_for: a node that would take a held pod that counts on none, "" for none.
        preemption_of: what the policy of a held pod says of preemption.
    """
    pods, metrics = unbound.pods, metrics or ReleaseMetrics(CollectorRegistry())
    return ReleaseContext(
        connection=connection,
        identity=identity,
        may_write=may_write,
        state=state,
        held=held,
        unbound=unbound,
        metrics=metrics,
        writer=PodWriter(
            connection,
            may_write=may_write,
            clock=clock,
            now=lambda: date(now()).astimezone(UTC),
            count_write=metrics.written,
            observe_hold=metrics.held_for,
        ),
        health=ReleaseHealth(annotate, clock),
        conditions=QueuedConditions(pods),
        quota_queue=QuotaQueue(
            state,
            held,
            pods,
            rules.queue,
            now=now,
            reclaims=rules.reclaims,
            surges=surges,
            clock=clock,
        ),
        pace=QuotaPace(now),
        nominations=Nominations(state, held, pods),
        preempts=rules.preempts,
        scheduler_lease=SchedulerLease(connection),
        order=rules.order,
        now=now,
        clock=clock,
        node_for=node_for,
        preemption_of=preemption_of,
    )
