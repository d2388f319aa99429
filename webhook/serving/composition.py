"""The composition root: joins the parts, listens, and ends without losing a review."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from ssl import SSLContext

from aiohttp import web

from engine.errors import Diagnostic
from engine.model.time import Micros, date
from engine.pipeline import Scope
from engine.quota import QuotaVerdict, ReservationTimeouts
from webhook.admission.handler import ReviewHandler, ReviewLimits
from webhook.admission.placement import PlacementReviews
from webhook.admission.quota_objects import QuotaObjectReviews, by_resource
from webhook.admission.review_result import ignored
from webhook.background import in_background
from webhook.cluster import Cluster
from webhook.cluster.watch.source_status import log_changes
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.quota import MemoryStore, ObservedCluster, QuotaLedger, QuotaReviews, QuotaTiming
from webhook.serving.app import build_app, build_monitoring_app
from webhook.serving.file_watch import on_change
from webhook.serving.health import Health
from webhook.serving.tls import CertificateFiles, CertificateSource, LiveCertificate, SelfSigned
from webhook.settings import Settings
from webhook.settings_sources import SettingsError

_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_LOOK_AGAIN_SECONDS = 0.05
_LAST_REVIEWS_SECONDS = 1.0
_LOG_FRESHNESS_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDeps:
    """What differs between a webhook on a recording and one on a live cluster.

    Attributes:
        metrics: where everything is counted.
        certificate: where it comes from.
        ledger: who has been promised quota.
        refused: told of each request that a quota refuses.
    """

    metrics: Metrics
    certificate: CertificateSource
    ledger: QuotaLedger
    refused: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A webhook that listens.

    Attributes:
        url: where reviews go.
        metrics_url: where metrics and debug pages are.
        ca_pem: what a caller must trust; empty with a given certificate.
        health: what it works with.
        reviews: the server behind `url`.
        warm_up: makes the next reviews as quick as those after them; for when much has come to be
            known of the cluster.
    """

    url: str
    metrics_url: str
    ca_pem: bytes
    health: Health
    reviews: web.Server
    warm_up: Callable[[], Awaitable[None]]

    def greeting(self) -> str:
        """Return what to tell the person who started it."""
        known = self.health.detail()
        lines = [
            f"policies  {known['policies']['loaded']}, over {known['view']['nodes']} nodes",
            f"reviews   {self.url}/mutate and {self.url}/validate",
            f"probes    {self.url}/livez and {self.url}/readyz",
            f"metrics   {self.metrics_url}/metrics",
            f"decisions {self.metrics_url}/debug/decisions",
        ]
        if self.ca_pem:
            lines += [
                "self-signed authority (the `caBundle` of a webhook configuration, in base64):",
                self.ca_pem.decode().rstrip(),
                f"save it as ca.pem and try: curl --cacert ca.pem {self.url}/readyz",
            ]
        return "\n".join(lines)

    async def drain(self, seconds: float, *, delay_seconds: float = 0.0) -> None:
        """Be not ready, and serve on until nobody is connected or time is up.

        Args:
            seconds: how long to wait for callers at most, after the delay.
            delay_seconds: how long to serve in any case. Nobody may be connected just now, and
                still a caller that has not learnt that we leave comes in a second.
        """
        longest = delay_seconds + seconds
        _log.info("ending: not ready any more, serving on for at most %s s", longest)
        self.health.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + longest
        await asyncio.sleep(delay_seconds)
        while self.reviews.connections and loop.time() < until:  # noqa: ASYNC110 - the server tells nobody when its last connection closes
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def wall_clock() -> Micros:
    """Return the time of day."""
    return Micros(time.time_ns() // 1_000)


def certificate_source(settings: Settings, *, now: datetime) -> CertificateSource:
    """Return where the certificate comes from that needs no cluster: files, or made here."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        every = settings.reload_seconds
        return CertificateFiles(settings.tls_cert, settings.tls_key, every_seconds=every)
    host = () if settings.host in _ANY_ADDRESS else (settings.host,)
    return SelfSigned(now=now, names=(*host, *settings.certificate_names))


@asynccontextmanager
async def run_server(
    settings: Settings,
    cluster: Cluster,
    *,
    parts: ServerDeps | None = None,
    now: Callable[[], Micros] = wall_clock,
) -> AsyncIterator[RunningServer]:
    """Join the parts of a webhook and listen until the block is left.

    Args:
        settings: where to listen and what to do.
        cluster: what is known.
        parts: of a live cluster; None for those of a recording.
        now: the time of day.

    Raises:
        InvalidFileError: a policy cannot be used.
        TlsError: the certificate cannot be used.
        SettingsError: a port cannot be listened on.
    """

    def today() -> datetime:
        return date(now())

    parts = parts or _parts_of_recording(settings, cluster, today())

    # 1. What may change while we run.
    scope = Scope(
        scheduler_names=settings.scheduler_names,
        excluded_namespaces=settings.excluded_namespaces,
    )
    explanations = Explanations(settings.explanations_kept)
    placer = Placer(
        view=cluster.view,
        now=cluster.now,
        scope=scope,
        clock=time.monotonic,
        staleness=cluster.freshness,
        explanations=explanations,
        assumed=cluster if cluster.is_live else None,
    )
    policies = LivePolicies(
        settings.policies,
        track=cluster.state.track,
        prepare=cluster.state.preparing,
        warm_up=placer.warm_up,
        now=today,
        only_audit=settings.placement_mode == "Audit",
    )
    certificate = LiveCertificate(parts.certificate, client_ca=settings.client_ca, now=today)

    # 2. What watches over it.
    metrics = parts.metrics
    health = Health(
        policies=policies,
        state=cluster.state,
        view_updated_at=cluster.last_contact,
        certificate=certificate,
        now=now,
        sources=cluster.sources,
        freshness=cluster.freshness,
        also=lambda: {
            "modes": {"placement": settings.placement_mode, "quota": settings.quota_mode},
            "reviews": metrics.answered(),
        },
    )
    _show(metrics, cluster, policies, certificate, health, now)
    loop = asyncio.get_running_loop()
    metrics.show_tasks(lambda: len(asyncio.all_tasks(loop)))

    # 3. What answers: advice fails open, quota leaves it to the API server.
    placement = PlacementReviews(placer, lambda: policies.current, time.monotonic)
    quota = QuotaReviews(
        ledger=parts.ledger,
        view=cluster.state.view,
        mode=settings.quota_mode,
        excluded_namespaces=settings.excluded_namespaces,
        refused=parts.refused,
    )
    quota_objects = QuotaObjectReviews(view=cluster.state.view, rules=settings.quota_rules())
    final = by_resource(pods=quota.answer, quotas=quota_objects.answer)
    limits = ReviewLimits(
        max_in_flight=settings.max_in_flight,
        default_timeout_seconds=settings.default_timeout_seconds,
        deadline_fraction=settings.deadline_fraction,
    )
    handler = partial(ReviewHandler, limits=limits, metrics=metrics, clock=time.monotonic)
    reviews = build_app(
        handlers=(
            handler(
                "mutate",
                ignored if settings.placement_mode == "Off" else placement.review,
                fails_open=True,
            ),
            handler("validate", final, fails_open=False),
        ),
        health=health,
        max_body_bytes=settings.max_body_bytes,
    )
    monitoring = build_monitoring_app(metrics=metrics, explanations=explanations)

    # 4. Listen, and look after changes.
    async def reload_policies() -> None:
        metrics.policies_reloaded(succeeded=await policies.reload())

    async with AsyncExitStack() as stack:
        stack.push_async_callback(parts.ledger.close)
        if settings.reload_seconds:
            in_background(
                stack, on_change(settings.policies, settings.reload_seconds, reload_policies)
            )
        in_background(stack, certificate.watch())
        if cluster.is_live:
            in_background(stack, log_changes(cluster.freshness, _LOG_FRESHNESS_SECONDS))
            in_background(stack, cluster.release_assumed())
        tls = certificate.current.context
        server, url = await _listen(stack, reviews, settings.host, settings.port, tls)
        _, metrics_url = await _listen(
            stack, monitoring, settings.metrics_host, settings.metrics_port, None
        )
        _log.info("listening on %s, metrics on %s", url, metrics_url)
        yield RunningServer(
            url=url,
            metrics_url=metrics_url,
            ca_pem=certificate.current.ca_pem,
            health=health,
            reviews=server,
            warm_up=policies.warm_up,
        )


def _parts_of_recording(settings: Settings, cluster: Cluster, now: datetime) -> ServerDeps:
    metrics = Metrics()
    ledger = QuotaLedger(
        ObservedCluster(view=cluster.view),
        MemoryStore(),
        QuotaTiming(
            timeouts=ReservationTimeouts(unseen_seconds=settings.quota_reservation_seconds)
        ),
        rules=settings.quota_rules(),
        count_write=metrics.quota_written,
    )
    certificate = certificate_source(settings, now=now)
    return ServerDeps(metrics=metrics, certificate=certificate, ledger=ledger)


def _show(
    metrics: Metrics,
    cluster: Cluster,
    policies: LivePolicies,
    certificate: LiveCertificate,
    health: Health,
    now: Callable[[], Micros],
) -> None:
    if cluster.is_live:
        metrics.show_view(cluster.state.view)
        metrics.show_sources(cluster.sources, now)
    else:
        metrics.show_view(cluster.state.view, lambda: health.view_age_seconds)
    metrics.show_policies(lambda: len(policies.current.policies))
    metrics.show_policies_loaded(lambda: policies.loaded_at)
    metrics.show_policies_hash(lambda: policies.digest)
    metrics.show_last_reload(lambda: not policies.last_error)
    metrics.show_certificate(lambda: certificate.current.expires_at)


async def _listen(
    stack: AsyncExitStack, app: web.Application, host: str, port: int, tls: SSLContext | None
) -> tuple[web.Server, str]:
    """Start an application; returns its server and its URL as seen from this machine."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LAST_REVIEWS_SECONDS)
    stack.push_async_callback(runner.cleanup)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as error:
        problem = f"cannot be listened on: {error.strerror or error}"
        raise SettingsError([Diagnostic(file=f"{host}:{port}", message=problem)]) from error
    if runner.server is None:
        raise AssertionError("setup makes the server")
    name = "localhost" if host in _ANY_ADDRESS else host
    shown = f"[{name}]" if ":" in name else name
    scheme = "https" if tls else "http"
    return runner.server, f"{scheme}://{shown}:{runner.addresses[0][1]}"
