"""The composition root: joins the parts, listens, and ends without losing a review."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from ssl import SSLContext

import uvloop
from aiohttp import web

from engine.errors import Problem
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope
from engine.quota import QuotaLedger
from engine.view import ClusterState
from webhook import logs
from webhook.app import build_app, build_monitoring_app
from webhook.cluster import Recording, load_recorded
from webhook.explanations import Explanations
from webhook.file_watch import on_change
from webhook.handlers import Limits, ReviewHandler
from webhook.health import Health
from webhook.live_policies import LivePolicies
from webhook.metrics import Metrics
from webhook.placement_reviews import PlacementReviews
from webhook.quota_reviews import QuotaReviews
from webhook.settings import Settings, SettingsError
from webhook.tls import LiveCertificate

_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_LOOK_AGAIN_SECONDS = 0.05
_LAST_REVIEWS_SECONDS = 1.0
_GC_THRESHOLDS = (50_000, 20, 50)  # reviews leave no cycles; collecting is for what changes rarely

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until told to end by SIGINT or SIGTERM; a second signal ends at once.

    Raises:
        SettingsError: there is no cluster to advise for.
        InvalidFileError: a policy cannot be used.
        TlsError: the certificate cannot be used.
    """
    if not settings.cluster:
        raise SettingsError(
            [
                Problem(
                    file="--cluster",
                    message="a recorded cluster is required: live clusters are not read yet",
                    hint="give files or folders with its nodes and pods",
                )
            ]
        )
    logs.configure(settings.log_level, settings.log_format, sys.stderr)
    cluster = load_recorded(settings.cluster)
    for problem in cluster.problems:
        _log.warning("left out: %s", problem)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, cluster))


async def _serve(settings: Settings, cluster: Recording) -> None:
    end = _told_to_end()
    async with listening(settings, cluster) as server:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        print(server.greeting(), flush=True)  # noqa: T201 - said once, to whoever started us
        await end.wait()
        await server.drain(settings.drain_seconds)


def _told_to_end() -> asyncio.Event:
    """Return an event for the first SIGINT or SIGTERM; the next one kills."""
    told = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    loop = asyncio.get_running_loop()

    def tell() -> None:
        for one in signals:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        told.set()

    for one in signals:
        loop.add_signal_handler(one, tell)
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A webhook that listens.

    Attributes:
        url: where reviews go.
        metrics_url: where metrics and debug pages are.
        ca_pem: what a caller must trust; empty with a given certificate.
        health: what it works with.
        reviews: the server behind `url`.
    """

    url: str
    metrics_url: str
    ca_pem: bytes
    health: Health
    reviews: web.Server

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

    async def drain(self, seconds: float) -> None:
        """Turn new callers away, and serve on until nobody is connected or time is up."""
        _log.info("ending: not ready any more, serving on for at most %s s", seconds)
        self.health.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.reviews.connections and loop.time() < until:  # noqa: ASYNC110 - the server tells nobody when its last connection closes
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def wall_clock() -> Micros:
    """Return the time of day."""
    return Micros(time.time_ns() // 1_000)


@asynccontextmanager
async def listening(
    settings: Settings, cluster: Recording, *, now: Callable[[], Micros] = wall_clock
) -> AsyncIterator[Listening]:
    """Join the parts of a webhook and listen until the block is left.

    Args:
        settings: where to listen and what to do.
        cluster: what is known; ages of measurements are judged at the moment it was recorded.
        now: the time of day.

    Raises:
        InvalidFileError: a policy cannot be used.
        TlsError: the certificate cannot be used.
        SettingsError: a port cannot be listened on.
    """
    # 1. What may change while we run.
    state, recorded_at = cluster.state, cluster.recorded_at or now()
    policies = LivePolicies(settings.policies, track=state.track)
    certificate = LiveCertificate(
        _certificate_files(settings),
        client_ca=settings.client_ca,
        names=() if settings.host in _ANY_ADDRESS else (settings.host,),
        now=lambda: datetime.fromtimestamp(now() / SECOND, UTC),
    )

    # 2. What watches over it.
    health = Health(
        policies=policies,
        view=state.view,
        view_updated_at=lambda: recorded_at,
        certificate=certificate,
        now=now,
    )
    metrics = _metrics(state, policies, certificate, health)
    explanations = Explanations(settings.explanations_kept)

    # 3. What answers: advice fails open, quota leaves it to the API server.
    placement = PlacementReviews(
        policies=lambda: policies.current,
        view=state.view,
        judged_at=lambda: recorded_at,
        clock=time.monotonic,
        scope=Scope(
            scheduler_names=settings.scheduler_names,
            excluded_namespaces=settings.excluded_namespaces,
        ),
        explanations=explanations,
    )
    quota = QuotaReviews(
        view=state.view,
        now=now,
        ledger=QuotaLedger(reservation_seconds=settings.quota_reservation_seconds),
        mode=settings.quota_mode,
        excluded_namespaces=settings.excluded_namespaces,
    )
    limits = Limits(
        max_in_flight=settings.max_in_flight,
        default_timeout_seconds=settings.default_timeout_seconds,
        deadline_fraction=settings.deadline_fraction,
    )
    handler = partial(ReviewHandler, limits=limits, metrics=metrics, clock=time.monotonic)
    reviews = build_app(
        handlers=(
            handler("mutate", placement.answer, fails_open=True),
            handler("validate", quota.answer, fails_open=False),
        ),
        health=health,
        max_body_bytes=settings.max_body_bytes,
    )
    monitoring = build_monitoring_app(metrics=metrics, explanations=explanations)

    # 4. Listen, and look after changes.
    async def reload_policies() -> None:
        metrics.policies_reloaded(succeeded=await policies.reload())

    async with AsyncExitStack() as stack:
        if settings.reload_seconds:
            _watch(stack, settings.policies, settings.reload_seconds, reload_policies)
            _watch(stack, certificate.files, settings.reload_seconds, certificate.renew)
        tls = certificate.current.context
        server, url = await _listen(stack, reviews, settings.host, settings.port, tls)
        _, metrics_url = await _listen(
            stack, monitoring, settings.metrics_host, settings.metrics_port, None
        )
        _log.info("listening on %s, metrics on %s", url, metrics_url)
        yield Listening(
            url=url,
            metrics_url=metrics_url,
            ca_pem=certificate.current.ca_pem,
            health=health,
            reviews=server,
        )


def _metrics(
    state: ClusterState, policies: LivePolicies, certificate: LiveCertificate, health: Health
) -> Metrics:
    metrics = Metrics()
    metrics.show_view(state.view, lambda: health.view_age_seconds)
    metrics.show_policies(lambda: len(policies.current.policies))
    metrics.show_certificate(lambda: certificate.current.expires_at)
    return metrics


def _watch(
    stack: AsyncExitStack,
    paths: Sequence[Path],
    seconds: float,
    act: Callable[[], Awaitable[object]],
) -> None:
    task = asyncio.create_task(on_change(paths, seconds, act))
    stack.callback(task.cancel)


def _certificate_files(settings: Settings) -> tuple[Path, Path] | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None  # the settings see to it that both or neither are given
    return settings.tls_cert, settings.tls_key


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
        raise SettingsError([Problem(file=f"{host}:{port}", message=problem)]) from error
    if runner.server is None:
        raise AssertionError("setup makes the server")
    name = "localhost" if host in _ANY_ADDRESS else host
    shown = f"[{name}]" if ":" in name else name
    scheme = "https" if tls else "http"
    return runner.server, f"{scheme}://{shown}:{runner.addresses[0][1]}"
