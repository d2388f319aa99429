"""The dashboard of a webhook: what it shows of the parts of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from engine.report import BindingStatus, OutcomeReport
from webhook.cluster import RecordedPods
from webhook.cluster.client.access_reviews import AccessReviews
from webhook.dashboard import (
    Anybody,
    ClusterSource,
    PodDecisions,
    Readers,
    ReadPod,
    TokenReaders,
    build_dashboard,
    stored_pods,
)
from webhook.placement.held_pods import HeldOrder
from webhook.serving.services import Context


def webhook_dashboard(
    context: Context,
    *,
    queue: HeldOrder | None,
    outcome: Callable[[], Awaitable[OutcomeReport]] | None,
    recorded_pods: RecordedPods | None,
    bindings: Callable[[], BindingStatus] | None,
) -> web.Application:
    settings, services, policies = context.settings, context.services, context.policies
    cluster = services.cluster
    readers: Readers = Anybody()
    read_pod: ReadPod = (recorded_pods or RecordedPods()).read
    if services.live is not None:
        connection = services.live.connection
        read_pod = stored_pods(connection)
        readers = TokenReaders(AccessReviews(connection), asyncio.get_running_loop().time)
    source = ClusterSource(
        name=f"{settings.namespace}/{settings.lease}" if cluster.is_live else "recorded cluster",
        cluster=cluster,
        policies=policies,
        counts=context.counts,
        rules=settings.queue_rules(),
        decisions=PodDecisions(
            cluster=cluster,
            policies=lambda: policies.current,
            scope=settings.scope(),
            explanations=context.explanations,
            clock=time.monotonic,
        ),
        read_pod=read_pod,
        outcome=outcome,
        waits_for_cluster=True,
        held=None if queue is None else lambda namespace: queue.report(namespace=namespace),
        bindings=bindings,
    )
    return build_dashboard(source, readers)
