"""A guarantee of many pods is given in one go: three tenants on 120 cores, of whom two borrow all.

Each has min 40 and max 100 cores. Two of them have filled the nodes with 60 pods of 1 core each,
then the third comes: 40 of its pods are within min, so 40 evictions are needed, and enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, EvictionMode
from engine.model.hold import HOLD_FOR_QUOTA, HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.time import SECOND, Micros, date, micros
from engine.policy import CompiledPolicy, PolicySet
from tests.fake_api_server.store import Object
from tests.webhook.controllers.release.memory_server import Call, MemoryServer
from tests.webhook.controllers.release.replica_model import RECLAIM_AFTER_SECONDS, ReplicaModel
from tests.webhook.controllers.release.scheduler_model import SchedulerModel, node_of
from tests.webhook.controllers.release.steady_loop import SteadyLoop

BEGIN = micros(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
TENANTS = ("a", "b", "c")
MIN, MAX, NODES, CORES_OF_NODE, PODS = 40, 100, 12, 10, 100
GRACE_SECONDS = 2
STEP_SECONDS = 0.25


class Tenants:
    """Deployments that replace whoever is evicted, kubelets, a scheduler and the leader.

    Args:
        deployments: of each tenant.

    Attributes:
        evicted: the names of the evicted pods, in order.
        ending: when each of those that have not ended yet will.
    """

    def __init__(self, deployments: int) -> None:
        self.loop = SteadyLoop()
        self.server = MemoryServer(self._note, lambda _call: None)
        self.scheduler = SchedulerModel(self.server, self._moment)
        self.evicted: list[str] = []
        self.ending: dict[str, float] = {}
        self._deployments = deployments
        self._made = Counter[str]()
        for number in range(NODES):
            self._node(f"node-{number:02}")
        for number in range(NODES * CORES_OF_NODE):
            self._pod(TENANTS[number % 2], node_name=f"node-{number // CORES_OF_NODE:02}")
        for tenant in ("a", "b"):
            while self._made[tenant] < PODS:
                self._pod(tenant)
        self.leader = ReplicaModel(
            *(self.server, self.loop, PolicySet([CompiledPolicy(name="all")]), self._now, set()),
            reclaims=True,
        )
        for tenant in TENANTS:
            self.leader.set_quota(_quota(tenant))
        self.leader.list_all()
        self.scheduler.restart()
        self.leader.lead()

    def ask(self, tenant: str, pods: int) -> None:
        """Let a tenant want pods."""
        for _ in range(pods):
            self._pod(tenant)

    def running(self) -> Counter[str]:
        """Return how many pods of each tenant are bound and not ending."""
        return Counter(
            str(pod["metadata"]["namespace"])
            for name, pod in self.server.pods().items()
            if node_of(pod) and name not in self.ending
        )

    def pass_time(self, seconds: float) -> None:
        """Let everybody do what there is to do for so long."""
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            self._step()

    def seconds_until(self, tenant: str, pods: int) -> float:
        """Return after how long so many pods of a tenant run; fail if that takes ten minutes."""
        begin = self.loop.time()
        while (running := self.running())[tenant] < pods:
            assert self.loop.time() < begin + 600, running
            self._step()
        return self.loop.time() - begin

    def _step(self) -> None:
        self.loop.advance(STEP_SECONDS)
        for name, until in list(self.ending.items()):
            if self.loop.time() >= until:
                del self.ending[name]
                self.server.delete("pods", name)
        while True:
            self.leader.watch("nodes")
            self.leader.watch("pods")
            self.loop.advance()
            if not self.scheduler.work() and self.leader.has_seen_all:
                break
        running = self.running()
        assert min(running["a"], running["b"]) >= MIN, running

    def _note(self, call: Call) -> None:
        """Replace an evicted pod at once, as its Deployment does."""
        if call.is_eviction and not call.dry_run and call.target.name not in self.ending:
            self.evicted.append(call.target.name)
            self.ending[call.target.name] = self.loop.time() + GRACE_SECONDS
            self._pod(call.target.namespace)

    def _node(self, name: str) -> None:
        amounts = {"cpu": str(CORES_OF_NODE), "memory": "64Gi", "pods": "110"}
        self.server.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {},
                "status": {"allocatable": amounts, "capacity": amounts},
            }
        )

    def _pod(self, tenant: str, node_name: str = "") -> None:
        number = self._made[tenant]
        self._made[tenant] += 1
        owner = f"{tenant}-{number % self._deployments}"
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": owner,
            "uid": f"uid-{owner}",
            "controller": True,
        }
        metadata: Object = {
            "name": f"{owner}-{number}",
            "namespace": tenant,
            "creationTimestamp": self._moment(),
            "ownerReferences": [reference],
        }
        spec: Object = {
            "schedulerName": "default-scheduler",
            "priority": 0,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        }
        status: Object = {}
        if node_name:
            bound = {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": self._moment(),
            }
            spec["nodeName"], status = node_name, {"phase": "Running", "conditions": [bound]}
        else:
            metadata["annotations"] = {HOLD_REASONS_ANNOTATION: HOLD_FOR_QUOTA}
            spec["schedulingGates"] = [{"name": HOLD_GATE}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.server.create({**pod, "status": status})

    def _now(self) -> Micros:
        return Micros(BEGIN + int(self.loop.time() * SECOND))

    def _moment(self) -> str:
        return f"{date(self._now()).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


@contextmanager
def tenants(deployments: int) -> Iterator[Tenants]:
    """Yield two tenants that borrow all there is."""
    made = Tenants(deployments)
    try:
        yield made
    finally:
        made.leader.stop()
        made.loop.close()


def _quota(tenant: str) -> ElasticQuota:
    return ElasticQuota(
        namespace=tenant,
        name="team",
        group=UPSTREAM_GROUP,
        min={"cpu": 1000 * MIN},
        max={"cpu": 1000 * MAX},
        used={},
        reclaim=EvictionMode.ON,
        uid=f"uid-{tenant}",
        version=1,
    )


@pytest.mark.parametrize("deployments", [1, 10])
def test_a_min_of_forty_pods_is_there_within_half_a_minute(deployments: int) -> None:
    with tenants(deployments) as world:
        world.pass_time(5)
        assert world.running() == {"a": 60, "b": 60}
        world.ask("c", PODS)
        seconds = world.seconds_until("c", MIN)
        assert seconds <= RECLAIM_AFTER_SECONDS + 30 + GRACE_SECONDS
        world.pass_time(30)
        assert len(world.evicted) <= 44  # 1.1 times what is needed
        assert world.running() == dict.fromkeys(TENANTS, MIN)  # everybody has what is guaranteed
