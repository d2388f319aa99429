"""What the release of held pods works with, built in one place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC

from prometheus_client import CollectorRegistry

from engine.model.elastic_quota import EvictionMode
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


@dataclass(kw_only=True, eq=False)
class ReleaseContext:
    """What the release of held pods works with; nothing of it is written before somebody leads.

    Args:
        connection: to the API server, for nothing else: renewals of the Lease must not wait.
        identity: of this process, written in Events.
        may_write: whether this replica leads at this very moment.
        annotate: writes an annotation on the Lease.
        state: the cluster, in which nominated pods count.
        held: the pods that are held.
        unbound: observes those that are released.
        rules: by which they are.
        metrics: of writes and holds.
        surges: finds the pods that may go above `max`; none does without it.
        node_for: a node that would take a held pod that counts on none, "" for none.
        preemption_of: what the policy of a held pod says of preemption.
        now: the time of day.
        clock: seconds that only go forward.

    Attributes:
        pods: the records of all held and released pods.
        nominations: the nodes that they count on.
        writer: writes held pods.
        health: whether pods are released.
        conditions: what held pods say of their wait.
        quota_queue: those that wait for quota.
        pace: how long they wait for it.
        scheduler_lease: tells when the scheduler was restarted.
    """

    connection: Connection
    identity: str
    may_write: Callable[[], bool]
    annotate: Callable[[str, str], None]
    state: ClusterState
    held: HeldPods
    unbound: ReleasedPods
    rules: ReleaseRules
    metrics: ReleaseMetrics = field(default_factory=lambda: ReleaseMetrics(CollectorRegistry()))
    surges: SurgingPods | None = None
    node_for: Callable[[HeldPod], str] = lambda _held: ""
    preemption_of: Callable[[HeldPod], EvictionMode] = lambda _held: EvictionMode.OFF
    now: Callable[[], Micros]
    clock: Callable[[], float] = time.monotonic

    pods: HeldPodRegistry = field(init=False)
    nominations: Nominations = field(init=False)
    writer: PodWriter = field(init=False)
    health: ReleaseHealth = field(init=False)
    conditions: QueuedConditions = field(init=False)
    quota_queue: QuotaQueue = field(init=False)
    pace: QuotaPace = field(init=False)
    scheduler_lease: SchedulerLease = field(init=False)

    def __post_init__(self) -> None:
        """Make what only the release works with."""
        self.pods = self.unbound.pods
        self.nominations = Nominations(self.state, self.held, self.pods)
        self.writer = PodWriter(
            self.connection,
            may_write=self.may_write,
            clock=self.clock,
            now=lambda: date(self.now()).astimezone(UTC),
            count_write=self.metrics.written,
            observe_hold=self.metrics.held_for,
        )
        self.health = ReleaseHealth(self.annotate, self.clock)
        self.conditions = QueuedConditions(self.pods)
        self.quota_queue = QuotaQueue(
            self.state,
            self.held,
            self.pods,
            self.rules.queue,
            now=self.now,
            reclaims=self.rules.reclaims,
            surges=self.surges,
            clock=self.clock,
        )
        self.pace = QuotaPace(self.now)
        self.scheduler_lease = SchedulerLease(self.connection)
