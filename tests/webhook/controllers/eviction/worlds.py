"""A cluster in which `batch` borrows what `shop` is guaranteed, and the leaders that reclaim it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from engine.eviction import QuotaAccount, QuotaStanding
from engine.gang import GangKey
from engine.model import api
from engine.model.disruption_budget import disruption_budget_of
from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, EvictionMode, QuotaKey
from engine.model.hold import HOLD_FOR_QUOTA, HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.node import node_of
from engine.model.pod import HASH_LABEL, Pod
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND, Micros, micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.quota import RESOURCE_QUOTA_RULES
from engine.quota.tree import QuotaPaths
from engine.release import HeldPod, HeldPodRegistry, Phase
from engine.view import FRESH, ClusterState
from tests.fake_api_server import FakeApiServer
from webhook.cluster.client.connection import Connection
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.cluster.watch.event_applier import EventApplier
from webhook.controllers.eviction import (
    EvictionContext,
    EvictionMetrics,
    EvictionResult,
    Guards,
    QuotasOfMoment,
    RunningPods,
    build,
)
from webhook.controllers.eviction.sources import QuotaSource
from webhook.controllers.eviction.writer import EvictionOutcome
from webhook.controllers.release import GangPart, Nominations
from webhook.placement.held_pods import HeldPods

Json = dict[str, Any]

LONG_AGO = "2026-01-02T03:04:05Z"
BEGIN = Micros(micros(datetime.fromisoformat(LONG_AGO)) + 3600 * SECOND)
AFTER = Micros(60 * SECOND)

_REAL_SECONDS = 0.002
"""For each wait, in which answers of the server come in."""


def quota_key(namespace: str) -> QuotaKey:
    """Return the key of the quota of a namespace."""
    return namespace, UPSTREAM_GROUP, "team"


class World:
    """A server with nodes and pods, a clock, and leaders, one after the other.

    Attributes:
        modes: by namespace, what its quota says of reclaim.
        hard: the namespaces whose quotas reclaim hard.
        minimums: by namespace, the millicores that its quota guarantees.
        tree: quotas of Koordinator.
        policies: of preemption.
    """

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self.seconds = 0.0
        self.modes = {"shop": EvictionMode.ON, "batch": EvictionMode.ON}
        self.hard = set[str]()
        self.minimums = {"shop": 4_000, "batch": 2_000}
        self.tree: list[ElasticQuota] = []
        self.policies = PolicySet()

    def now(self) -> Micros:
        return Micros(BEGIN + int(self.seconds * SECOND))

    def clock(self) -> float:
        return 1_000 + self.seconds

    def leader(self) -> Leader:
        return Leader(self)

    def node(self, name: str, cpu: str = "4") -> None:
        allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        self.server.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "status": {
                    "allocatable": allocatable,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )

    def run(self, name: str, cpu: str, *, node: str, grace: int = 0, **metadata: object) -> str:
        """Let a pod of `batch` run; return its uid."""
        return self._pod(
            "batch",
            name,
            cpu,
            {"nodeName": node, "terminationGracePeriodSeconds": grace},
            {"phase": "Running", "conditions": [_scheduled()]},
            **metadata,
        )

    def run_of(
        self,
        workload: str,
        name: str,
        *,
        node: str,
        grace: int = 0,
        is_ready: bool = True,
        **metadata: object,
    ) -> str:
        """Let a pod of 1 core of a Deployment or a StatefulSet of `batch` run; return its uid.

        Args:
            workload: its kind and name, such as `Deployment/web`.
            name: of the pod, after the prefix that its controller gives it.
            node: where it runs.
            grace: seconds that it takes to end.
            is_ready: whether it is.
            **metadata: more of it.
        """
        kind, _, of = workload.partition("/")
        is_deployment = kind == "Deployment"
        owner = f"{of}-5f7" if is_deployment else of
        return self._pod(
            "batch",
            f"{owner}-{name}",
            "1",
            {"nodeName": node, "terminationGracePeriodSeconds": grace},
            {"phase": "Running", "conditions": [_scheduled(), _ready(is_so=is_ready)]},
            generateName=f"{owner}-",
            labels={HASH_LABEL: "5f7"} if is_deployment else {},
            ownerReferences=[
                {"kind": "ReplicaSet" if is_deployment else kind, "name": owner, "uid": owner}
            ],
            **metadata,
        )

    def queue(self, name: str, cpu: str, *, claim: str = "", **metadata: object) -> str:
        """Let a pod of `shop` wait for quota, and maybe for a claim; return its uid."""
        annotations = {HOLD_REASONS_ANNOTATION: HOLD_FOR_QUOTA}
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        spec = {
            "schedulingGates": [{"name": HOLD_GATE}],
            "volumes": [volume] if claim else [],
        }
        return self._pod("shop", name, cpu, spec, {}, annotations=annotations, **metadata)

    def protect(self, allowed: int) -> None:
        """Let a PodDisruptionBudget allow so many disruptions of all pods of `batch`."""
        self.server.create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"namespace": "batch", "name": "all"},
                "spec": {"selector": {}},
                "status": {"disruptionsAllowed": allowed},
            }
        )

    def bind(self, name: str, node: str) -> None:
        """Release a pod of `shop` and bind it, as release controller and scheduler do."""
        pod = self.stored("shop", name)
        spec = {**pod["spec"], "nodeName": node}
        spec.pop("schedulingGates")
        self.server.replace({**pod, "spec": spec})

    def stored(self, namespace: str, name: str) -> Json:
        return dict(self.server.objects("pods")[namespace, name])

    def pods(self, namespace: str) -> set[str]:
        """Return the names of the pods of a namespace that are not being deleted."""
        return {
            name
            for (of, name), pod in self.server.objects("pods").items()
            if of == namespace and "deletionTimestamp" not in pod["metadata"]
        }

    def nominated(self, name: str) -> str:
        found: str = self.stored("shop", name).get("status", {}).get("nominatedNodeName", "")
        return found

    def events(self) -> list[tuple[str, str]]:
        """Return whom Events are about, and their reasons, in order."""
        return [
            (event["involvedObject"]["name"], event["reason"])
            for event in self.server.objects("events").values()
        ]

    def _pod(
        self, namespace: str, name: str, cpu: str, spec: Json, status: Json, **metadata: object
    ) -> str:
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        stored = self.server.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "namespace": namespace,
                    "name": name,
                    "creationTimestamp": LONG_AGO,
                    **metadata,
                },
                "spec": {
                    "schedulerName": "default-scheduler",
                    "containers": [container],
                    **{key: value for key, value in spec.items() if value},
                },
                "status": status,
            }
        )
        uid: str = stored["metadata"]["uid"]
        return uid


class Leader:
    """One leader: what its watch has shown it, and its controller.

    Attributes:
        on_sleep: called whenever it waits, before it sees what is new.
        is_behind: whether its watch shows it nothing new now.
        on_step: called after each step of a plan; events come in then.
        quotas: the source of plans of quotas.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.leads = True
        self._steps = 0
        self.on_sleep: Callable[[], None] = lambda: None
        self.is_behind: Callable[[], bool] = lambda: False
        self.on_step: Callable[[], None] = lambda: None
        self.held = HeldPods(world.now)
        self.running = RunningPods({"kube-system"})
        self.applier = EventApplier(
            ClusterState(leave_out_queued=True),
            now=world.now,
            observers=[self.held, self.running],
        )
        self.pods = HeldPodRegistry()
        connection = world.connection
        config_map = ConfigMapStore(
            connection, namespace="system", name="guards", may_write=lambda: self.leads
        )
        metrics = RecordedMetrics()
        self.ended, self.evictions = metrics.outcomes, metrics.results
        self.context = EvictionContext(
            connection=connection,
            may_write=lambda: self.leads,
            identity="me",
            metrics=metrics,
            state=self.applier.state,
            held=self.held,
            running=self.running,
            pods=self.pods,
            nominations=Nominations(self.applier.state, self.held, self.pods),
            guards=Guards(config_map, world.now),
            standing=self._standing,
            tree=QuotaPaths(RESOURCE_QUOTA_RULES).tree,
            is_limited=lambda _view, namespace: namespace in world.modes,
            policies=lambda: world.policies,
            freshness=lambda: FRESH,
            scope=Scope(),
            now=world.now,
            clock=world.clock,
            step_clock=self._step_clock,
            sleep=self._sleep,
        )
        self.quotas = QuotaSource(self.context, self, NoGangs(), AFTER)
        self.controller = build(
            self.context,
            waiting=self,
            gangs=NoGangs(),
            eviction_delay=AFTER,
            is_ready=lambda: True,
        )

    def see(self) -> None:
        """Show it what the server has, as its watches would."""
        applier, server = self.applier, self.world.server
        for node in server.objects("nodes").values():
            applier.state.set_node(node_of(msgspec.convert(node, api.Node)))
        for quota in self.world.tree:
            applier.state.set_quota(quota)
        for budget in server.objects("poddisruptionbudgets").values():
            wire = msgspec.convert(budget, api.PodDisruptionBudget)
            applier.state.set_extra(disruption_budget_of(wire))
        pods = server.objects("pods")
        known = {held.key for held in self.held} | {each.key for each in self.running}
        for key in known - {f"{namespace}/{name}" for namespace, name in pods}:
            applier.delete_pod(*key.split("/"))
        for pod in pods.values():
            raw = msgspec.Raw(msgspec.json.encode(pod))
            applier.prepare_pod(msgspec.json.decode(raw, type=api.Pod), raw)()

    def blocked(self) -> list[HeldPod]:
        """Return the pods that wait for room, in order of their names."""
        return [
            held
            for held in sorted(self.held, key=lambda held: held.key)
            if self.pods.of(held).phase not in {Phase.RECLAIMING, Phase.RESERVED}
        ]

    def mode_of(self, pod: Pod) -> EvictionMode:
        return self.world.modes.get(pod.namespace, EvictionMode.OFF)

    def reclaims_hard(self, pod: Pod) -> bool:
        return pod.namespace in self.world.hard

    async def lead_until(self, is_so: Callable[[], bool]) -> None:
        """Lead until something is so; fail if that takes an hour."""
        self.see()
        task = asyncio.create_task(self.controller.run())
        until = self.world.seconds + 3_600
        try:
            while not is_so():
                assert self.world.seconds < until, "it did not come true"
                assert not task.done(), task
                await asyncio.sleep(_REAL_SECONDS)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def end_after(self, last: int) -> None:
        """Let it lead no longer once it has made some writes, of any kind."""
        writes = 0

        def may_write() -> bool:
            nonlocal writes
            writes += 1
            self.leads = writes <= last
            return self.leads

        for writer in (self.context.writer, self.context.evictions):
            writer._paced.may_write = may_write  # noqa: SLF001 - whether it leads is all it asks
        self.context.guards.config_map._may_write = may_write  # noqa: SLF001 - as above

    def note(self, name: str) -> str:
        held = self.held.get(f"shop/{name}")
        note = None if held is None else self.pods.of(held).reclaim_note
        return "" if note is None else note.text

    def _step_clock(self) -> float:
        """Let each step take a second, so that a plan pauses after all of them."""
        self.on_step()
        self._steps += 1
        return float(self._steps)

    async def _sleep(self, seconds: float) -> None:
        self.world.seconds += seconds
        self.on_sleep()
        if not self.is_behind():
            self.see()
        await asyncio.sleep(_REAL_SECONDS)

    def _standing(self, pods: Sequence[HeldPod]) -> QuotasOfMoment:
        view, minimums = self.applier.state.view(), self.world.minimums
        cpu = view.axis.find("cpu")
        assert cpu is not None
        capacity = {"cpu": int(view.allocatable[cpu].sum())}
        usage = {name: dict(view.namespaces.requested.get(name, {})) for name in minimums}
        for kept in self.pods.kept_for_reclaim():
            if kept.key not in {held.key for held in pods}:
                usage["shop"]["cpu"] = usage["shop"].get("cpu", 0) + kept.pod.shape.requests["cpu"]
        used = sum(amounts.get("cpu", 0) for amounts in usage.values())
        standing = QuotaStanding(
            accounts={
                quota_key(name): QuotaAccount(guaranteed={"cpu": least}, used=usage[name])
                for name, least in minimums.items()
            },
            cohort_room={"cpu": capacity["cpu"] - used},
            lendable=capacity,
        )
        return QuotasOfMoment(
            standing=standing,
            quotas_of=lambda namespace, _labels: (
                (quota_key(namespace),) if namespace in minimums else ()
            ),
        )


class RecordedMetrics(EvictionMetrics):
    """Metrics that also keep what they count, in order."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry(), lambda: False)
        self.outcomes: list[EvictionOutcome] = []
        self.results: list[EvictionResult] = []

    def ended(self, source: str, outcome: EvictionOutcome) -> None:
        super().ended(source, outcome)
        self.outcomes.append(outcome)

    def evicted(self, result: EvictionResult) -> None:
        super().evicted(result)
        self.results.append(result)


class NoGangs:
    """Where every pod is by itself."""

    def blocked(self) -> Sequence[HeldPod]:
        return ()

    def waits(self, held: HeldPod) -> bool:
        del held
        return False

    def parts_of(self, held: HeldPod) -> Sequence[GangPart]:
        del held
        return ()

    def running(self, gang: GangKey) -> Sequence[tuple[str, PodShape]]:
        del gang
        return ()


def _ready(*, is_so: bool) -> Json:
    return {"type": "Ready", "status": str(is_so), "lastTransitionTime": LONG_AGO}


def _scheduled() -> Json:
    return {"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_AGO}
