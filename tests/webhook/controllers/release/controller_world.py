"""A fake API server with nodes and held pods, and replicas whose controllers release them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from engine.eviction import NodeFit
from engine.model import api
from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, EvictionMode
from engine.model.gang import POD_GROUP_LABEL, pod_group_of
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from engine.model.node import node_of
from engine.model.time import SECOND, Micros, micros
from engine.model.well_known import HOSTNAME_LABEL
from engine.pipeline import Scope
from engine.policy import PolicySet, load_policies
from engine.release import HeldPod
from engine.view import FRESH, ClusterView
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.controllers.release.gangs import controllers
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.watch.event_applier import EventApplier
from webhook.controllers.gang import GangOutcome
from webhook.controllers.release import GangDecider, ReleaseContext, ReleasedPods, ReleaseRules
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import GangMembers, HeldPods
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  filters: [{name: pool, expression: "node.labels[?'pool'].orValue('') == 'main'"}]
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
  placement: {at: Binding}
"""
CREATED = "2026-01-02T03:04:05Z"
BEGIN = micros(datetime.fromisoformat(CREATED))
HOLD_SECONDS = 60
PODS = "/api/v1/namespaces/shop/pods"
_REAL_SECONDS = 0.002
"""For each wait, in which answers of the server come in."""


class Replica:
    """One replica: what its watch has shown it, and its controller."""

    def __init__(self, world: World, connection: Connection, policies: PolicySet) -> None:
        self.world = world
        self.policies = policies
        self.leads = True
        self.is_ready = True
        self._known: set[tuple[str, str]] = set()
        self.on_sleep: Callable[[], None] = lambda: None
        self.annotations: dict[str, str] = {}
        self.held = HeldPods(world.now, hold_seconds=HOLD_SECONDS)
        self.unbound = ReleasedPods(clock=world.clock)
        self.gang_members = GangMembers()
        self.gang_outcomes: list[GangOutcome] = []
        self.applier = EventApplier(
            now=world.now, observers=[self.held, self.unbound, self.gang_members]
        )
        self.state = self.applier.state
        self.counts = PolicyCounts()
        self.explanations = Explanations(limit=10)
        placer = Placer(
            view=self.state.view, now=world.now, scope=Scope(), explanations=self.explanations
        )
        self.state.track_sums(policies.sum_profiles)
        self.release = ReleaseContext(
            connection=connection,
            identity="me",
            may_write=lambda: self.leads,
            annotate=self.annotations.__setitem__,
            state=self.state,
            held=self.held,
            unbound=self.unbound,
            now=world.now,
            rules=ReleaseRules(reclaims=True, hard_namespaces={"shop"}),
            clock=world.clock,
            fit=self._fit,
        )
        self.quota_queue, self.pods = self.release.quota_queue, self.release.pods
        self.controller, self.gangs = controllers(
            self.release,
            GangDecider(placer, lambda: policies, self.release.nominations, self.counts),
            self.gang_members,
            is_ready=lambda: self.is_ready,
            sleep=self._sleep,
            count=self.gang_outcomes.append,
        )

    async def _sleep(self, seconds: float) -> None:
        """Let time pass, and see what happened meanwhile."""
        self.world.seconds += seconds
        self.on_sleep()
        self.see()
        await asyncio.sleep(_REAL_SECONDS)

    def _fit(self, held: HeldPod, view: ClusterView) -> NodeFit:
        now = self.world.now()
        return NodeFit(held.placement_request, self.policies, view, now, Scope(), FRESH)

    def see(self) -> None:
        """Show it what the server has, as its watches would."""
        for quota in self.world.quotas.values():
            self.state.set_quota(quota)
        for node in self.world.server.objects("nodes").values():
            self.state.set_node(node_of(msgspec.convert(node, api.Node)))
        for pod_group in self.world.server.objects("podgroups").values():
            wire = msgspec.convert(pod_group, api.PodGroup)
            self.state.set_extra(pod_group_of(wire))
        pods = self.world.server.objects("pods")
        for namespace, name in self._known - pods.keys():
            self.applier.delete_pod(namespace, name)
        self._known = set(pods)
        for pod in pods.values():
            raw = msgspec.Raw(msgspec.json.encode(pod))
            self.applier.prepare_pod(msgspec.json.decode(raw, type=api.Pod), raw)()

    async def cycle(self) -> None:
        """See, run one cycle, and wait for its writes."""
        self.see()
        await self.controller.cycle()
        await self.writes()
        self.see()

    async def lead(self, seconds: float) -> None:
        """Run cycles for some time, beside its writes."""
        until = self.world.seconds + seconds
        while self.world.seconds < until:
            self.see()
            await self.controller.cycle()
            await self._sleep(0.25)

    async def writes(self) -> None:
        """Wait until all writes have ended."""
        while tasks := [task for task in asyncio.all_tasks() if _is_a_write(task)]:
            await asyncio.wait(tasks)

    def counted(self) -> dict[str, int]:
        view = self.state.view()
        pods = {name: int(view.assumed[row]) for name, row in view.rows.items()}
        return {name: count for name, count in pods.items() if count}


class World:
    """A server with nodes and held pods, a clock, and replicas."""

    def __init__(self, server: FakeApiServer, connection: Connection, policies: PolicySet) -> None:
        self.server = server
        self.seconds = 0.0
        self._connection = connection
        self._policies = policies
        self.quotas: dict[str, ElasticQuota] = {}

    def now(self) -> Micros:
        return Micros(BEGIN + int(self.seconds * SECOND))

    def clock(self) -> float:
        return 1000 + self.seconds

    def replica(self) -> Replica:
        return Replica(self, self._connection, self._policies)

    def node(self, name: str, cpu: str = "4", **labels: str) -> None:
        allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        self.server.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"pool": "main", HOSTNAME_LABEL: name, **labels},
                },
                "status": {"allocatable": allocatable, "capacity": allocatable},
            }
        )

    def hold(self, name: str, cpu: str = "3", **spec: Any) -> None:  # noqa: ANN401 (parts of a pod)
        """Store a pod that is held for nothing more."""
        self.create(name, "shop", cpu, gated=True, **spec)

    def order(self, name: str, **spec: Any) -> None:  # noqa: ANN401 (parts of a pod)
        """Store a pod that waits for those before it."""
        self.create(name, "shop", "1", reasons="order", gated=True, **spec)

    def gang(
        self,
        name: str,
        minimum: int,
        *,
        timeout: int = 60,
        namespace: str = "shop",
        more: dict[str, str] | None = None,
        resources: dict[str, str] | None = None,
        **annotations: str,
    ) -> None:
        """Store a PodGroup; annotations are ours, with underscores, and any others."""
        self.server.create(
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "creationTimestamp": CREATED,
                    "annotations": {
                        f"stowplan.dev/{key.replace('_', '-')}": value
                        for key, value in annotations.items()
                    }
                    | (more or {}),
                },
                "spec": {
                    "minMember": minimum,
                    "scheduleTimeoutSeconds": timeout,
                    "minResources": resources,
                },
            }
        )

    def member(
        self,
        name: str,
        gang: str,
        cpu: str = "3",
        *,
        reasons: str = "gang",
        namespace: str = "shop",
        **spec: Any,  # noqa: ANN401 (parts of a pod)
    ) -> None:
        """Store a held member of a gang."""
        labels = {POD_GROUP_LABEL: gang}
        self.create(name, namespace, cpu, reasons=reasons, gated=True, labels=labels, **spec)

    def quota(
        self,
        namespace: str,
        minimum: int = 0,
        maximum: int = 100,
        *,
        reclaim: EvictionMode = EvictionMode.DRY_RUN,
        asks_for_hard_reclaim: bool = False,
        version: int = 1,
    ) -> None:
        """Add or replace the quota of a namespace; amounts of cores."""
        self.quotas[namespace] = ElasticQuota(
            namespace=namespace,
            name="quota",
            group=UPSTREAM_GROUP,
            min={"cpu": 1000 * minimum},
            max={"cpu": 1000 * maximum},
            used={},
            version=version,
            reclaim=reclaim,
            asks_for_hard_reclaim=asks_for_hard_reclaim,
        )

    def queue(self, name: str, namespace: str = "shop", cpu: str = "1", **spec: Any) -> None:  # noqa: ANN401 (parts of a pod)
        """Store a pod that waits for quota."""
        self.create(name, namespace, cpu, reasons="quota", gated=True, **spec)

    def create(
        self,
        name: str,
        namespace: str,
        cpu: str,
        *,
        reasons: str = "",
        gated: bool = False,
        labels: dict[str, str] | None = None,
        created: str = CREATED,
        **spec: Any,  # noqa: ANN401 (parts of a pod)
    ) -> None:
        """Store a pod."""
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        annotations = {"annotations": {HOLD_REASONS_ANNOTATION: reasons}} if reasons else {}
        gates = {"schedulingGates": [{"name": HOLD_GATE}]} if gated else {}
        self.server.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "creationTimestamp": created,
                    "labels": labels or {},
                    **annotations,
                },
                "spec": {"containers": [container], **gates, **spec},
            }
        )

    def delete(self, name: str, namespace: str = "shop") -> None:
        """Delete a pod; a replica is told at once."""
        self.server.delete("pods", namespace, name)

    def releases(self) -> set[str]:
        """Return the names of the pods that were released."""
        return {
            name
            for (_, name), pod in self.server.objects("pods").items()
            if RELEASED_ANNOTATION in (pod["metadata"].get("annotations") or {})
        }

    def stored(self, name: str) -> dict[str, Any]:
        found = (pod for (_, each), pod in self.server.objects("pods").items() if each == name)
        return dict(next(found))

    def gates(self, name: str) -> list[str]:
        return [gate["name"] for gate in self.stored(name)["spec"].get("schedulingGates", ())]

    def nominated(self, name: str) -> str:
        found: str = (self.stored(name).get("status") or {}).get("nominatedNodeName", "")
        return found

    def released(self, name: str) -> str | None:
        """Return what a pod was released with, None while it is held."""
        if HOLD_GATE in self.gates(name):
            return None
        noted: str = self.stored(name)["metadata"]["annotations"][RELEASED_ANNOTATION]
        return noted

    def bind(self, name: str, node_name: str) -> None:
        pod = self.stored(name)
        self.server.replace({**pod, "spec": {**pod["spec"], "nodeName": node_name}})


@asynccontextmanager
async def running_world(folder: Path, *, policy: str | None = POLICY) -> AsyncIterator[World]:
    """Run a server; nothing is on it yet.

    Args:
        folder: an empty one.
        policy: that places all pods, None for none.
    """
    files = [] if policy is None else [folder / "policy.yaml"]
    for file in files:
        file.write_text(policy or "", encoding="utf-8")
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(folder), None) as connection,
    ):
        yield World(server, connection, load_policies(files))


_WRITES = (
    "Releases._write",
    "ConditionWriter._write",
    "GangTasks",
    "GangReservation",
    "GangEvents",
)


def _is_a_write(task: asyncio.Task[Any]) -> bool:
    name = repr(task.get_coro())
    return any(part in name for part in _WRITES)
