"""Services that both compositions stand on: the cluster, quota, the certificate and the leader.

The one place in which a live cluster and a recording differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from enum import Flag, auto
from typing import Final

from engine.model.kinds import WATCHED, WATCHED_FOR_POLICIES, WATCHED_FOR_RECLAIM
from engine.model.time import Micros, date
from engine.quota import QuotaVerdict, ReservationTimeouts
from engine.quota.queueing import CohortLending
from webhook.background import in_background
from webhook.binding import BindingRecords
from webhook.certificates.bundles import CaBundles
from webhook.certificates.secret_source import SecretSource
from webhook.certificates.secret_store import SecretStore
from webhook.cluster import Cluster, Recording, recorded_cluster
from webhook.cluster.client.access_reviews import AccessReviews
from webhook.cluster.client.config_map import ConfigMapStore
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.client.watched_objects import WatchedObjects
from webhook.cluster.watch.event_applier import PodObserver
from webhook.controllers.eviction import RunningPods
from webhook.controllers.leader_election import LeaseElector
from webhook.controllers.outcome import BoundPods, OutcomeRecord
from webhook.controllers.quota_rollout import ApiServers, QuotaCoverage, RolloutConfiguration
from webhook.controllers.release import ReleasedPods
from webhook.identity import new_identity
from webhook.metrics import Metrics
from webhook.placement.gang_members import GangMembers
from webhook.placement.held_pods import HeldPods
from webhook.placement.hold_guard import HoldGuard
from webhook.placement.policy_resources import PolicyResources
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
from webhook.quota.api_store import ApiStore
from webhook.quota.store import Store
from webhook.serving.authorization import Authorize, TokenAuthorizer, anybody
from webhook.serving.binding import BindingServices
from webhook.serving.server import ANY_ADDRESS
from webhook.serving.tls import CertificateFiles, CertificateSource, SelfSigned
from webhook.serving.watched_cluster import watched_cluster
from webhook.settings import Settings

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


class Role(Flag):
    """Compositions that a process runs, one or both; on a recording nobody leads.

    Attributes:
        REVIEWS: answers reviews of pods, quotas and policies.
        CONTROL: takes part in the election; the leader does what is done once for all.
    """

    REVIEWS = auto()
    CONTROL = auto()


EMBEDDED: Final = Role.REVIEWS | Role.CONTROL
"""Both in one process, for small clusters."""


class ControlledPods:
    """What control knows of pods besides the view.

    Args:
        settings: which of them matter.
        binding: what is seen of bindings; None where nobody decides them.

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
    """Services that only a live cluster has.

    Attributes:
        connection: to the API server.
        watched: the same, for our Secret and our configurations, which are watched.
        elector: of the leader; a process without control only observes it.
        held: the pods that are held.
        deployments: the pods that others may replace.
        certificate: where it is stored; None where it is given by files.
        outcome_record: figures of the leader; None where nobody counts.
        controlled: what control knows of pods; None in a process without it.
    """

    connection: Connection
    watched: WatchedObjects
    elector: LeaseElector
    held: HeldPods
    deployments: DeploymentPods
    certificate: StoredCertificate | None
    outcome_record: OutcomeRecord | None
    controlled: ControlledPods | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services of a process.

    Attributes:
        cluster: the cluster.
        ledger: reservations of quota.
        certificate: source of the serving certificate.
        authorize: who may read debug pages.
        record_denial: called with each denial by a quota.
        pod_version: the newest version at which a pod was observed, by its uid; 0 for none.
        hold_guard: says whether pods may be held; None where they never are.
        quota_coverage: makes API servers ask about namespaces; None where the chart says which.
        policy_resources: the policies of the API; None where none are taken.
        live: None for a recording.
    """

    cluster: Cluster
    ledger: QuotaLedger
    certificate: CertificateSource
    authorize: Authorize
    record_denial: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None
    pod_version: Callable[[str], int] = lambda _uid: 0
    hold_guard: HoldGuard | None = None
    quota_coverage: QuotaCoverage | None = None
    policy_resources: PolicyResources | None = None
    live: LiveServices | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBuilder:
    """Builds services, which run until the stack unwinds.

    Attributes:
        stack: of everything that is started.
        settings: which cluster and how to follow it.
        metrics: where services are counted.
        now: the time of day.
    """

    stack: AsyncExitStack
    settings: Settings
    metrics: Metrics
    now: Callable[[], Micros]

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
        """Services on a live cluster; waits for nothing of it.

        Raises:
            InvalidFileError: the kubeconfig cannot be used.
        """
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
