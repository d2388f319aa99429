"""The dashboard of a webhook: what it shows of the parts of this process."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from webhook.cluster import RecordedPods
from webhook.cluster.client.access_reviews import AccessReviews
from webhook.controllers.outcome import OutcomeController
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
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import LivePolicies
from webhook.placement.policy_counts import PolicyCounts
from webhook.serving.services import Services
from webhook.settings import Settings


def webhook_dashboard(
    settings: Settings,
    services: Services,
    policies: LivePolicies,
    counts: PolicyCounts,
    explanations: Explanations,
    outcome: OutcomeController | None,
    recorded_pods: RecordedPods | None,
) -> web.Application:
    """Return the dashboard of a webhook.

    Args:
        settings: its settings.
        services: the cluster, and on a live one the connection to its API server.
        policies: those in force.
        counts: of what they decided.
        explanations: of the latest decisions.
        outcome: where pods were bound; None where nobody counts.
        recorded_pods: those of a recording; None for a live cluster.
    """
    cluster, queue = services.cluster, services.held_queue
    readers: Readers = Anybody()
    read_pod: ReadPod = (recorded_pods or RecordedPods()).read
    if services.leadership is not None:
        connection = services.leadership.connection
        read_pod = stored_pods(connection)
        readers = TokenReaders(AccessReviews(connection), asyncio.get_running_loop().time)
    source = ClusterSource(
        name=f"{settings.namespace}/{settings.lease}" if cluster.is_live else "recorded cluster",
        cluster=cluster,
        policies=policies,
        counts=counts,
        rules=settings.queue_rules(),
        decisions=PodDecisions(
            cluster=cluster,
            policies=lambda: policies.current,
            scope=settings.scope(),
            explanations=explanations,
            clock=time.monotonic,
        ),
        read_pod=read_pod,
        outcome=None if outcome is None else outcome.report,
        waits_for_cluster=True,
        held=None if queue is None else lambda namespace: queue.report(namespace=namespace),
    )
    return build_dashboard(source, readers)
