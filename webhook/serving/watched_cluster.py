"""A live cluster as the settings say: its watches, and where usage of nodes comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from engine.model.domain import Domain
from engine.model.kinds import Kind
from engine.model.time import Micros
from engine.view import ClusterState, UsageHistory
from webhook.cluster import Cluster
from webhook.cluster.client.connection import Connection
from webhook.cluster.timing import Clock
from webhook.cluster.usage.metrics_api import MetricsApi
from webhook.cluster.usage.poller import UsageFeed, UsagePoller, UsageSource
from webhook.cluster.usage.prometheus import PrometheusSettings, prometheus
from webhook.cluster.watch.event_applier import EventApplier, PodObserver, PolicyObserver
from webhook.cluster.watch.live_cluster import live_cluster
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter
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
    """Return a live cluster, which is followed until the stack unwinds.

    Args:
        stack: of everything that is started.
        settings: how to follow it.
        connection: to its API server.
        observers: get each pod.
        policies: gets the policies of the API; None where none are taken.
        kinds: that are watched.
        now: the time of day.
    """
    # With `--hold` alone are there queued pods, and a webhook that sees their release.
    state = ClusterState(assumed_seconds=settings.assumed_seconds, leave_out_queued=settings.hold)
    applier = EventApplier(
        state, now=now, observers=observers, policies=policies, buffers_usage=True
    )
    stale_after = StaleAfter(
        nodes=settings.stale_nodes_seconds,
        pods=settings.stale_pods_seconds,
        usage=settings.stale_usage_seconds,
    )
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
