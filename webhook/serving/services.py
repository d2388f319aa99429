"""Services that both compositions stand on: the cluster, quota, the certificate and the leader.

The one place in which a live cluster and a recording differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from enum import Flag, auto
from functools import partial
from typing import Final

from engine.binding import BindingLedger
from engine.model.decision import RuleTimes
from engine.model.kinds import WATCHED, WATCHED_FOR_EVICTION, WATCHED_FOR_POLICIES, Domain, Kind
from engine.model.selectors import parse_selector_text
from engine.model.time import SECOND, Micros, date
from engine.placement import encode
from engine.quota import QuotaVerdict, ReservationTimeouts
from engine.quota.queueing import CohortLending
from engine.view import ClusterState, UsageHistory
from webhook.background import in_background
from webhook.binding import (
    BindingRecords,
    ReboundEvents,
    SeenBindings,
)
from webhook.certificates.bundles import CaBundles
from webhook.certificates.secret import SecretSource, SecretStore
from webhook.cluster import Cluster, Recording, recorded_cluster
from webhook.cluster.client.access_reviews import AccessReviews
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.client.watched_objects import ConfigMapStore, WatchedObjects
from webhook.cluster.cluster import live_cluster
from webhook.cluster.timing import Clock
from webhook.cluster.usage import (
    MetricsApi,
    PrometheusSettings,
    UsageFeed,
    UsagePoller,
    UsageSource,
    prometheus,
)
from webhook.cluster.watch.event_applier import EventApplier, PodObserver, PolicyObserver
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter
from webhook.controllers.eviction import RunningPods
from webhook.controllers.leader_election import LeaseElector, steady_clock
from webhook.controllers.policy_outcome import AuditedPolicies, BoundPods, OutcomeRecord
from webhook.controllers.quota_rollout import ApiServers, QuotaCoverage, RolloutConfiguration
from webhook.controllers.release import ReleasedPods
from webhook.identity import new_identity
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import GangMembers, HeldOrder, HeldPods, HoldGuard
from webhook.placement.live_policies import LivePolicies, PolicyCounts, WarmUp
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
from webhook.serving.server import ANY_ADDRESS
from webhook.serving.tls import CertificateFiles, CertificateSource, SelfSigned
from webhook.settings import Settings

_LAG: Final = 5 * SECOND
"""Of a watch behind what it reports on, at most, while it is heard at all."""


class BindingServices:
    """Bindings as this replica sees them, whether it leads or not."""

    def __init__(self, connection: Connection, *, identity: str, now: Callable[[], Micros]) -> None:
        self.now = _going_on_from(now())
        self.events = ReboundEvents(connection, identity=identity)
        self.seen = SeenBindings(self.events.record, self.now)  # an observer of pods
        self.records = BindingRecords()  # of decisions, for whoever counts outcomes
        self._day_time = now
        self._ledger: BindingLedger | None = None

    def follow(self, state: ClusterState, settings: Settings) -> None:
        """Note what is seen; before the first pod is."""
        selector = parse_selector_text(settings.binding_namespaces)

        def is_asked_about(namespace: str) -> bool:
            """Return whether the API server asks about bindings of a namespace, as far as known."""
            labels = state.namespace_labels(namespace)
            return labels is None or selector.matches(labels)

        self._ledger = BindingLedger(state, scope=settings.scope(), is_asked_about=is_asked_about)
        self.seen.follow(self._ledger)

    @property
    def ledger(self) -> BindingLedger:
        """The bindings on their way; there is one once a state is followed."""
        if self._ledger is None:
            raise ValueError("bindings are decided by what is followed")
        return self._ledger

    def seen_until(self, pods: SourceStatus) -> Micros:
        """Return the moment up to which all changes of pods have been seen."""
        silence = max(self._day_time() - (pods.last_contact or 0), 0)
        return Micros(self.now() - silence - _LAG)


def _going_on_from(now: Micros) -> Callable[[], Micros]:
    """Return a time of day that only goes forward: somebody may set the clock of the machine.

    What is on its way would else be forgotten at once, or count for as long as the clock went back.
    """
    began = steady_clock()
    return lambda: Micros(now + int((steady_clock() - began) * SECOND))


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
    """What control knows of pods besides the view."""

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
class Context:
    """What the features of a process are built of."""

    stack: AsyncExitStack  # unwinds when the process ends, after the duties of the leader have
    settings: Settings
    metrics: Metrics
    now: Callable[[], Micros]  # the time of day
    services: Services
    explanations: Explanations
    placer: Placer
    policies: LivePolicies
    counts: PolicyCounts  # of what policies decide
    # keeps policies in Audit mode for what they did; None where nobody counts that
    audited: AuditedPolicies | None

    @property
    def cluster(self) -> Cluster:
        return self.services.cluster

    @property
    def live(self) -> LiveServices:
        """Services of a live cluster, for features that have no other."""
        if self.services.live is None:
            raise AssertionError("a recording has no leader")
        return self.services.live

    @property
    def controlled(self) -> ControlledPods:
        """What control knows of pods, for its features."""
        if self.live.controlled is None:
            raise AssertionError("this process has no control")
        return self.live.controlled

    def is_ready(self) -> bool:
        """Whether the cluster and the policies are complete."""
        return self.cluster.is_synced and self.policies.is_loaded

    def may_write(self) -> bool:
        """Whether this process leads at this very moment."""
        return self.live.elector.is_leader


def recorded_services(
    settings: Settings, recording: Recording, metrics: Metrics, now: Callable[[], Micros]
) -> Services:
    """Services on a recording: quota is kept in memory."""
    cluster = recorded_cluster(recording, now)
    return Services(
        cluster=cluster,
        ledger=_ledger(settings, metrics, ObservedCluster(view=cluster.view), MemoryStore()),
        certificate=local_certificate(settings, date(now())),
        authorize=anybody,
    )


async def live_services(
    stack: AsyncExitStack,
    settings: Settings,
    role: Role,
    metrics: Metrics,
    now: Callable[[], Micros],
) -> Services:
    """Services on a live cluster, which run until the stack unwinds; waits for nothing of it."""
    identity = new_identity()
    connection = await stack.enter_async_context(connected(settings.kubeconfig, settings.context))

    # 1. The cluster, and all who observe its pods.
    pods, deployments = ObservedPods(), DeploymentPods()
    held = HeldPods(now, hold_seconds=settings.hold_seconds, most=settings.hold_max)
    observers: list[PodObserver] = [pods, deployments, held]
    kinds = [*WATCHED]
    binding, controlled = None, None
    if Role.CONTROL in role:
        if settings.binding:
            binding = BindingServices(connection, identity=identity, now=now)
        controlled = ControlledPods(settings, binding)
        observers += controlled.observers()
        kinds += WATCHED_FOR_EVICTION if settings.evicts else ()
    policy_resources = PolicyResources() if settings.takes_policy_resources else None
    if policy_resources is not None:
        kinds += WATCHED_FOR_POLICIES
    cluster = await watched_cluster(
        stack, settings, connection, observers, policy_resources, kinds, now=now
    )
    if binding is not None:
        binding.follow(cluster.state, settings)

    # 2. Reservations of quota, and events of what quotas denied.
    observed = observe_cluster(cluster.state, cluster.sources, pods, deployments)
    ledger = _ledger(
        settings, metrics, observed, ApiStore(connection), _lending(settings, cluster, pods)
    )
    denials = QuotaEventRecorder(connection, view=cluster.state.view, identity=identity)
    if Role.REVIEWS in role:
        in_background(stack, ledger.run())
        in_background(stack, denials.run())
    coverage = None
    if settings.keeps_quota_namespaces:
        configuration = RolloutConfiguration(connection, settings.webhook_configurations[0])
        coverage = QuotaCoverage(configuration, ApiServers(connection, settings.namespace))
        stack.push_async_callback(coverage.close)
    if settings.quota_mode != "Off":
        rules = settings.queue_rules()
        metrics.registry.register(QuotaCollector(observed, rules.rules, rules.mode, rules.capacity))

    # 3. The leader, and what it leaves for the others.
    elector = LeaseElector(
        connection, namespace=settings.namespace, name=settings.lease, identity=identity
    )
    outcome_record = None
    if settings.outcome:
        config_map = ConfigMapStore(
            connection,
            namespace=settings.namespace,
            name=f"{settings.lease}-outcome",
            may_write=lambda: elector.is_leader,
        )
        outcome_record = OutcomeRecord(config_map)

    # 4. The certificate, and other objects that are read again and again.
    watched = WatchedObjects(connection, _watched_paths(settings, role))
    in_background(stack, watched.run())
    certificate = local_certificate(settings, date(now()))
    stored = _stored_certificate(settings, watched)
    if stored is not None:
        certificate = SecretSource(stored.store, stored.bundles, now=lambda: date(now()))
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
            outcome_record=outcome_record,
            controlled=controlled,
        ),
    )


def _lending(settings: Settings, cluster: Cluster, pods: ObservedPods) -> CohortLending | None:
    if not settings.hold:
        return None
    return CohortLending(
        settings.queue_rules(),
        cluster.state.view,
        cluster.state.assumed_pods,
        counted=cluster.state.requests,
        version_of=pods.version,
        clock=time.monotonic,
        unseen_seconds=settings.quota_reservation_seconds,
    )


def _stored_certificate(settings: Settings, watched: WatchedObjects) -> StoredCertificate | None:
    if settings.certificate_secret is None:
        return None
    names = settings.webhook_configurations
    return StoredCertificate(
        store=SecretStore(watched, namespace=settings.namespace, name=settings.certificate_secret),
        bundles=CaBundles(watched, mutating=names, validating=names),
    )


def _watched_paths(settings: Settings, role: Role) -> Iterator[str]:
    is_stored = settings.certificate_secret is not None
    if is_stored:
        yield f"/api/v1/namespaces/{settings.namespace}/secrets/{settings.certificate_secret}"
    for name in settings.webhook_configurations:
        if is_stored or (Role.CONTROL in role and settings.reviews_new_pods):
            yield f"{_ADMISSION}/mutatingwebhookconfigurations/{name}"
        if is_stored or settings.keeps_quota_namespaces:
            yield f"{_ADMISSION}/validatingwebhookconfigurations/{name}"


def _ledger(
    settings: Settings,
    metrics: Metrics,
    observed: ObservedCluster,
    store: Store,
    lending: CohortLending | None = None,
) -> QuotaLedger:
    return QuotaLedger(
        observed,
        store,
        quota_config(settings),
        rules=settings.quota_rules(),
        lending=lending,
        count_write=metrics.quota_written,
    )


def quota_config(settings: Settings) -> QuotaConfig:
    unseen_seconds = settings.quota_reservation_seconds
    return QuotaConfig(timeouts=ReservationTimeouts(unseen_seconds=unseen_seconds))


def local_certificate(settings: Settings, today: datetime) -> CertificateSource:
    """Source of a certificate that needs no cluster: files, or a self-signed one."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        return CertificateFiles(settings.tls_cert, settings.tls_key)
    host = () if settings.host in ANY_ADDRESS else (settings.host,)
    return SelfSigned(now=today, names=(*host, *settings.certificate_names))


def held_order(
    settings: Settings, services: Services, now: Callable[[], Micros]
) -> HeldOrder | None:
    if services.live is None or services.hold_guard is None:
        return None
    return HeldOrder(
        held=services.live.held,
        order=settings.queue_order(),
        queue_rules=settings.queue_rules(),
        view=services.cluster.state.view,
        now=now,
        guard=services.hold_guard,
    )


def placer_of(
    settings: Settings, cluster: Cluster, explanations: Explanations, rule_times: RuleTimes
) -> Placer:
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
        rule_times=rule_times,
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
        may_start_empty=cluster.is_live,
    )
