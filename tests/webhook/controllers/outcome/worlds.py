"""A cluster of three nodes, policies, and a leader that judges what is bound."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from engine.model import api
from engine.model.node import node_of
from engine.model.time import SECOND, Micros
from engine.outcome import Judge, WorseRules
from engine.pipeline import Scope
from engine.report import OutcomeReport
from engine.view import ClusterState
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.binding import BindingRecords
from webhook.cluster import Cluster
from webhook.cluster.client.config_map import ConfigMapStore
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.watch.event_applier import EventApplier
from webhook.controllers.outcome import (
    AuditedPolicies,
    Bindings,
    JudgeParts,
    LandingJudge,
    OutcomeController,
    OutcomeParts,
    OutcomeRecord,
    OutcomeRules,
)
from webhook.placement.live_policies import LivePolicies, WhenWorse
from webhook.placement.placer import Placer

Json = dict[str, Any]
BEGIN = Micros(1_700_000_000 * SECOND)

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: prefers-a }
spec:
  scores:
    - name: a-first
      expression: "node.name == 'a' ? 100 : node.name == 'b' ? 50 : 0"
"""


class World:
    """A server, a cluster, a clock, and a leader; tests bind pods.

    Attributes:
        judgement_seconds: of the processor that a judgement takes.
        stock: the node that the model of the stock scheduler takes.
        lease: annotations of the Lease.
        leads: whether writes are allowed.
    """

    def __init__(
        self, server: FakeApiServer, connection: Connection, policies: Path, when_worse: WhenWorse
    ) -> None:
        self.server = server
        self.seconds = 0.0
        self.processor_seconds = 0.0
        self.judgement_seconds = 0.0
        self.stock = "b"
        self.lease: dict[str, str] = {}
        self.leads = True
        self.bindings = Bindings()
        self.decided = BindingRecords()
        state = ClusterState()
        self.applier = EventApplier(state, now=self.now, observers=[self.bindings])
        for name in "abc":
            wire = {
                "metadata": {"name": name},
                "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "1000"}},
            }
            state.set_node(node_of(msgspec.convert(wire, api.Node)))
        self.cluster = Cluster(state=state, now=self.now, is_live=True)
        self.policies = LivePolicies([policies], track=state.track_sums)
        self.placer = Placer(view=self.cluster.view, now=self.now, scope=Scope())
        self.judge = LandingJudge(
            JudgeParts(
                cluster=self.cluster,
                placer=self.placer,
                judge=Judge(Scope(), self._stock_choice, hot_percent=80),
                policies=lambda: self.policies.current,
            ),
            clock=lambda: self.seconds,
            processor=lambda: self.processor_seconds,
        )
        self._connection = connection
        self._when_worse = when_worse
        self.controller = self.leader()

    def _stock_choice(self, *_: object) -> str:
        self.processor_seconds += self.judgement_seconds
        return self.stock

    def now(self) -> Micros:
        return Micros(BEGIN + int(self.seconds * SECOND))

    def leader(self) -> OutcomeController:
        """Return a controller that knows nothing but what is recorded."""
        return OutcomeController(
            OutcomeParts(
                connection=self._connection,
                identity="one",
                bindings=self.bindings,
                judge=self.judge,
                decided=self.decided,
                record=OutcomeRecord(
                    ConfigMapStore(
                        self._connection,
                        namespace="stowplan-system",
                        name="stowplan-outcome",
                        may_write=lambda: self.leads,
                    )
                ),
                audited=AuditedPolicies(self.policies, lambda: self.lease),
                annotate=self.lease.__setitem__,
                policies=lambda: self.policies.current,
                is_ready=lambda: True,
                now=self.now,
            ),
            OutcomeRules(
                window_seconds=3600,
                worse=WorseRules(least_pods=3, margin=5),
                when_worse=self._when_worse,
            ),
            clock=lambda: self.seconds,
        )

    def bind(self, name: str, node: str, annotations: Mapping[str, str] | None = None) -> None:
        """Let the watch show a new pod, and then its binding."""
        manifest: Json = {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"uid-{name}",
                "annotations": dict(annotations or {}),
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        }
        self.show(manifest)
        self.show({**manifest, "spec": {**manifest["spec"], "nodeName": node}})

    def show(self, manifest: Json) -> None:
        """Let the watch show a pod."""
        raw = msgspec.json.encode(manifest)
        wire = msgspec.json.decode(raw, type=api.Pod)
        self.applier.prepare_pod(wire, raw)()

    async def report(self) -> OutcomeReport:
        """Count what was bound, end a round, and return the figures."""
        await self.controller.count()
        await self.controller.round()
        return await self.controller.report()


@asynccontextmanager
async def world(tmp_path: Path, when_worse: WhenWorse = "Report") -> AsyncIterator[World]:
    """Return a world whose leader has begun."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server, connection, file, when_worse)
        await made.controller.begin()
        yield made
