from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.eviction import Victim, WorkloadKey
from engine.release import Phase
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.eviction.worlds import LONG_AGO, Leader, World
from webhook.cluster.client.connection import connected
from webhook.controllers.eviction.context import EndedError
from webhook.controllers.eviction.execution import EvictionRound
from webhook.controllers.eviction.guards import MOST_READ
from webhook.controllers.eviction.writer import EvictionOutcome

_GRACE_SECONDS = 20


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A node of 8 cores; the min of `shop` is 6 cores, `batch` borrows all that it uses."""
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server, connection)
        made.minimums = {"shop": 6_000, "batch": 0}
        made.node("a", "8")
        yield made


def _workload(world: World, workload: str, spec: dict[str, object]) -> None:
    kind, _, name = workload.partition("/")
    metadata = {"namespace": "batch", "name": name}
    api_object = {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}
    world.server.create(api_object)


def _rolling(max_unavailable: int | str) -> dict[str, object]:
    return {"rollingUpdate": {"maxUnavailable": max_unavailable}}


def _deployment(world: World, name: str, max_unavailable: int | str, replicas: int) -> None:
    spec = {"replicas": replicas, "strategy": _rolling(max_unavailable)}
    _workload(world, f"Deployment/{name}", spec)


class Kubelet:
    """Ends pods that are being deleted after their grace period, and binds those with room.

    Args:
        leader: whose cluster it runs.
        grace: seconds that pods take to end.

    Attributes:
        most_ending: the greatest number of pods that were ending at a time, by workload.
        late_for: so many times the leader waits until its watch shows evictions.
    """

    def __init__(self, leader: Leader, grace: int) -> None:
        self._grace = grace
        self.most_ending: dict[str, int] = {}
        self._leader = leader
        self._since: dict[str, float] = {}
        self._seen, self.late_for = 0, 0

    def has_just_seen_evictions(self) -> bool:
        """Return whether the watch of the leader is to be behind."""
        self.late_for -= 1
        return self.late_for > 0

    def __call__(self) -> None:
        """Do what is due."""
        world, ending = self._leader.world, dict[str, int]()
        for (namespace, name), pod in list(world.server.objects("pods").items()):
            if "deletionTimestamp" not in pod["metadata"] or name.endswith("-stuck"):
                continue
            workload = name.partition("-")[0]
            ending[workload] = ending.get(workload, 0) + 1
            if world.seconds - self._since.setdefault(name, world.seconds) >= self._grace:
                world.server.delete("pods", namespace, name)
        if sum(ending.values()) > self._seen:
            self.late_for = 6
        self._seen = sum(ending.values())
        for workload, count in ending.items():
            self.most_ending[workload] = max(self.most_ending.get(workload, 0), count)
        for held in list(self._leader.held):
            is_gated = "schedulingGates" in world.stored("shop", held.pod.name)["spec"]
            if is_gated and self._leader.pods.of(held).phase is Phase.RESERVED:
                world.bind(held.pod.name, held.pod.nominated_node_name)


def _leader(world: World, grace: int = _GRACE_SECONDS) -> tuple[Leader, Kubelet]:
    leader = world.leader()
    kubelet = Kubelet(leader, grace)
    leader.on_sleep = kubelet
    return leader, kubelet


def _reads(world: World, plural: str = "deployments") -> int:
    return sum(f"/{plural}/" in each.path for each in world.server.requests)


@pytest.mark.parametrize(
    ("workload", "spec", "at_a_time"),
    [
        ("Deployment/web", {"replicas": 8, "strategy": _rolling("25%")}, 2),
        ("Deployment/web", {"replicas": 8, "strategy": _rolling(0)}, 1),
        ("Deployment/web", {"replicas": 8, "strategy": {"type": "Recreate"}}, 6),
        ("StatefulSet/web", {"replicas": 8, "updateStrategy": _rolling(3)}, 3),
        ("StatefulSet/web", {"replicas": 8, "updateStrategy": {"type": "OnDelete"}}, 6),
        ("Deployment/gone", {}, 6),
        (
            "Deployment/web",
            {"replicas": 8, "strategy": {"rollingUpdate": {"maxUnavailable": 2.5}}},
            6,
        ),
    ],
)
async def test_as_many_pods_of_a_workload_are_evicted_at_a_time_as_it_may_miss(
    world: World, workload: str, spec: dict[str, object], at_a_time: int
) -> None:
    kind = workload.partition("/")[0]
    if spec:
        _workload(world, workload, spec)
    for number in range(8):
        world.run_of(f"{kind}/web", f"{number}", node="a", grace=_GRACE_SECONDS)
    world.queue("shop", "6")
    leader, kubelet = _leader(world)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert kubelet.most_ending == {"web": at_a_time}
    assert len(world.pods("batch")) == 2


async def test_a_plan_goes_on_for_as_long_as_its_victims_end(world: World) -> None:
    _deployment(world, "web", 1, replicas=8)
    for number in range(8):
        world.run_of("Deployment/web", f"{number}", node="a", grace=250)
    world.queue("shop", "4")
    leader, kubelet = _leader(world, grace=250)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert kubelet.most_ending == {"web": 1}
    assert world.seconds > 4 * 250
    assert _reads(world) > 1  # it may say something else by then


async def test_plans_at_a_time_share_what_a_workload_may_miss(world: World) -> None:
    _deployment(world, "web", 2, replicas=8)
    for number in range(8):
        world.run_of("Deployment/web", f"{number}", node="a", grace=_GRACE_SECONDS)
    for name in ("shop-1", "shop-2", "shop-3"):
        world.queue(name, "2")
    leader, kubelet = _leader(world)
    leader.is_behind = kubelet.has_just_seen_evictions
    await leader.lead_until(lambda: len(leader.ended) == 3)
    assert leader.ended == [EvictionOutcome.BOUND] * 3
    assert kubelet.most_ending == {"web": 2}
    assert _reads(world) <= 1 + world.seconds // 60


async def test_a_pod_that_is_not_ready_may_go_where_no_further_one_may_be_missing(
    world: World,
) -> None:
    _deployment(world, "web", 1, replicas=4)
    for number in range(4):
        world.run_of("Deployment/web", f"{number}", node="a", is_ready=number > 1)
    world.run("other", "4", node="a")
    world.queue("shop", "6")
    leader, _ = _leader(world)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert world.pods("batch") == {"web-5f7-2", "web-5f7-3"}


async def test_others_go_where_a_workload_misses_too_many_already(world: World) -> None:
    _deployment(world, "web", 1, replicas=4)
    world.run_of("Deployment/web", "broken", node="b", is_ready=False)
    for number in range(4):
        world.run_of("Deployment/web", f"{number}", node="a")
    world.run("other", "4", node="a", creationTimestamp="2026-01-01T00:00:00Z")
    world.node("b", "1")
    world.queue("shop", "4")
    leader, _ = _leader(world)
    await leader.lead_until(lambda: EvictionOutcome.BOUND in leader.ended)
    assert "other" not in world.pods("batch")
    assert {f"web-5f7-{number}" for number in range(4)} <= world.pods("batch")


async def test_a_pod_that_never_ends_is_missing_until_it_is_gone(world: World) -> None:
    _deployment(world, "web", 1, replicas=5)
    world.node("b", "1")
    world.run_of(
        *("Deployment/web", "stuck"),
        node="b",
        deletionTimestamp=LONG_AGO,
        deletionGracePeriodSeconds=30,
    )
    for number in range(4):
        world.run_of("Deployment/web", f"{number}", node="a")
    world.run("z-other", "4", node="a")
    world.queue("shop", "4")
    leader, _ = _leader(world)
    await leader.lead_until(lambda: EvictionOutcome.BOUND in leader.ended)
    assert "z-other" not in world.pods("batch")
    assert {f"web-5f7-{number}" for number in range(4)} <= world.pods("batch")


async def test_workloads_are_read_for_their_victims_alone(world: World) -> None:
    for number in range(4):
        world.run_of(f"Deployment/web{number}", "x", node="a")
    world.run("z-other", "4", node="a")
    world.queue("shop", "1")
    leader, _ = _leader(world)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert _reads(world) == 1


async def test_of_many_workloads_some_are_read(world: World) -> None:
    world.node("b", "60")
    world.minimums["shop"] = 60_000
    for number in range(50):
        world.run_of(f"Deployment/web{number}", "x", node="b")
    world.queue("shop", "58")
    leader, _ = _leader(world)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert _reads(world) == MOST_READ


def _victims(world: World) -> list[Victim]:
    """Return the pods of `batch` in the order of their names."""
    return [
        Victim(
            key=f"batch/{name}",
            uid=world.stored("batch", name)["metadata"]["uid"],
            quota=None,
            owner="",
            assigned_at=0,
            node_name="a",
            requests={},
        )
        for name in sorted(world.pods("batch"))
    ]


async def test_the_turn_of_a_pod_that_was_not_evicted_is_another_ones(world: World) -> None:
    _deployment(world, "web", 1, replicas=2)
    for number in range(2):
        world.run_of("Deployment/web", f"{number}", node="a")
    leader = world.leader()
    leader.see()
    turns, (one, other) = leader.context.turns, _victims(world)
    await turns.read([one, other])
    assert turns.take(one)
    assert not turns.take(other)
    assert turns.take(one)  # tried again
    turns.give_back(one)
    assert turns.take(other)
    world.seconds += 60  # the watch shows nothing of it: it was not evicted
    assert turns.take(one)


async def test_what_a_workload_has_said_keeps_its_pods_for_a_while_alone(world: World) -> None:
    _deployment(world, "web", 1, replicas=2)
    world.run_of("Deployment/web", "broken", node="a", is_ready=False)
    world.run_of("Deployment/web", "ready", node="a")
    leader = world.leader()
    leader.see()
    turns, victims = leader.context.turns, _victims(world)
    await turns.read(victims)
    assert turns.exhausted() == {WorkloadKey("Deployment", "batch", "web")}
    assert turns.keeps(victims)
    world.seconds += 60  # plans take them again, and so it is read again
    assert turns.exhausted() == frozenset()


async def test_a_refused_eviction_keeps_no_other_of_the_workload_waiting(world: World) -> None:
    _deployment(world, "web", 1, replicas=2)
    for number in range(2):
        world.run_of("Deployment/web", f"{number}", node="a")
    leader = world.leader()
    leader.see()
    path = "/api/v1/namespaces/batch/pods/web-5f7-0/eviction"
    world.server.fail_next(100, 403, method="POST", path_prefix=path)

    async def tell(_victim: Victim) -> None:
        pass

    evictions = EvictionRound(_victims(world), leader.context, is_evicted=tell)
    with pytest.raises(EndedError):
        await evictions.evict()
    assert world.pods("batch") == {"web-5f7-0"}


async def test_evictions_of_a_workload_that_says_nothing_are_not_remembered(world: World) -> None:
    _workload(world, "Deployment/web", {"replicas": 2})
    for number in range(2):
        world.run_of("Deployment/web", f"{number}", node="a")
    leader = world.leader()
    leader.see()
    turns, victims = leader.context.turns, _victims(world)
    await turns.read(victims)
    assert all(map(turns.take, victims))
    assert not turns._sent  # noqa: SLF001 (nothing else tells)
