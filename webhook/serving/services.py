"""Services that both compositions stand on: the cluster, quota, the certificate and the leader.

The one place in which a live cluster and a recording differ.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from enum import Flag, auto
from functools import partial
from typing import Final

from engine.model.domain import Domain
from engine.model.hold import RELEASING_ANNOTATION
from engine.model.kinds import WATCHED, WATCHED_FOR_POLICIES, WATCHED_FOR_RECLAIM, Kind
from engine.model.time import Micros, date
from engine.placement import encode
from engine.quota import QuotaVerdict, ReservationTimeouts
from engine.quota.queueing import CohortLending
from engine.report import HeldStatus, QueueReport, ReleaserReport
from engine.view import ClusterState, UsageHistory
from webhook.background import in_background
from webhook.binding import BindingRecords
from webhook.certificates.bundles import CaBundles
from webhook.certificates.secret import SecretSource, SecretStore
from webhook.cluster import Cluster, Recording, recorded_cluster
from webhook.cluster.client.access_reviews import AccessReviews
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.client.watched_objects import ConfigMapStore, WatchedObjects
from webhook.cluster.timing import Clock
from webhook.cluster.usage.metrics_api import MetricsApi
from webhook.cluster.usage.poller import UsageFeed, UsagePoller, UsageSource
from webhook.cluster.usage.prometheus import PrometheusSettings, prometheus
from webhook.cluster.watch.event_applier import EventApplier, PodObserver, PolicyObserver
from webhook.cluster.watch.live_cluster import live_cluster
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter
from webhook.controllers.eviction import RunningPods
from webhook.controllers.leader_election import LeaseElector
from webhook.controllers.outcome import BoundPods, OutcomeRecord
from webhook.controllers.quota_rollout import ApiServers, QuotaCoverage, RolloutConfiguration
from webhook.controllers.release import ReleasedPods
from webhook.identity import new_identity
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import GangMembers, HeldOrder, HeldPods, HoldGuard, ObservedLease
from webhook.placement.live_policies import LivePolicies, WarmUp
from webhook.placement.placer import Placer
from webhook.placement.policy_files import PolicyResources
from webhook.quota import (
    DeploymentPods,
    MemoryStore,
    ObservedCluster,
    ObservedPods,
    QuotaCollector,
    QuotaConfig,
    QuotaEventRecorder,
    QuotaLedger,
    observe_cluster,
)
from webhook.quota.store import ApiStore, Store
from webhook.serving.authorization import Authorize, TokenAuthorizer, anybody
from webhook.serving.binding import BindingServices
from webhook.serving.server import ANY_ADDRESS
from webhook.serving.tls import CertificateFiles, CertificateSource, SelfSigned
from webhook.settings import Settings


async def watched_cluster(
    stack: AsyncExitStack,
    settings: Settings,
    connection: Connection,
    observers: Sequence[PodObserver],
    policies: PolicyObserver | None,
    kinds: Sequence[Kind],
    *,
    now: Callable[[], Micros],
) -> Cluster:
    """Return a live cluster, which is followed until the stack unwinds."""
    # With `--hold` alone are there queued pods, and a webhook that sees their release.
    state = ClusterState(leave_out_queued=settings.hold)
    applier = EventApplier(
        state, now=now, observers=observers, policies=policies, buffers_usage=True
    )
    stale_after = StaleAfter(usage=settings.stale_usage_seconds)
    usage = await _usage(stack, settings, connection, applier, now)
    return await stack.enter_async_context(
        live_cluster(
            connection, applier, Clock(now=now), also=[usage], kinds=kinds, stale_after=stale_after
        )
    )


async def _usage(
    stack: AsyncExitStack,
    settings: Settings,
    connection: Connection,
    applier: EventApplier,
    now: Callable[[], Micros],
) -> UsagePoller:
    """Poller of the usage of nodes that Koordinator does not measure."""
    source: UsageSource
    if settings.prometheus_url is not None:
        name = "prometheus"
        queries = PrometheusSettings(
            url=settings.prometheus_url,
            cpu_query=settings.prometheus_cpu_query,
            memory_query=settings.prometheus_memory_query,
            node_label=settings.prometheus_node_label,
            window_seconds=settings.prometheus_window_seconds,
            token_file=settings.prometheus_token_file,
            ca_file=settings.prometheus_ca_file,
        )
        source = await stack.enter_async_context(prometheus(queries, now=now))
    else:
        name = "metrics.k8s.io"
        source = MetricsApi(connection, applier.state, with_pods=settings.usage_of_pods)
    every_seconds = settings.usage_poll_seconds
    feed = UsageFeed(
        applier.state,
        UsageHistory(every_seconds),
        by_koordinator=applier.measured_by_koordinator,
    )
    status = SourceStatus(name=name, domain=Domain.METRICS, required=False)
    return UsagePoller(source, feed, status, every_seconds=every_seconds, now=now)


_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


class Role(Flag):
    """Compositions that a process runs, one or both; on a recording nobody leads."""

    REVIEWS = auto()  # answers reviews of pods, quotas and policies
    CONTROL = auto()  # takes part in the election; the leader does what is done once for all


EMBEDDED: Final = Role.REVIEWS | Role.CONTROL
"""Both in one process, for small clusters."""


class ControlledPods:
    """What control knows of pods besides the view.

    Attributes:
        binding: the same.
        unbound: those that are released and not bound.
        gang_members: the members of all gangs.
        running: the pods that may be evicted; None where none ever is.
        bound: the pods that are bound; None where nobody counts them.
    """

    def __init__(self, settings: Settings, binding: BindingServices | None) -> None:
        self.binding = binding
        self.unbound = ReleasedPods()
        self.gang_members = GangMembers()
        excluded = frozenset(settings.excluded_namespaces)
        self.running = RunningPods(excluded) if settings.evicts else None
        records = BindingRecords() if binding is None else binding.records
        self.bound = BoundPods(records) if settings.outcome else None

    def observers(self) -> list[PodObserver]:
        """Those that get each pod."""
        seen = None if self.binding is None else self.binding.seen
        every = (self.unbound, self.gang_members, self.running, self.bound, seen)
        return [each for each in every if each is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCertificate:
    """The certificate in the Secret, and the configurations that trust it."""

    store: SecretStore
    bundles: CaBundles


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveServices:
    """Services that only a live cluster has."""

    connection: Connection  # to the API server
    watched: WatchedObjects  # the same, for our Secret and our configurations, which are watched
    elector: LeaseElector  # of the leader; a process without control only observes it
    held: HeldPods  # the pods that are held
    deployments: DeploymentPods  # the pods that others may replace
    certificate: StoredCertificate | None  # where it is stored; None where it is given by files
    outcome_record: OutcomeRecord | None  # figures of the leader; None where nobody counts
    controlled: ControlledPods | None  # what control knows of pods; None in a process without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services of a process."""

    cluster: Cluster  # the cluster
    ledger: QuotaLedger  # reservations of quota
    certificate: CertificateSource  # source of the serving certificate
    authorize: Authorize  # who may read debug pages
    # called with each denial by a quota
    record_denial: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None
    # the newest version at which a pod was observed, by its uid; 0 for none
    pod_version: Callable[[str], int] = lambda _uid: 0
    hold_guard: HoldGuard | None = None  # says whether pods may be held; None where they never are
    # makes API servers ask about namespaces; None where the chart says which
    quota_coverage: QuotaCoverage | None = None
    # the policies of the API; None where none are taken
    policy_resources: PolicyResources | None = None
    live: LiveServices | None = None  # None for a recording


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBuilder:
    """Builds services, which run until the stack unwinds."""

    stack: AsyncExitStack  # of everything that is started
    settings: Settings  # which cluster and how to follow it
    metrics: Metrics  # where services are counted
    now: Callable[[], Micros]  # the time of day

    def recorded(self, recording: Recording) -> Services:
        """Services on a recording: quota is kept in memory."""
        cluster = recorded_cluster(recording, self.now)
        ledger = self._ledger(ObservedCluster(view=cluster.view), MemoryStore())
        return Services(
            cluster=cluster,
            ledger=ledger,
            certificate=local_certificate(self.settings, date(self.now())),
            authorize=anybody,
        )

    async def live(self, role: Role) -> Services:
        """Services on a live cluster; waits for nothing of it."""
        settings, identity = self.settings, new_identity()
        connection = await self.stack.enter_async_context(
            connected(settings.kubeconfig, settings.context)
        )

        # 1. The cluster, and all who observe its pods.
        pods, deployments = ObservedPods(), DeploymentPods()
        held = HeldPods(self.now, hold_seconds=settings.hold_seconds, most=settings.hold_max)
        controlled = None
        if Role.CONTROL in role:
            controlled = ControlledPods(settings, self._binding(connection, identity))
        observers: list[PodObserver] = [pods, deployments, held]
        kinds = [*WATCHED]
        if controlled is not None:
            observers += controlled.observers()
            kinds += WATCHED_FOR_RECLAIM if settings.evicts else ()
        policy_resources = PolicyResources() if settings.takes_policy_resources else None
        if policy_resources is not None:
            kinds += WATCHED_FOR_POLICIES
        cluster = await watched_cluster(
            self.stack, settings, connection, observers, policy_resources, kinds, now=self.now
        )

        if controlled is not None and controlled.binding is not None:
            controlled.binding.follow(cluster.state, settings)

        # 2. Reservations of quota, and events of what quotas denied.
        observed = observe_cluster(cluster.state, cluster.sources, pods, deployments)
        lending = None
        if settings.hold:
            lending = CohortLending(
                settings.queue_rules(),
                cluster.state.view,
                cluster.state.assumed_pods,
                counted=cluster.state.requests,
                version_of=pods.version,
                clock=time.monotonic,
                unseen_seconds=settings.quota_reservation_seconds,
            )
        ledger = self._ledger(observed, ApiStore(connection), lending)
        denials = QuotaEventRecorder(connection, view=cluster.state.view, identity=identity)
        if Role.REVIEWS in role:
            in_background(self.stack, ledger.run())
            in_background(self.stack, denials.run())
        coverage = None
        if settings.keeps_quota_namespaces:
            configuration = RolloutConfiguration(connection, settings.webhook_configurations[0])
            coverage = QuotaCoverage(configuration, ApiServers(connection, settings.namespace))
            self.stack.push_async_callback(coverage.close)
        if settings.quota_mode != "Off":
            rules = settings.queue_rules()
            self.metrics.registry.register(
                QuotaCollector(observed, rules.rules, rules.mode, rules.capacity)
            )

        # 3. The leader, and what it leaves for the others.
        elector = LeaseElector(
            connection, namespace=settings.namespace, name=settings.lease, identity=identity
        )
        watched = WatchedObjects(connection, self._watched_paths(role))
        in_background(self.stack, watched.run())
        stored = self._stored_certificate(watched)
        certificate = local_certificate(settings, date(self.now()))
        if stored is not None:
            certificate = SecretSource(stored.store, stored.bundles, now=self._today)
        return Services(
            cluster=cluster,
            ledger=ledger,
            certificate=certificate,
            authorize=TokenAuthorizer(AccessReviews(connection)).authorize,
            record_denial=denials.record,
            pod_version=pods.version,
            hold_guard=HoldGuard(lambda: elector.observed, held) if settings.hold else None,
            quota_coverage=coverage,
            policy_resources=policy_resources,
            live=LiveServices(
                connection=connection,
                watched=watched,
                elector=elector,
                held=held,
                deployments=deployments,
                certificate=stored,
                outcome_record=self._outcome_record(connection, elector),
                controlled=controlled,
            ),
        )

    def _binding(self, connection: Connection, identity: str) -> BindingServices | None:
        if not self.settings.binding:
            return None
        return BindingServices(connection, identity=identity, now=self.now)

    def _today(self) -> datetime:
        return date(self.now())

    def _watched_paths(self, role: Role) -> Iterator[str]:
        """Yield the paths of what is read again and again."""
        settings = self.settings
        if settings.certificate_secret is not None:
            yield f"/api/v1/namespaces/{settings.namespace}/secrets/{settings.certificate_secret}"
        is_read = settings.certificate_secret is not None
        for name in settings.webhook_configurations:
            if is_read or (Role.CONTROL in role and settings.reviews_new_pods):
                yield f"{_ADMISSION}/mutatingwebhookconfigurations/{name}"
            if is_read or settings.keeps_quota_namespaces:
                yield f"{_ADMISSION}/validatingwebhookconfigurations/{name}"

    def _stored_certificate(self, connection: WatchedObjects) -> StoredCertificate | None:
        settings = self.settings
        if settings.certificate_secret is None:
            return None
        names = settings.webhook_configurations
        return StoredCertificate(
            store=SecretStore(
                connection, namespace=settings.namespace, name=settings.certificate_secret
            ),
            bundles=CaBundles(connection, mutating=names, validating=names),
        )

    def _outcome_record(
        self, connection: Connection, elector: LeaseElector
    ) -> OutcomeRecord | None:
        if not self.settings.outcome:
            return None
        return OutcomeRecord(
            ConfigMapStore(
                connection,
                namespace=self.settings.namespace,
                name=f"{self.settings.lease}-outcome",
                may_write=lambda: elector.is_leader,
            )
        )

    def _ledger(
        self, observed: ObservedCluster, store: Store, lending: CohortLending | None = None
    ) -> QuotaLedger:
        return QuotaLedger(
            observed,
            store,
            quota_config(self.settings),
            rules=self.settings.quota_rules(),
            lending=lending,
            count_write=self.metrics.quota_written,
        )


def quota_config(settings: Settings) -> QuotaConfig:
    """Lifetimes of reservations."""
    unseen_seconds = settings.quota_reservation_seconds
    return QuotaConfig(timeouts=ReservationTimeouts(unseen_seconds=unseen_seconds))


def local_certificate(settings: Settings, today: datetime) -> CertificateSource:
    """Source of a certificate that needs no cluster: files, or a self-signed one."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        every = settings.reload_seconds
        return CertificateFiles(settings.tls_cert, settings.tls_key, every_seconds=every)
    host = () if settings.host in ANY_ADDRESS else (settings.host,)
    return SelfSigned(now=today, names=(*host, *settings.certificate_names))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueueReporter:
    """The held pods in order; any replica can tell, whoever leads."""

    pods: HeldOrder  # those that are held, in order
    guard: HoldGuard  # says whether further ones may be held
    lease: Callable[[], ObservedLease]  # as this replica observes it

    def report(
        self, *, pod: str = "", namespace: str = "", limit: int | None = None
    ) -> QueueReport:
        """Return the queue of this moment."""
        return self.pods.report(
            self._releaser(),
            lists=lambda listed: pod in listed.key and namespace in {"", listed.namespace},
            limit=limit,
        )

    def status(self) -> HeldStatus:
        """Return the held pods in numbers."""
        held, now = self.pods.held, self.pods.now()
        return HeldStatus(
            held=len(held),
            overdue_seconds=round(held.oldest_overdue_seconds(now), 3),
            not_holding=self.guard.refusal(now),
        )

    def _releaser(self) -> ReleaserReport:
        lease = self.lease()
        age = lease.age_seconds
        return ReleaserReport(
            holder=lease.holder,
            renewed_seconds_ago=round(age, 3) if math.isfinite(age) else None,
            releasing=lease.annotations.get(RELEASING_ANNOTATION) == "true",
        )


def held_queue(
    settings: Settings, services: Services, now: Callable[[], Micros]
) -> HeldQueueReporter | None:
    """Reporter of a process; None where no pod is held."""
    live, guard = services.live, services.hold_guard
    if live is None or guard is None:
        return None
    return HeldQueueReporter(
        pods=HeldOrder(
            held=live.held,
            order=settings.queue_order(),
            queue_rules=settings.queue_rules(),
            view=services.cluster.state.view,
            now=now,
        ),
        guard=guard,
        lease=lambda: live.elector.observed,
    )


def placer_of(settings: Settings, cluster: Cluster, explanations: Explanations) -> Placer:
    """Return the placer on a cluster; it counts pods in flight where they will be observed."""
    return Placer(
        view=cluster.view,
        now=cluster.now,
        scope=settings.scope(),
        encode=partial(encode, percentage_of_nodes_to_score=settings.percentage_of_nodes_to_score),
        decides_bindings=settings.binding,
        clock=time.monotonic,
        freshness=cluster.freshness,
        explanations=explanations,
        assumed=cluster if cluster.is_live else None,
    )


def live_policies(
    settings: Settings, services: Services, placer: Placer, now: Callable[[], Micros]
) -> LivePolicies:
    """Return the policies in force, whose columns are filled by trial decisions of the placer."""
    cluster = services.cluster
    return LivePolicies(
        () if settings.placement_mode == "Off" else settings.policies,
        resources=services.policy_resources,
        track=cluster.state.track_sums,
        prepare=cluster.state.prepare_sums,
        warm_up=WarmUp(cluster, placer.decide).steps,
        now=lambda: date(now()),
        only_audit=settings.placement_mode == "Audit",
        # On a cluster somebody may repair the files while it waits; at a terminal they start anew.
        may_start_empty=cluster.is_live and settings.reload_seconds > 0,
    )
