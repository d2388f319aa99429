"""The HTTP applications: reviews, with probes; probes alone; metrics and debug pages."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder

from engine.model.gang import pod_group_of
from engine.model.kinds import WATCHED
from engine.quota import mode_of, queues_pods
from engine.quota.tree import QuotaPaths
from engine.report import OutcomeReport
from engine.view import ClusterView
from webhook.admission.handler import (
    ConcurrencyLimiter,
    Decide,
    ReviewHandler,
    ReviewLimits,
    ignored,
)
from webhook.admission.hold import GangHolds, PodHolder
from webhook.admission.placement import PlacementReviews
from webhook.admission.policies import PolicyReviews
from webhook.admission.quota import QuotaReviews
from webhook.admission.quota_objects import QuotaObjectReviews, QuotaRolloutReviews
from webhook.background import one_at_a_time
from webhook.binding import BindingDecider, BindingReviews
from webhook.cluster import Cluster
from webhook.fairness import CrowdedError, RenderLimiter
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import HeldOrder
from webhook.serving.authorization import Authorize
from webhook.serving.health import Health
from webhook.serving.services import Context, Services
from webhook.serving.tls import AllowedClients
from webhook.settings import Settings


def metrics_page(
    registry: CollectorRegistry, limiter: RenderLimiter
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of the page.

    With a thousand quotas there are thousands of samples, and their text takes 70 ms: so it is
    written in a thread, and reviews go on between one metric and the next. The handler of
    prometheus_client does all at once. Nobody has to say who they are: readers are addresses.
    """

    async def page(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(",".join(request.headers.getall(hdrs.ACCEPT, [])))
        names = request.query.getall("name[]", [])

        async def prepare() -> Callable[[], bytes]:
            collected = []
            for metric in (registry.restricted_registry(names) if names else registry).collect():
                collected.append(metric)
                await asyncio.sleep(0)
            return partial(one_at_a_time, partial(encode, _Collected(collected)))

        body = await _rendered(limiter, request.remote or "", prepare)
        response = web.Response(body=body)
        response.headers[hdrs.CONTENT_TYPE] = content_type
        response.enable_compression()
        return response

    return page


async def _rendered(
    limiter: RenderLimiter, who: str, prepare: Callable[[], Awaitable[Callable[[], bytes]]]
) -> bytes:
    try:
        return await limiter.render(who, prepare)
    except CrowdedError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error


class _Collected:
    """Metrics as of a moment, which can be written like a registry."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


_MOST_POLICIES_IN_FLIGHT: Final = 8


def review_paths(context: Context) -> tuple[ReviewHandler, ...]:
    """Handlers of all paths: advice fails open, the others by the API server's failure policy."""
    settings, services, policies = context.settings, context.services, context.policies
    handler = partial(
        ReviewHandler, limits=ReviewLimits(), metrics=context.metrics, clock=time.monotonic
    )
    most = settings.max_in_flight
    quota_objects = QuotaObjectReviews(
        view=services.cluster.state.view,
        rules=settings.quota_rules(),
        hard_namespaces=settings.hard_reclaim_namespaces,
    )
    quota_limiter = ConcurrencyLimiter(most, time.monotonic)
    # 1. Placement: no advice is better than late advice, and quota comes first.
    limiter = ConcurrencyLimiter(most, time.monotonic, yields_to=quota_limiter)
    pods = _placement(context, limiter)
    advise = ignored if pods is None else pods.review
    handle = partial(
        handler,
        "mutate",
        advise,
        fails_open=True,
        limiter=limiter,
        decide_quota=quota_objects.fill,
    )
    if pods is not None:
        handle = partial(handle, shortcut=pods.without_waiting, undecided=pods.undecided)
    handlers = [handle()]
    # 2. Quota.
    judge = partial(handler, "validate", _judge_quota(settings, services))
    judge_quota = quota_objects.review
    handlers.append(judge(fails_open=False, limiter=quota_limiter, decide_quota=judge_quota))
    # 3. Policies that are resources: few at a time, which wait for each other.
    policy = PolicyReviews(
        file_names=lambda: policies.file_names,
        cost_of_others=policies.cost_of_others,
        excluded_namespaces=settings.excluded_namespaces,
        clock=time.monotonic,
    )
    few = _MOST_POLICIES_IN_FLIGHT
    limiter = ConcurrencyLimiter(few, time.monotonic)
    handlers.append(handler("policies", policy.review, fails_open=False, limiter=limiter))
    # 4. New quotas, which wait for API servers: on a path of their own they keep no pod waiting.
    if services.quota_coverage is not None:
        limiter = ConcurrencyLimiter(most, time.monotonic)
        rollout = QuotaRolloutReviews(services.quota_coverage)
        handlers.append(handler("rollout", rollout.review, fails_open=False, limiter=limiter))
    return tuple(handlers)


def binding_path(settings: Settings, decider: BindingDecider, metrics: Metrics) -> ReviewHandler:
    """Handler of bindings; the time for one is short, and it waits for no other reviews."""
    reviews = BindingReviews(decider)
    return ReviewHandler(
        "bind",
        reviews.review,
        fails_open=True,
        limits=ReviewLimits(),
        limiter=ConcurrencyLimiter(settings.max_in_flight, time.monotonic),
        metrics=metrics,
        clock=time.monotonic,
        shortcut=reviews.arrived,
        undecided=reviews.undecided,
        answered=reviews.answered,
    )


def _placement(context: Context, limiter: ConcurrencyLimiter) -> PlacementReviews | None:
    """Return what holds or advises new pods, None where they are left alone."""
    settings, services, policies = context.settings, context.services, context.policies
    holder = None
    if services.hold_guard is not None:
        view = services.cluster.state.view
        holder = PodHolder(
            context.placer,
            services.hold_guard,
            queues=_queues(settings, view),
            gangs=GangHolds(view, _has_pod_groups(services.cluster)),
            now=services.cluster.now,
            seconds=settings.hold_seconds,
            counts=context.counts,
            count_refusal=context.metrics.hold_refused,
        )
    if settings.placement_mode == "Off" and holder is None:  # pods may be held for quota as well
        return None
    return PlacementReviews(
        context.placer,
        lambda: policies.current,
        time.monotonic,
        context.counts,
        holder,
        queue=limiter,
    )


def _judge_quota(settings: Settings, services: Services) -> Decide:
    """Return what is done with a pod that may exceed a quota."""
    return QuotaReviews(
        ledger=services.ledger,
        view=services.cluster.state.view,
        mode=settings.quota_mode,
        excluded_namespaces=settings.excluded_namespaces,
        rules=settings.quota_rules(),
        queues=settings.hold,
        record_denial=services.record_denial,
        withdraw=services.cluster.withdraw,
        version_of=services.pod_version,
        unseen_seconds=settings.quota_reservation_seconds,
    ).review


def _queues(
    settings: Settings, view: Callable[[], ClusterView]
) -> Callable[[str, str | None], bool]:
    """Return whether pods of a namespace and of a label wait for quota."""
    paths, mode = QuotaPaths(settings.quota_rules()), settings.quota_mode

    def queues(namespace: str, label: str | None) -> bool:
        now = view()
        if queues_pods(now, namespace, mode):
            return True
        if not paths.may_have(now) or mode_of(now, namespace, mode) != "Queue":
            return False
        return label is None or bool(paths.quotas_of(now, namespace, label))

    return queues


def _has_pod_groups(cluster: Cluster) -> Callable[[], bool]:
    """Return what tells whether the API server has PodGroups."""
    sources = [
        cluster.sources[kind.name]
        for kind in WATCHED
        if kind.decode is pod_group_of and kind.name in cluster.sources
    ]
    return lambda: any(source.present for source in sources)


_LIMIT = re.compile("[0-9]{0,6}")
_JSON: Final = "application/json"

_MAX_BODY_BYTES: Final = 7 * 1024 * 1024
"""Of a review; an API server takes 3 MiB of an object, and sends the old and the new one."""


def build_app(
    *,
    handlers: Iterable[ReviewHandler],
    health: Health,
    clients: AllowedClients | None = None,
) -> web.Application:
    """Application for the API server, and for a kubelet that needs no client certificate."""
    app = build_probe_app(health, client_max_size=_MAX_BODY_BYTES)
    for handler in handlers:
        handle = clients.guard(handler.path, handler.handle) if clients else handler.handle
        app.router.add_post(f"/{handler.path}", handle)
    return app


def build_probe_app(health: Health, *, client_max_size: int = 1024) -> web.Application:
    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return _json(health.report(), status=200 if health.ready() else 503)

    async def statusz(_: web.Request) -> web.Response:
        # For people and `stowplan doctor`: the API server's proxy keeps no body of a 503.
        return _json(health.report())

    async def set_headers(_: web.Request, response: web.StreamResponse) -> None:
        """Name the server; while draining, close connections, since callers would not retry."""
        response.headers["Server"] = "stowplan"
        if health.draining:
            response.headers["Connection"] = "close"
            response.force_close()

    app = web.Application(client_max_size=client_max_size)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/statusz", statusz)
    app.on_response_prepare.append(set_headers)
    return app


def build_monitoring_app(
    *,
    metrics: Metrics,
    explanations: Explanations,
    queue: HeldOrder | None,
    outcome: Callable[[], Awaitable[OutcomeReport]] | None,
    authorize: Authorize | None,
) -> web.Application:
    async def decisions(pod: str, limit: int | None) -> object:
        found = []
        for explanation in explanations.latest(pod=pod, limit=limit):
            found.append(explanation)
            await asyncio.sleep(0)  # reviews come in between
        return found

    async def queued(pod: str, limit: int | None) -> object:
        return None if queue is None else queue.report(pod=pod, limit=limit)

    async def outcomes(_pod: str, _limit: int | None) -> object:
        return None if outcome is None else await outcome()

    app, limiter = web.Application(), RenderLimiter()
    app.router.add_get("/metrics", metrics_page(metrics.registry, limiter))
    if authorize is not None:
        app.router.add_get("/debug/decisions", _page(decisions, authorize, limiter))
        if queue is not None:
            app.router.add_get("/debug/queue", _page(queued, authorize, limiter))
        if outcome is not None:
            app.router.add_get("/debug/outcome", _page(outcomes, authorize, limiter))
    return app


def _page(
    contents: Callable[[str, int | None], Awaitable[object]],
    authorize: Authorize,
    limiter: RenderLimiter,
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of a debug page, which may be asked for some pods and so many of them."""

    async def page(request: web.Request) -> web.Response:
        who = await authorize(request)
        limit = request.query.get("limit", "")
        if not _LIMIT.fullmatch(limit):
            raise web.HTTPBadRequest(text="`limit` is a number\n")
        pod = request.query.get("pod", "")

        async def prepare() -> Callable[[], bytes]:
            return partial(_encoded, await contents(pod, int(limit) if limit else None))

        body = await _rendered(limiter, who, prepare)
        return web.Response(body=body, content_type=_JSON)

    return page


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=_encoded(value), status=status, content_type=_JSON)


def _encoded(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value))
