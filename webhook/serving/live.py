"""A live cluster, joined: connection, sources, certificate, quotas, and what one does for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from engine.model.time import Micros, date
from engine.quota import ReservationTimeouts
from engine.view import ClusterState, Domain, UsageHistory
from webhook.background import in_background
from webhook.certificates.bundles import CaBundles
from webhook.certificates.secret_source import SecretSource
from webhook.certificates.secret_store import SecretStore
from webhook.cluster import Cluster
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.timing import Clock
from webhook.cluster.usage.metrics_api import MetricsApi
from webhook.cluster.usage.poller import UsageFeed, UsagePoller, UsageSource
from webhook.cluster.usage.prometheus import PrometheusSettings, prometheus
from webhook.cluster.watch.event_applier import EventApplier
from webhook.cluster.watch.live_cluster import live_cluster
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter
from webhook.controllers.certificate_rotation import Rotation
from webhook.controllers.leader_election import Duty, LeaseElector, new_identity
from webhook.controllers.quota_status import ControllerRules, QuotaController
from webhook.metrics import Metrics
from webhook.quota import ObservedPods, QuotaTiming
from webhook.quota.live_ledger import live_ledger
from webhook.quota.quota_events import QuotaEventRecorder
from webhook.serving.composition import ServerDeps, certificate_source
from webhook.serving.tls import CertificateSource
from webhook.settings import Settings

Now = Callable[[], Micros]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveServices:
    """What a webhook works with on a live cluster.

    Attributes:
        cluster: what is known, more by the second.
        parts: what else it needs.
        synced: waits until as much is known as there is to know.
    """

    cluster: Cluster
    parts: ServerDeps
    synced: Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def live(settings: Settings, now: Now) -> AsyncIterator[LiveServices]:
    """Listen to the cluster that the settings lead to until the block is left.

    Waits for the certificate, which another replica may have to make first, but not for the rest.

    Raises:
        InvalidFileError: the kubeconfig cannot be used.
    """
    metrics, identity = Metrics(), new_identity()
    async with AsyncExitStack() as stack:
        # 1. What is known of the cluster.
        connection = await stack.enter_async_context(
            connected(settings.kubeconfig, settings.context)
        )
        state, seen = ClusterState(assumed_seconds=settings.assumed_seconds), ObservedPods()
        applier = EventApplier(state, now=now, observers=[seen], buffers_usage=True)
        usage = await _usage(stack, settings, connection, applier, now)
        stale_after = StaleAfter(
            nodes=settings.stale_nodes_seconds,
            pods=settings.stale_pods_seconds,
            usage=settings.stale_usage_seconds,
        )
        clock = Clock(now=now)
        cluster = await stack.enter_async_context(
            live_cluster(connection, applier, clock, also=[usage], stale_after=stale_after)
        )

        # 2. Who has been promised quota, and who was refused.
        timing = QuotaTiming(
            timeouts=ReservationTimeouts(unseen_seconds=settings.quota_reservation_seconds)
        )
        ledger = live_ledger(
            connection,
            state,
            cluster.sources,
            seen,
            timing,
            rules=settings.quota_rules(),
            count_write=metrics.quota_written,
        )
        in_background(stack, ledger.run())
        refusals = QuotaEventRecorder(connection, view=state.view, identity=identity)
        in_background(stack, refusals.run())

        # 3. What one replica does for all.
        elector = LeaseElector(
            connection, namespace=settings.namespace, name=settings.lease, identity=identity
        )
        controller = QuotaController(
            connection,
            view=state.view,
            tidy=ledger.prune_reservations,
            timing=timing,
            may_write=lambda: elector.is_leader,
            show_drift=metrics.quotas_drifted,
            rules=ControllerRules(counts=settings.quota_status_counts),
        )
        duties: list[Duty] = [] if settings.quota_mode == "Off" else [controller.run]
        secret = _secret(settings, connection, elector, now)
        if secret is not None:
            duties.append(secret.rotation.run)
        if duties:
            in_background(stack, elector.run(*duties))

        # 4. What is served, as soon as there is something to serve.
        certificate: CertificateSource
        if secret is None:
            certificate = certificate_source(settings, now=date(now()))
        else:
            await secret.source.first()
            certificate = secret.source
        yield LiveServices(
            cluster=cluster,
            parts=ServerDeps(
                metrics=metrics, certificate=certificate, ledger=ledger, refused=refusals.record
            ),
            synced=cluster.synced,
        )


async def _usage(
    stack: AsyncExitStack,
    settings: Settings,
    connection: Connection,
    applier: EventApplier,
    now: Now,
) -> UsagePoller:
    """Return who tells the usage of nodes that Koordinator does not measure."""
    if settings.prometheus_url is not None:
        name = "prometheus"
        asked = PrometheusSettings(
            url=settings.prometheus_url,
            cpu_query=settings.prometheus_cpu_query,
            memory_query=settings.prometheus_memory_query,
            node_label=settings.prometheus_node_label,
            window_seconds=settings.prometheus_window_seconds,
            token_file=settings.prometheus_token_file,
            ca_file=settings.prometheus_ca_file,
        )
        source: UsageSource = await stack.enter_async_context(prometheus(asked, now=now))
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


@dataclass(frozen=True, slots=True)
class _Secret:
    """The Secret with our certificate: who reads it, and who looks after it."""

    source: SecretSource
    rotation: Rotation


def _secret(
    settings: Settings, connection: Connection, elector: LeaseElector, now: Now
) -> _Secret | None:
    """Return how we deal with the Secret, None if the settings name none."""
    if settings.certificate_secret is None:
        return None
    store = SecretStore(connection, namespace=settings.namespace, name=settings.certificate_secret)
    configurations = settings.webhook_configurations
    bundles = CaBundles(connection, mutating=configurations, validating=configurations)
    rotation = Rotation(
        store,
        bundles,
        names=settings.certificate_names,
        is_leader=lambda: elector.is_leader,
        now=lambda: date(now()),
    )
    return _Secret(SecretSource(store, bundles, now=lambda: date(now())), rotation)
