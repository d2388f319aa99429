"""A dashboard of a small cluster, with readers of a test's own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from engine.model.time import Micros
from engine.pipeline import Scope
from engine.quota.queueing import QueueRules
from engine.release import QueueOrder
from engine.report import QueueReport
from engine.view import ClusterState
from webhook.cluster import Cluster, RecordedPods
from webhook.cluster.client.access_reviews import Access, ListAccess, PageAccess
from webhook.cluster.watch.source_status import SourceStatus
from webhook.dashboard import (
    ClusterSource,
    PodDecisions,
    Reader,
    Readers,
    SignIn,
    SignInError,
    build_dashboard,
)
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import HeldOrder, HeldPods
from webhook.placement.live_policies import LivePolicies, PolicyCounts

Client: TypeAlias = TestClient[web.Request, web.Application]

NOW = Micros(1_800_000_000_000_000)


class User:
    """A reader with some rights."""

    def __init__(self, name: str, *rights: Access) -> None:
        self.name = name
        self._rights = rights

    async def may(self, access: Access) -> bool:
        return access in self._rights


ALL = (
    PageAccess("/dashboard/nodes"),
    PageAccess("/dashboard/policies"),
    ListAccess("", "pods", ""),
    ListAccess("", "pods", "shop"),
    ListAccess("scheduling.x-k8s.io", "elasticquotas", ""),
)
USERS = {
    "operator": User("ann", *ALL),
    "tenant": User(
        "bob",
        ListAccess("", "pods", "shop"),
        ListAccess("scheduling.x-k8s.io", "elasticquotas", "shop"),
    ),
}


class Tokens:
    """Readers by their tokens."""

    sign_in = SignIn.FORM

    async def reader(self, token: str) -> Reader:
        if token not in USERS:
            raise SignInError("the token is not valid")
        return USERS[token]


def source(
    state: ClusterState,
    policies: Path | None = None,
    *,
    held: HeldPods | None = None,
    pods: RecordedPods | None = None,
    is_live: bool = True,
    sources: Mapping[str, SourceStatus] = MappingProxyType({}),
) -> ClusterSource:
    """Return the reports of a cluster."""
    cluster = Cluster(state=state, now=lambda: NOW, is_live=is_live, sources=sources)
    in_force = LivePolicies([policies] if policies else [], track=state.track_sums)
    order = HeldOrder(
        held=held or HeldPods(lambda: NOW),
        order=QueueOrder(),
        queue_rules=QueueRules(),
        view=state.view,
        now=lambda: NOW,
    )

    def queue(namespace: str) -> QueueReport:
        return order.report(namespace=namespace)

    return ClusterSource(
        name="test",
        cluster=cluster,
        policies=in_force,
        counts=PolicyCounts(),
        rules=QueueRules(mode="Enforce"),
        decisions=PodDecisions(
            cluster=cluster,
            policies=lambda: in_force.current,
            scope=Scope(),
            explanations=Explanations(8),
            clock=time.monotonic,
        ),
        read_pod=(pods or RecordedPods()).read,
        outcome=None,
        held=queue if held else None,
        waits_for_cluster=True,
    )


@asynccontextmanager
async def served(shown: ClusterSource, readers: Readers) -> AsyncIterator[Client]:
    """Serve a dashboard, and yield a client without cookies that follows no redirection."""
    async with TestClient(TestServer(build_dashboard(shown, readers))) as client:
        yield client
