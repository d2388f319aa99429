"""A live cluster, joined: connection, sources, certificate, and what one replica does for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from engine.model.time import SECOND, Micros
from engine.quota import Patience
from engine.view import ClusterState, Domain, Freshness, UsageHistory
from webhook.certificates.bundles import Bundles
from webhook.certificates.rotation import Rotation
from webhook.certificates.secret_source import SecretSource
from webhook.certificates.secret_store import SecretStore
from webhook.cluster.connection import Connection, connected
from webhook.cluster.intake import Intake
from webhook.cluster.known import KnownCluster
from webhook.cluster.live import live_cluster
from webhook.cluster.metrics_api import MetricsApi
from webhook.cluster.pace import Clock
from webhook.cluster.prometheus import PrometheusSettings, prometheus
from webhook.cluster.source_status import SourceStatus
from webhook.cluster.usage_feed import UsageFeed
from webhook.cluster.usage_poller import UsagePoller, UsageSource
from webhook.freshness import StaleAfter
from webhook.lease import Duty, LeaseElector, new_identity
from webhook.quota import SeenPods, Timing
from webhook.quota.live import live_ledger
from webhook.server import MakeLedger
from webhook.settings import Settings
from webhook.tls import CertificateSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a webhook works with on a live cluster.

    Attributes:
        cluster: what is known, more by the second.
        certificate: a source of our own in a Secret; None if the settings name no Secret.
        ledger: makes the ledger of its quotas.
        synced: waits until as much is known as there is to know.
    """

    cluster: KnownCluster
    certificate: CertificateSource | None
    ledger: MakeLedger
    synced: Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def live(settings: Settings, now: Callable[[], Micros]) -> AsyncIterator[Live]:
    """Listen to the cluster that the settings lead to until the block is left.

    Waits for the certificate, which another replica may have to make first, but not for the rest.

    Raises:
        InvalidFileError: the kubeconfig cannot be used.
    """
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            connected(settings.kubeconfig, settings.context)
        )
        state = ClusterState(assumed_seconds=settings.assumed_seconds)
        seen = SeenPods()
        intake = Intake(state, now=now, pod_seen=seen.note)
        usage = await _usage(stack, settings, connection, intake, now)
        cluster = await stack.enter_async_context(
            live_cluster(connection, intake, Clock(now=now), also=[usage])
        )
        limits = StaleAfter(
            nodes=settings.stale_nodes_seconds,
            pods=settings.stale_pods_seconds,
            usage=settings.stale_usage_seconds,
        )

        patience = Patience(unseen_seconds=settings.quota_reservation_seconds)
        timing = Timing(patience=patience)

        def freshness() -> Freshness:
            return limits.freshness(cluster.sources.values(), now())

        yield Live(
            cluster=KnownCluster(
                state=state, now=now, is_live=True, sources=cluster.sources, freshness=freshness
            ),
            certificate=await _certificate(stack, settings, connection, now),
            ledger=partial(live_ledger, connection, state, cluster.sources, seen, timing),
            synced=cluster.synced,
        )


async def _usage(
    stack: AsyncExitStack,
    settings: Settings,
    connection: Connection,
    intake: Intake,
    now: Callable[[], Micros],
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
        source = MetricsApi(connection, intake.state, with_pods=settings.usage_of_pods)
    every_seconds = settings.usage_poll_seconds
    feed = UsageFeed(
        intake.state,
        UsageHistory(every_seconds),
        by_koordinator=intake.measured_by_koordinator,
    )
    status = SourceStatus(name=name, domain=Domain.METRICS, required=False)
    return UsagePoller(source, feed, status, every_seconds=every_seconds, now=now)


async def _certificate(
    stack: AsyncExitStack,
    settings: Settings,
    connection: Connection,
    now: Callable[[], Micros],
) -> CertificateSource | None:
    """Return our certificate in a Secret, looked after; None if the settings name no Secret."""
    if settings.certificate_secret is None:
        return None

    def today() -> datetime:
        return datetime.fromtimestamp(now() / SECOND, UTC)

    store = SecretStore(connection, namespace=settings.namespace, name=settings.certificate_secret)
    configurations = settings.webhook_configurations
    bundles = Bundles(connection, mutating=configurations, validating=configurations)
    elector = LeaseElector(
        connection,
        namespace=settings.namespace,
        name=settings.lease,
        identity=new_identity(),
    )
    rotation = Rotation(
        store,
        bundles,
        names=settings.certificate_names,
        is_leader=lambda: elector.is_leader,
        now=today,
    )
    _keep(stack, elector, rotation.run)
    source = SecretSource(store, bundles, now=today)
    await source.first()
    return source


def _keep(stack: AsyncExitStack, elector: LeaseElector, *duties: Duty) -> None:
    """Take part in choosing who leads until the block is left, then let go of the Lease."""
    task = asyncio.create_task(elector.run(*duties), name="lease")

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
