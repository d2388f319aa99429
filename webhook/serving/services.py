"""Services behind the reviews: the cluster, reservations of quota, and the serving certificate.

The one place in which a live cluster and a recording differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from engine.model.time import Micros, date
from engine.quota import QuotaVerdict, ReservationTimeouts
from webhook.background import in_background
from webhook.cluster import Cluster, Recording, recorded_cluster
from webhook.cluster.client.access_reviews import AccessReviews
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.watch.event_applier import PodObserver
from webhook.controllers.leader_election import Duty, LeaseElector
from webhook.controllers.outcome import Bindings
from webhook.controllers.pod_group_status import PodGroupStatusController
from webhook.controllers.quota_rollout import QuotaCoverage
from webhook.controllers.reclaim import RunningPods
from webhook.controllers.release import (
    Outcomes,
    Preemptors,
    QuotaPace,
    Reclaims,
    ReleaseMetrics,
    UnboundReleases,
)
from webhook.identity import new_identity
from webhook.metrics import Metrics
from webhook.placement.gang_members import GangMembers
from webhook.placement.held_order import HeldOrder
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
from webhook.serving.certificate_source import local_certificate, stored_certificate
from webhook.serving.held_queue import HeldQueueReporter
from webhook.serving.quota_duties import QuotaDuties
from webhook.serving.releasing import ReleaseServices
from webhook.serving.tls import CertificateSource
from webhook.serving.watched_cluster import watched_cluster
from webhook.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """What tasks of the leader need that are added once there are policies.

    Attributes:
        connection: to the API server.
        elector: runs them while this replica leads.
        bindings: the pods that are bound; None where nobody judges them.
    """

    connection: Connection
    elector: LeaseElector
    bindings: Bindings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services behind the reviews.

    Attributes:
        cluster: the cluster.
        ledger: reservations of quota.
        certificate: source of the serving certificate.
        authorize: who may read debug pages.
        record_denial: called with each denial by a quota.
        pod_version: the newest version at which a pod was observed, by its uid; 0 for none.
        hold_guard: says whether pods may be held; None where they never are.
        held_queue: the held pods in order; None where they never are.
        releasing: what the release of held pods works with; None where none is held.
        quota_coverage: makes API servers ask about namespaces; None where the chart says which.
        policy_resources: the policies of the API; None where none are taken.
        leadership: None for a recording.
        binding: what is seen of bindings; None where nobody decides them.
    """

    cluster: Cluster
    ledger: QuotaLedger
    certificate: CertificateSource
    authorize: Authorize
    record_denial: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None
    pod_version: Callable[[str], int] = lambda _uid: 0
    hold_guard: HoldGuard | None = None
    held_queue: HeldQueueReporter | None = None
    releasing: ReleaseServices | None = None
    quota_coverage: QuotaCoverage | None = None
    policy_resources: PolicyResources | None = None
    leadership: Leadership | None = None
    binding: BindingServices | None = None


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

    async def live(self) -> Services:
        """Services on a live cluster.

        Waits for the certificate, which another replica may have to make first, but not for the
        cluster to be synced.

        Raises:
            InvalidFileError: the kubeconfig cannot be used.
        """
        settings, identity = self.settings, new_identity()
        connection = await self.stack.enter_async_context(
            connected(settings.kubeconfig, settings.context)
        )

        # 1. The cluster, and all who observe its pods.
        pods, deployments = ObservedPods(), DeploymentPods()
        unbound = UnboundReleases(most=1) if settings.release_in_order else UnboundReleases()
        held = HeldPods(self.now, hold_seconds=settings.hold_seconds, most=settings.hold_max)
        excluded = frozenset(settings.excluded_namespaces)
        running = RunningPods(excluded) if settings.evicts else None
        bindings = Bindings() if settings.outcome else None
        binding = None
        if settings.binding:
            binding = BindingServices(connection, identity=identity, now=self.now)
        gang_members = GangMembers()
        observers: list[PodObserver] = [pods, deployments, held, unbound, gang_members]
        decided = None if binding is None else binding.seen
        observers += [each for each in (running, bindings, decided) if each is not None]
        policy_resources = PolicyResources() if settings.takes_policy_resources else None
        cluster = await watched_cluster(
            self.stack, settings, connection, observers, policy_resources, now=self.now
        )
        if binding is not None:
            binding.follow(cluster.state, settings)

        # 2. Reservations of quota, and events of what quotas denied.
        observed = observe_cluster(cluster.state, cluster.sources, pods, deployments)
        ledger = self._ledger(observed, ApiStore(connection))
        in_background(self.stack, ledger.run())
        denials = QuotaEventRecorder(connection, view=cluster.state.view, identity=identity)
        in_background(self.stack, denials.run())

        # 3. The election of a leader, and what it does without policies.
        elector = LeaseElector(
            connection, namespace=settings.namespace, name=settings.lease, identity=identity
        )
        guard = HoldGuard(lambda: elector.observed, held)
        # Before the elector runs: what its tasks write with must be closed after they have ended.
        releasing = None
        if settings.hold:
            releasing = await self._releasing(
                elector, held, unbound, gang_members, deployments, running
            )
        controllers: list[Duty] = []
        if releasing is not None:
            phases = PodGroupStatusController(
                connection,
                view=cluster.state.view,
                members=gang_members.of,
                may_write=lambda: elector.is_leader,
            )
            controllers.append(phases.run)
        coverage = None
        if settings.quota_mode != "Off":
            quotas = QuotaDuties(
                connection=connection,
                cluster=cluster,
                settings=settings,
                config=self._quota_config,
                may_write=lambda: elector.is_leader,
            )
            coverage = self._quota_coverage(quotas)
            controllers += self._quota_controllers(quotas, ledger, coverage, releasing, identity)
            rules = settings.queue_rules()
            self.metrics.registry.register(
                QuotaCollector(observed, rules.rules, rules.mode, rules.capacity)
            )

        # 4. The certificate: once the elector runs, for the leader makes the first one.
        secret = None
        if settings.certificate_secret is not None:
            secret, rotation = stored_certificate(
                connection,
                settings,
                settings.certificate_secret,
                is_leader=lambda: elector.is_leader,
                today=lambda: date(self.now()),
            )
            controllers.append(rotation.run)
        in_background(self.stack, elector.run(*controllers))
        if secret is not None:
            await secret.first()
        return Services(
            cluster=cluster,
            ledger=ledger,
            certificate=secret or local_certificate(settings, date(self.now())),
            authorize=TokenAuthorizer(AccessReviews(connection)).authorize,
            record_denial=denials.record,
            pod_version=pods.version,
            hold_guard=guard if settings.hold else None,
            held_queue=self._held_queue(releasing, guard, cluster) if releasing else None,
            releasing=releasing,
            quota_coverage=coverage,
            policy_resources=policy_resources,
            leadership=Leadership(connection=connection, elector=elector, bindings=bindings),
            binding=binding,
        )

    def _quota_coverage(self, quotas: QuotaDuties) -> QuotaCoverage | None:
        """Return what makes API servers ask about namespaces, until the stack unwinds."""
        if not self.settings.keeps_quota_namespaces:
            return None
        coverage = quotas.coverage()
        self.stack.push_async_callback(coverage.close)
        return coverage

    def _quota_controllers(
        self,
        quotas: QuotaDuties,
        ledger: QuotaLedger,
        coverage: QuotaCoverage | None,
        releasing: ReleaseServices | None,
        identity: str,
    ) -> Iterator[Duty]:
        """Yield what the leader does for quotas."""
        yield quotas.status(ledger, self.metrics.quotas_drifted).run
        yield quotas.audit(identity, self.metrics.quotas_over_max).run
        if coverage is not None:
            yield quotas.rollout(coverage, self.metrics.quota_namespaces).run
        if releasing is not None:
            yield quotas.figures(releasing.pace).run

    def _held_queue(
        self, releasing: ReleaseServices, guard: HoldGuard, cluster: Cluster
    ) -> HeldQueueReporter:
        return HeldQueueReporter(
            pods=HeldOrder(
                held=releasing.held,
                order=self.settings.queue_order(),
                queue_rules=self.settings.queue_rules(),
                view=cluster.state.view,
                now=self.now,
            ),
            guard=guard,
            outcomes=releasing.outcomes,
            lease=lambda: releasing.elector.observed,
        )

    async def _releasing(
        self,
        elector: LeaseElector,
        held: HeldPods,
        unbound: UnboundReleases,
        gang_members: GangMembers,
        deployments: DeploymentPods,
        running: RunningPods | None,
    ) -> ReleaseServices:
        """Services of the release; its writes have a connection of their own, beside the Lease."""
        connection = await self.stack.enter_async_context(
            connected(self.settings.kubeconfig, self.settings.context)
        )
        metrics = ReleaseMetrics(self.metrics.registry)
        return ReleaseServices(
            connection=connection,
            elector=elector,
            held=held,
            unbound=unbound,
            gang_members=gang_members,
            deployments=deployments,
            metrics=metrics,
            outcomes=Outcomes(show=metrics.landed),
            pace=QuotaPace(self.now),
            reclaims=Reclaims(),
            preemptors=Preemptors(is_enabled=self.settings.preempts),
            running=running,
        )

    def _ledger(self, observed: ObservedCluster, store: Store) -> QuotaLedger:
        return QuotaLedger(
            observed,
            store,
            self._quota_config,
            rules=self.settings.quota_rules(),
            count_write=self.metrics.quota_written,
        )

    @property
    def _quota_config(self) -> QuotaConfig:
        unseen_seconds = self.settings.quota_reservation_seconds
        return QuotaConfig(timeouts=ReservationTimeouts(unseen_seconds=unseen_seconds))
