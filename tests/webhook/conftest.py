"""A small cluster, policies over it, and a webhook that listens on this machine."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.node import node_of
from engine.model.time import Micros
from engine.view import ClusterState
from tests.browser import chromium
from tests.patience import PATIENCE_SECONDS
from webhook import background
from webhook.admission.handler import ReviewLimits
from webhook.cluster import Recording
from webhook.serving import app, authorization, composition
from webhook.serving.composition import run_server, wall_clock
from webhook.serving.server import Connections, RunningServer
from webhook.settings import Settings

ADVISING = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: balance-limits}
spec:
  scores:
    - plugin: LimitAware
"""

DENYING = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: closed}
spec:
  priority: 10
  match:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: closed}}
  filters:
    - name: nobody
      expression: "node.name == 'elsewhere'"
      message: the namespace is closed
  placement: {whenNoneFits: Deny}
"""


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("STOWPLAN_"):
            monkeypatch.delenv(name)


@pytest.fixture
def files_are_checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at files all the time."""
    monkeypatch.setattr(background, "LOOK_SECONDS", 0.01)


@pytest.fixture(autouse=True)
def _no_limit_that_a_slow_machine_exceeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give bodies, connections and calls of a whole webhook all the time there is."""
    limits = partial(
        ReviewLimits, default_timeout_seconds=PATIENCE_SECONDS, body_seconds=PATIENCE_SECONDS
    )
    connections = partial(Connections, first_request_seconds=PATIENCE_SECONDS)
    monkeypatch.setattr(app, "ReviewLimits", limits)
    monkeypatch.setattr(composition, "Connections", connections)
    monkeypatch.setattr(authorization, "_SECONDS", PATIENCE_SECONDS)


def small_cluster() -> ClusterState:
    """Return three nodes of 4 cores in two zones, and a quota of two pods for `shop`."""
    state = ClusterState()
    for name, zone in (("node-a", "zone-1"), ("node-b", "zone-1"), ("node-c", "zone-2")):
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": zone,
        }
        allocatable: api.ResourceList = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        state.set_node(
            node_of(
                api.Node(
                    metadata=api.ObjectMeta(name=name, labels=labels),
                    status=api.NodeStatus(allocatable=allocatable),
                )
            )
        )
    state.set_quota(
        quota_of(
            api.ElasticQuota(
                api_version="scheduling.x-k8s.io/v1alpha1",
                metadata=api.ObjectMeta(namespace="shop", name="team"),
                spec=api.ElasticQuotaSpec(max={"pods": "2"}),
            )
        )
    )
    return state


@pytest.fixture
def state() -> ClusterState:
    """The cluster of `small_cluster`."""
    return small_cluster()


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Return a folder with the two policies above."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "advising.yaml").write_text(ADVISING)
    (folder / "denying.yaml").write_text(DENYING)
    return folder


@dataclass(frozen=True, slots=True)
class Caller:
    """A client that trusts the webhook, and the webhook itself."""

    server: RunningServer
    session: aiohttp.ClientSession

    async def post(self, path: str, review: object) -> tuple[int, dict[str, Any]]:
        """Return status and decoded answer of a review."""
        url = f"{self.server.url}{path}"
        async with self.session.post(url, json=review) as response:
            is_json = response.content_type == "application/json"
            text = await response.text()
            return response.status, await response.json() if is_json else {"text": text}

    async def get(self, url: str) -> tuple[int, str]:
        """Return status and text of a page."""
        async with self.session.get(url) as response:
            return response.status, await response.text()

    async def count(self, path: str, outcome: str) -> float:
        """Return how many reviews of a path came to an outcome."""
        wanted = f'stowplan_reviews_total{{outcome="{outcome}",path="{path}"}} '
        _, text = await self.get(f"{self.server.metrics_url}/metrics")
        return sum(
            float(line.removeprefix(wanted))
            for line in text.splitlines()
            if line.startswith(wanted)
        )


def local_settings(**given: object) -> Settings:
    """Return settings for a webhook on free ports of this machine, which may be slow."""
    usual = {"host": "127.0.0.1", "port": 0, "metrics_port": 0}
    return Settings(**{**usual, **given})


Start = Callable[..., AbstractAsyncContextManager[Caller]]


@pytest.fixture
def start(state: ClusterState, policies: Path) -> Start:
    """Return how to start a webhook: give it settings, and `now` if time matters."""

    @asynccontextmanager
    async def starting(
        *, now: Callable[[], Micros] = wall_clock, **given: object
    ) -> AsyncIterator[Caller]:
        settings = local_settings(**{"policies": [policies], **given})
        recording = Recording(state=state, recorded_at=Micros(0), loaded={}, skipped={})
        async with run_server(settings, recording, now=now) as server:
            trust = ssl.create_default_context(cadata=server.ca_pem.decode())
            connector = aiohttp.TCPConnector(ssl=trust)
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Caller(server, session)

    return starting


@pytest.fixture
async def caller(start: Start) -> AsyncIterator[Caller]:
    """A webhook with the policies above, and a client for it."""
    async with start() as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser, started once for all tests that run in the loop of the session."""
    async with chromium() as started:
        yield started
