"""Composition of the webhook: the one place that joins all parts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import web

from engine.model.time import Micros, date
from webhook.background import in_background, on_change
from webhook.cluster import Cluster, RecordedPods, Recording
from webhook.cluster.watch.source_status import log_changes
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import LivePolicies
from webhook.placement.policy_counts import PolicyCounts
from webhook.serving.acceptor import ReviewQueue
from webhook.serving.app import build_app, build_monitoring_app, build_probe_app
from webhook.serving.client_names import AllowedClients
from webhook.serving.connections import Connections, most_connections
from webhook.serving.health import Health
from webhook.serving.leader_duties import LeaderDuties
from webhook.serving.placing import live_policies, placer_of
from webhook.serving.review_paths import binding_path, review_paths
from webhook.serving.server import RunningServer, listen
from webhook.serving.services import ServiceBuilder
from webhook.serving.tls import LiveCertificate
from webhook.settings import Settings

_LOG_STALENESS_SECONDS = 5.0

_log = logging.getLogger(__name__)


def wall_clock() -> Micros:
    """Time of day."""
    return Micros(time.time_ns() // 1_000)


@asynccontextmanager
async def run_server(
    settings: Settings,
    recording: Recording | None = None,
    *,
    recorded_pods: RecordedPods | None = None,
    now: Callable[[], Micros] = wall_clock,
) -> AsyncIterator[RunningServer]:
    """Join the parts of a webhook, and listen until the block is left.

    Args:
        settings: the settings.
        recording: a recorded cluster; None for the live cluster of the settings.
        recorded_pods: those of the recording, for the dashboard.
        now: the time of day.

    Raises:
        InvalidFileError: the kubeconfig cannot be used, or a policy, unless it may be repaired
            while a replica of a live cluster waits.
        TlsError: the certificate cannot be used.
        SettingsError: a port cannot be listened on.
    """
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        # 1. The services: the only step in which a live cluster and a recording differ.
        builder = ServiceBuilder(stack=stack, settings=settings, metrics=metrics, now=now)
        services = await builder.live() if recording is None else builder.recorded(recording)
        stack.push_async_callback(services.ledger.close)
        cluster = services.cluster

        # 2. Placement by the policies in force, and what the leader does by them.
        explanations = Explanations(settings.explanations_kept)
        placer = placer_of(settings, cluster, explanations)
        policies, counts = live_policies(settings, services, placer, now), PolicyCounts()
        duties = LeaderDuties(
            cluster=cluster,
            settings=settings,
            placer=placer,
            policies=policies,
            counts=counts,
            metrics=metrics,
            now=now,
        )
        outcome = duties.take_up(services, stack)
        bindings = None
        if services.binding is not None and services.leadership is not None:
            bindings = services.binding.decider(
                stack,
                settings,
                cluster,
                elector=services.leadership.elector,
                placer=placer,
                policies=policies,
                counts=counts,
                registry=metrics.registry,
            )
            services.leadership.elector.add_duty(bindings.lead)

        # 3. Certificate, readiness and metrics.
        certificate = LiveCertificate(
            services.certificate,
            client_ca=settings.client_ca,
            client_ca_every_seconds=settings.reload_seconds,
            now=lambda: date(now()),
        )
        health = Health(
            policies=policies,
            cluster=cluster,
            certificate=certificate,
            now=now,
            modes={"placement": settings.placement_mode, "quota": settings.quota_mode},
            reviews=metrics.answered,
            held=services.held_queue.status if services.held_queue else None,
            bindings=bindings.status if bindings else None,
        )
        _show_state(metrics, cluster, policies, counts, certificate, health, now)

        # 4. The HTTP applications.
        handlers = review_paths(settings, services, placer, policies, counts, metrics)
        if bindings is not None:
            handlers = (binding_path(settings, bindings, metrics), *handlers)
        names = frozenset(settings.client_allowed_names)
        reviews = build_app(
            handlers=handlers,
            health=health,
            max_body_bytes=settings.max_body_bytes,
            clients=AllowedClients(names, metrics) if names else None,
        )
        monitoring = build_monitoring_app(
            metrics=metrics,
            explanations=explanations,
            queue=services.held_queue,
            outcome=outcome,
            authorize=services.authorize if settings.debug_pages else None,
        )

        def dashboard() -> web.Application:
            # Its templates take memory and time to import.
            from webhook.serving.dashboard import webhook_dashboard  # noqa: PLC0415

            return webhook_dashboard(
                settings, services, policies, counts, explanations, outcome, recorded_pods
            )

        # 5. Background tasks.
        _start_tasks(stack, settings, cluster, policies, certificate, metrics)

        # 6. Listeners.
        turns = [handler.limiter for handler in handlers]
        server, url = await _listen_for_reviews(
            stack, settings, reviews, certificate, turns, metrics
        )
        _, metrics_url = await listen(
            stack, monitoring, settings.metrics_host, settings.metrics_port
        )
        listen_beside = partial(_listen_beside, stack, settings, certificate)
        probes = partial(build_probe_app, health)
        probe_url = await listen_beside(settings.probe_port, probes) or url
        _log.info("listening on %s, probes on %s, metrics on %s", url, probe_url, metrics_url)
        dashboard_url = await listen_beside(settings.dashboard_port, dashboard)
        if dashboard_url:
            _log.info("dashboard on %s", dashboard_url)
        yield RunningServer(
            url=url,
            probe_url=probe_url,
            metrics_url=metrics_url,
            dashboard_url=dashboard_url,
            ca_pem=certificate.current.ca_pem,
            health=health,
            cluster=cluster,
            reviews=server,
            warm_up=policies.warm_up,
        )


def _show_state(
    metrics: Metrics,
    cluster: Cluster,
    policies: LivePolicies,
    counts: PolicyCounts,
    certificate: LiveCertificate,
    health: Health,
    now: Callable[[], Micros],
) -> None:
    """Let the metrics read the state of the parts at each scrape."""
    if cluster.is_live:
        metrics.show_view(cluster.state.view)
        metrics.show_sources(cluster.sources, now)
    else:
        metrics.show_view(cluster.state.view, lambda: health.view_age_seconds)
    metrics.show_policies(
        count=lambda: len(policies.current.policies),
        loaded_at=lambda: policies.loaded_at,
        digest=lambda: policies.digest,
        is_current=lambda: not policies.last_error,
    )
    metrics.show_policy_resources(
        lambda: Counter(
            (each.resource.kind.value, each.acceptance.value) for each in policies.standings
        )
    )
    metrics.show_policy_counts(
        decisions=lambda: counts.decisions(policies.current),
        rejections=lambda: counts.rejections(policies.current),
    )
    metrics.show_certificate(lambda: certificate.current.expires_at)
    loop = asyncio.get_running_loop()
    metrics.show_tasks(lambda: len(asyncio.all_tasks(loop)))


def _start_tasks(
    stack: AsyncExitStack,
    settings: Settings,
    cluster: Cluster,
    policies: LivePolicies,
    certificate: LiveCertificate,
    metrics: Metrics,
) -> None:
    async def reload_policies() -> None:
        metrics.policies_reloaded(succeeded=await policies.reload())

    async def follow_resources() -> None:
        await cluster.synced()  # all that are there come into force together
        await policies.follow_resources()

    if settings.reload_seconds:
        in_background(stack, on_change(settings.policies, settings.reload_seconds, reload_policies))
    in_background(stack, follow_resources())
    in_background(stack, certificate.watch())
    if cluster.is_live:
        in_background(stack, log_changes(cluster.freshness, _LOG_STALENESS_SECONDS))
        in_background(stack, cluster.release_assumed())
        in_background(stack, policies.follow_nodes(cluster))


async def _listen_for_reviews(
    stack: AsyncExitStack,
    settings: Settings,
    app: web.Application,
    certificate: LiveCertificate,
    turns: Sequence[ReviewQueue],
    metrics: Metrics,
) -> tuple[web.Server, str]:
    """Listen for API servers, within limits of connections; returns the server and its URL."""
    connections = Connections(
        most_connections(settings.max_connections), count_closed=metrics.connection_closed
    )
    metrics.show_connections(lambda: len(connections))
    tls = certificate.current.context
    return await listen(stack, app, settings.host, settings.port, tls, connections, turns)


async def _listen_beside(
    stack: AsyncExitStack,
    settings: Settings,
    certificate: LiveCertificate,
    port: int | None,
    app: Callable[[], web.Application],
) -> str:
    """Listen for callers who show no certificate; returns the URL, "" without a port."""
    if port is None:
        return ""
    tls = certificate.current.probe_context
    _, url = await listen(stack, app(), settings.host, port, tls)
    return url
