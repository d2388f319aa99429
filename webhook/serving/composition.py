"""Composition of the webhook: the one place that joins all parts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from engine.model.time import Micros, date
from engine.pipeline import Scope
from engine.reclaim import NodeFit
from engine.view import WhatIf
from webhook.background import in_background, on_change
from webhook.cluster import Cluster, RecordedPods, Recording
from webhook.cluster.watch.source_status import log_changes
from webhook.controllers.outcome import OutcomeController
from webhook.controllers.policy_status import PolicyObservations, PolicyStatusController
from webhook.controllers.release import QuotaQueue, SurgingPods
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import HeldPod
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts
from webhook.serving.app import build_app, build_monitoring_app, build_probe_app
from webhook.serving.client_names import AllowedClients
from webhook.serving.connections import Connections, most_connections
from webhook.serving.health import Health
from webhook.serving.judging import outcome_controller
from webhook.serving.placing import live_policies, placer_of
from webhook.serving.reclaiming import reclaim_controller
from webhook.serving.releasing import ReleaseServices, release_controller
from webhook.serving.review_paths import review_paths
from webhook.serving.server import RunningServer, listen
from webhook.serving.services import Leadership, ServiceBuilder, Services
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

        # 2. Placement by the policies in force.
        explanations = Explanations(settings.explanations_kept)
        placer = placer_of(settings, cluster, explanations)
        policies, counts = live_policies(settings, services, placer, now), PolicyCounts()
        outcome = None
        if services.leadership is not None:
            builder.keep_node_marks(services.leadership, cluster, policies)
            outcome = _judge_outcomes(
                stack, services.leadership, cluster, settings, placer, policies, metrics, now
            )

            _tell_status(services, services.leadership, policies, counts, outcome, now)

        if services.releasing is not None:
            _release(services.releasing, cluster, settings, placer, policies, counts, metrics, now)

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
        )
        _show_state(metrics, cluster, policies, counts, certificate, health, now)

        # 4. The HTTP applications.
        handlers = review_paths(settings, services, placer, policies, counts, metrics)
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

        # 5. Background tasks.
        _start_tasks(stack, settings, cluster, policies, certificate, metrics)

        # 6. Listeners.
        tls = certificate.current.context
        connections = Connections(
            most_connections(settings.max_connections), count_closed=metrics.connection_closed
        )
        metrics.show_connections(lambda: len(connections))
        turns = [handler.limiter for handler in handlers]
        server, url = await listen(
            stack, reviews, settings.host, settings.port, tls, connections, turns
        )
        _, metrics_url = await listen(
            stack, monitoring, settings.metrics_host, settings.metrics_port
        )
        probe_url = url
        if settings.probe_port is not None:
            tls, probes = certificate.current.probe_context, build_probe_app(health)
            _, probe_url = await listen(stack, probes, settings.host, settings.probe_port, tls)
        _log.info("listening on %s, probes on %s, metrics on %s", url, probe_url, metrics_url)
        dashboard_url = ""
        if settings.dashboard_port is not None:
            # Its templates take memory and time to import.
            from webhook.serving.dashboard import webhook_dashboard  # noqa: PLC0415

            app = webhook_dashboard(
                settings, services, policies, counts, explanations, outcome, recorded_pods
            )
            tls, port = certificate.current.probe_context, settings.dashboard_port
            _, dashboard_url = await listen(stack, app, settings.host, port, tls)
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


def _release(  # noqa: PLR0913, PLR0917 - named parts, joined in one place
    services: ReleaseServices,
    cluster: Cluster,
    settings: Settings,
    placer: Placer,
    policies: LivePolicies,
    counts: PolicyCounts,
    metrics: Metrics,
    now: Callable[[], Micros],
) -> None:
    """Let the leader release held pods, and evict others for them."""
    quota_queue = QuotaQueue(
        cluster.state,
        services.held,
        services.unbound,
        settings.queue_rules(),
        now=now,
        reclaims=settings.reclaims,
        surges=SurgingPods(cluster.state, services.deployments.replaced_by),
    )
    controller, gangs = release_controller(
        services,
        cluster,
        placer=placer,
        policies=policies,
        counts=counts,
        order=settings.queue_order(),
        quota_queue=quota_queue,
        node_for=partial(_node_for, cluster, policies, settings.scope()),
        recreates_gangs=settings.recreate_gangs,
        registry=metrics.registry,
        now=now,
    )
    if services.running is not None:
        reclaim = reclaim_controller(
            services,
            cluster,
            running=services.running,
            gangs=gangs,
            quota_queue=quota_queue,
            policies=policies,
            settings=settings,
            registry=metrics.registry,
            now=now,
        )
        services.elector.add_duty(reclaim.run)  # first: whoever is reclaimed for is not released
    services.elector.add_duty(controller.run)


def _judge_outcomes(  # noqa: PLR0913, PLR0917 - named parts, joined in one place
    stack: AsyncExitStack,
    leadership: Leadership,
    cluster: Cluster,
    settings: Settings,
    placer: Placer,
    policies: LivePolicies,
    metrics: Metrics,
    now: Callable[[], Micros],
) -> OutcomeController | None:
    """Let the leader judge the pods that are bound, and all replicas follow its judgement."""
    if leadership.bindings is None:
        return None
    controller, audited = outcome_controller(
        leadership,
        leadership.bindings,
        cluster,
        placer=placer,
        policies=policies,
        settings=settings,
        registry=metrics.registry,
        now=now,
    )
    in_background(stack, audited.follow())
    return controller


def _tell_status(
    services: Services,
    leadership: Leadership,
    policies: LivePolicies,
    counts: PolicyCounts,
    outcome: OutcomeController | None,
    now: Callable[[], Micros],
) -> None:
    """Let the leader write the status of policies of the API."""
    if services.policy_resources is None:
        return
    observations = PolicyObservations(
        policies, counts, None if outcome is None else outcome.report, time.monotonic
    )
    controller = PolicyStatusController(
        leadership.connection,
        standings=lambda: policies.standings if policies.is_loaded else (),
        facts=observations.read,
        today=lambda: f"{date(now()):%Y-%m-%dT%H:%M:%SZ}",
        may_write=lambda: leadership.elector.is_leader,
    )
    leadership.elector.add_duty(controller.run)


def _node_for(cluster: Cluster, policies: LivePolicies, scope: Scope, held: HeldPod) -> str:
    """Return a node that would take a held pod that counts on none, "" for none."""
    view = cluster.state.view()
    fit = NodeFit(
        held.placement_request, policies.current, view, cluster.now(), scope, cluster.freshness()
    )
    return fit.first(WhatIf(view))


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
