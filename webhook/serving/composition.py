"""Composition of a process: the one place that joins all parts, for either role or both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import web

from engine.model.time import Micros, date
from webhook.background import in_background, on_change
from webhook.certificates.secret import SecretSource
from webhook.cluster import RecordedPods, Recording
from webhook.cluster.watch.source_status import log_changes
from webhook.controllers.policy_outcome import AuditedPolicies
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import LivePolicies, PolicyCounts
from webhook.serving.app import build_app, build_monitoring_app, build_probe_app, review_paths
from webhook.serving.control import Control, build_control
from webhook.serving.health import Health
from webhook.serving.server import Connections, RunningServer, listen, most_connections
from webhook.serving.services import (
    EMBEDDED,
    Context,
    LiveServices,
    Role,
    held_order,
    live_policies,
    live_services,
    placer_of,
    recorded_services,
)
from webhook.serving.tls import AllowedClients, LiveCertificate
from webhook.settings import Settings

_LOG_STALENESS_SECONDS = 5.0

_log = logging.getLogger(__name__)


def wall_clock() -> Micros:
    return Micros(time.time_ns() // 1_000)


@asynccontextmanager
async def run_server(
    settings: Settings,
    recording: Recording | None = None,
    *,
    role: Role = EMBEDDED,
    recorded_pods: RecordedPods | None = None,
    now: Callable[[], Micros] = wall_clock,
) -> AsyncIterator[RunningServer]:
    """Join the parts of a process, and listen until the block is left."""
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        # 1. The services: the only step in which a live cluster and a recording differ.
        if recording:
            services = recorded_services(settings, recording, metrics, now)
        else:
            services = await live_services(stack, settings, role, metrics, now)
        stack.push_async_callback(services.ledger.close)
        cluster, live = services.cluster, services.live

        # 2. Placement by the policies in force.
        explanations, counts = Explanations(), PolicyCounts()
        placer = placer_of(settings, cluster, explanations, counts.rule_times)
        policies = live_policies(settings, services, placer, now)
        context = Context(
            stack=stack,
            settings=settings,
            metrics=metrics,
            now=now,
            services=services,
            explanations=explanations,
            placer=placer,
            policies=policies,
            counts=counts,
            audited=_audited_policies(stack, live, policies),
        )

        # 3. What is done once for all processes, by the one of them that leads.
        control, outcome = Control(), None
        hand_over: Callable[[], Awaitable[None]] = _nothing_to_hand_over
        if live is not None:
            outcome = live.outcome_record.report if live.outcome_record else None
            if live.controlled is not None:
                control = await build_control(context)
                outcome = control.outcome.report if control.outcome else None
            hand_over = _take_part(stack, live, control, role)
        queue, guard = held_order(settings, services, now), services.hold_guard

        # 4. Certificate, readiness and metrics.
        if isinstance(services.certificate, SecretSource):
            await services.certificate.first()  # the leader may have to make it
        certificate = LiveCertificate(
            services.certificate,
            client_ca=settings.client_ca,
            now=lambda: date(now()),
        )
        health = Health(
            policies=policies,
            cluster=cluster,
            certificate=certificate,
            now=now,
            modes={"placement": settings.placement_mode, "quota": settings.quota_mode},
            reviews=metrics.answered,
            held=(lambda: guard.status(now())) if guard else None,
            bindings=control.bindings.status if control.bindings else None,
        )
        _show_state(context, certificate, health)

        # 5. The HTTP applications.
        handlers = [*control.handlers]
        if Role.REVIEWS in role:
            handlers += review_paths(context)
        names = frozenset(settings.client_allowed_names)
        reviews = build_app(
            handlers=handlers,
            health=health,
            clients=AllowedClients(names, metrics) if names else None,
        )
        monitoring = build_monitoring_app(
            metrics=metrics,
            explanations=explanations,
            queue=queue,
            outcome=outcome,
            authorize=services.authorize if settings.debug_pages else None,
        )

        def dashboard() -> web.Application:
            # Its templates take memory and time to import.
            from webhook.serving.dashboard import webhook_dashboard  # noqa: PLC0415

            return webhook_dashboard(
                context,
                queue=queue,
                outcome=outcome,
                recorded_pods=recorded_pods,
                bindings=control.bindings.status if control.bindings else None,
            )

        # 6. Background tasks.
        _start_tasks(context, certificate)

        # 7. Listeners.
        turns = [handler.limiter for handler in handlers]
        connections = Connections(most_connections(), count_closed=metrics.connection_closed)
        metrics.show_connections(lambda: len(connections))
        tls = certificate.current.context
        server, url = await listen(
            stack, reviews, settings.host, settings.port, tls, connections, turns
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
            paths=tuple(handler.path for handler in handlers),
            probe_url=probe_url,
            metrics_url=metrics_url,
            dashboard_url=dashboard_url,
            ca_pem=certificate.current.ca_pem,
            health=health,
            cluster=cluster,
            reviews=server,
            warm_up=policies.warm_up,
            hand_over=hand_over,
        )


def _audited_policies(
    stack: AsyncExitStack, live: LiveServices | None, policies: LivePolicies
) -> AuditedPolicies | None:
    """Follow the leader where it says that policies are in Audit mode for what they did."""
    if live is None or live.outcome_record is None:
        return None
    audited = AuditedPolicies(policies, lambda: live.elector.observed.annotations)
    in_background(stack, audited.follow())
    return audited


async def _nothing_to_hand_over() -> None:
    """Hand over nothing: nobody leads on a recording."""


def _take_part(
    stack: AsyncExitStack, live: LiveServices, control: Control, role: Role
) -> Callable[[], Awaitable[None]]:
    """Follow the leader, or take part in its election; returns what ends that before the rest.

    What it returns ends the duties, releases the Lease and then only follows.
    """
    elector, election = live.elector, AsyncExitStack()
    stack.push_async_exit(election)
    candidate = Role.CONTROL in role
    in_background(election, elector.run(*control.duties) if candidate else elector.follow())

    async def hand_over() -> None:
        if candidate:
            await election.aclose()
            in_background(election, elector.follow())

    return hand_over


def _show_state(context: Context, certificate: LiveCertificate, health: Health) -> None:
    """Let the metrics read the state of the parts at each scrape."""
    metrics, cluster, policies = context.metrics, context.cluster, context.policies
    if cluster.is_live:
        metrics.show_view(cluster.state.view)
        metrics.show_sources(cluster.sources, context.now)
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
            (each.resource.kind.value, each.resource.namespace, each.acceptance.value)
            for each in policies.standings
        )
    )
    metrics.show_policy_counts(
        decisions=lambda: context.counts.decisions(policies.current),
        rejections=lambda: context.counts.rejections(policies.current),
        rule_seconds=lambda: context.counts.rule_seconds(policies.current),
        rule_evaluations=lambda: context.counts.rule_evaluations(policies.current),
    )
    metrics.show_certificate(lambda: certificate.current.expires_at)
    loop = asyncio.get_running_loop()
    metrics.show_tasks(lambda: len(asyncio.all_tasks(loop)))


def _start_tasks(context: Context, certificate: LiveCertificate) -> None:
    stack, settings = context.stack, context.settings
    cluster, policies = context.cluster, context.policies

    async def reload_policies() -> None:
        context.metrics.policies_reloaded(succeeded=await policies.reload())

    async def follow_resources() -> None:
        await cluster.synced()  # all that are there come into force together
        await policies.follow_resources()

    in_background(stack, on_change(settings.policies, reload_policies))
    in_background(stack, follow_resources())
    in_background(stack, certificate.watch())
    if cluster.is_live:
        in_background(stack, log_changes(cluster.freshness, _LOG_STALENESS_SECONDS))
        in_background(stack, cluster.release_assumed())
        in_background(stack, policies.follow_nodes(cluster))


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
