"""Pods that are bound to three nodes, a policy, and a leader that counts them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from engine.model import api
from engine.model.decision import ADVICE_ANNOTATION
from engine.model.pod import pod_of
from engine.model.time import SECOND, Micros
from engine.outcome import LandingJudgement, PolicyLanding, WorseRules
from engine.policy import Mode
from engine.report import OutcomeReport
from engine.view import ClusterState
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.binding import BindingRecord, BindingRecords
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.controllers.policy_outcome import (
    AuditedPolicies,
    BoundPods,
    OutcomeController,
    OutcomeRecord,
)
from webhook.placement.live_policies import LivePolicies, WhenWorse

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


_POINTS = {"a": 10_000, "b": 5_000, "c": 0}
_RANKS = {"a": 1, "b": 2, "c": 3}


class World:
    """A server, a clock, and a leader; tests bind pods.

    Attributes:
        lease: annotations of the Lease.
        leads: whether writes are allowed.
    """

    def __init__(
        self, server: FakeApiServer, connection: Connection, policies: Path, when_worse: WhenWorse
    ) -> None:
        self.server = server
        self.seconds = 0.0
        self.lease: dict[str, str] = {}
        self.leads = True
        self.decided = BindingRecords()
        self.bound = BoundPods(self.decided)
        self.policies = LivePolicies([policies], track=ClusterState().track_sums)
        self._connection = connection
        self._when_worse = when_worse
        self.controller = self.leader()

    def now(self) -> Micros:
        return Micros(BEGIN + int(self.seconds * SECOND))

    def leader(self) -> OutcomeController:
        """Return a controller that knows nothing but what is recorded."""
        return OutcomeController(
            connection=self._connection,
            identity="one",
            bound=self.bound,
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
            worse_rules=WorseRules(least_pods=3, margin=5),
            when_worse=self._when_worse,
            clock=lambda: self.seconds,
        )

    def bind(self, name: str, node: str, scheduler_node: str = "b") -> None:
        """Decide a pod at its binding, and let the watch show it there."""
        self.decide(name, node, scheduler_node)
        self.show(name)
        self.show(name, node)

    def decide(self, name: str, node: str, scheduler_node: str = "b") -> None:
        """Answer the binding of a pod; a policy in Audit mode would have said `a`."""
        (policy,) = self.policies.current
        chosen = "a" if policy.mode is Mode.AUDIT else node
        landing = PolicyLanding(
            policy="prefers-a",
            mode=policy.mode.value,
            landed=chosen == node,
            judgement=LandingJudgement(
                rank=_RANKS[node],
                points=_POINTS[node],
                best=_POINTS["a"],
                chosen=_POINTS[chosen],
                stock=_POINTS[scheduler_node],
                moved=chosen != scheduler_node,
            ),
        )
        record = BindingRecord(uid=f"uid-{name}", node=node, landings=[landing])
        self.decided.put(f"shop/{name}", record)

    def show(
        self,
        name: str,
        node: str = "",
        *,
        uid: str = "",
        advice: Mapping[str, object] | None = None,
    ) -> None:
        """Let the watch show a pod."""
        annotations = {} if advice is None else {ADVICE_ANNOTATION: json.dumps(advice)}
        manifest: Json = {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": uid or f"uid-{name}",
                "annotations": annotations,
            },
            "spec": {"nodeName": node},
        }
        raw = msgspec.json.encode(manifest)
        self.bound.pod_changed(pod_of(msgspec.json.decode(raw, type=api.Pod)), 1, raw)

    async def report(self) -> OutcomeReport:
        """End a round, and return the figures."""
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
