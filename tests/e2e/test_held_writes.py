"""Writes of held pods on a real API server: what becomes of each, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import msgspec
import pytest

from engine.model import api
from engine.model.hold import HOLD_GATE, QUEUED_CONDITION, RELEASED_ANNOTATION
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.release import HeldPod, WriteFailure
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.features import require_on
from tests.e2e.nodes import Nodes
from tests.e2e.nominations import Nominations, only_on
from tests.e2e.priorities import priority_class
from tests.e2e.refusing_policy import refusing_releases
from tests.e2e.reviewer import Reviewer, rule
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.release.pod_writer import PodWriter, WriteError
from webhook.controllers.release.release_health import SchedulerLease

OTHER_GATE = "example.com/other"
CONDITION = {
    "type": QUEUED_CONDITION,
    "status": "False",
    "reason": "Nominated",
    "message": "to node-a",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
TERM = {
    "weight": 10,
    "preference": {
        "matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}],
    },
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Held pods of one namespace, and what writes them."""

    cluster: Cluster
    namespace: str
    pods: Nominations
    connection: Connection
    writer: PodWriter

    async def held(self, name: str, *gates: str, **spec: object) -> HeldPod:
        """Create a pod with gates, ours if none are named; return it as a watch shows it."""
        names = [{"name": gate} for gate in gates or (HOLD_GATE,)]
        await self.pods.create(name, "1", schedulingGates=names, **spec)
        return await self.seen(name)

    async def seen(self, name: str) -> HeldPod:
        """Return a pod as a watch shows it now."""
        raw = await self.connection.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        model = pod_of(msgspec.json.decode(raw, type=api.Pod))
        return HeldPod(pod=model, version=0, raw=raw, release_by=Micros(0), seen_at=Micros(0))

    async def patch(self, name: str, *operations: Json) -> None:
        """Change a pod, as anybody may."""
        await self.cluster.patch("pods", name, list(operations), self.namespace, how="json")

    async def gates(self, name: str) -> list[str]:
        spec = (await self.pods.get(name))["spec"]
        return [gate["name"] for gate in spec.get("schedulingGates", ())]

    async def every_write(self, held: HeldPod) -> list[WriteFailure]:
        """Return what becomes of each kind of write of a pod."""
        failures = []
        for write in (
            self.writer.nominate(held, "node-a", CONDITION),
            self.writer.withdraw(held),
            self.writer.set_condition(held, CONDITION),
            self.writer.touch(held),
            self.writer.release(held, annotations={RELEASED_ANNOTATION: "node-a"}),
        ):
            with pytest.raises(WriteError) as failed:
                await write
            failures.append(failed.value.failure)
        return failures


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str
) -> AsyncIterator[Stage]:
    """A writer."""
    pods = Nominations(cluster, nodes, namespace)
    async with writing(control_plane) as (connection, writer):
        yield Stage(cluster, namespace, pods, connection, writer)


@asynccontextmanager
async def writing(
    control_plane: ControlPlane, user: str = "admin", groups: tuple[str, ...] = ("system:masters",)
) -> AsyncIterator[tuple[Connection, PodWriter]]:
    async with connected(control_plane.kubeconfig(user, groups), None) as connection:
        yield connection, PodWriter(connection, may_write=lambda: True)


@contextmanager
def failing(failure: WriteFailure, message: str = "") -> Iterator[None]:
    with pytest.raises(WriteError) as raised:
        yield
    assert raised.value.failure is failure, raised.value
    assert message in raised.value.message


async def test_a_pod_is_nominated_with_a_condition_and_released_with_annotations(
    stage: Stage,
) -> None:
    await stage.pods.add_nodes("node-a", "node-b")
    await stage.pods.create("old", "2", nodeSelector=only_on("node-a"))
    await stage.pods.bound("old")
    held = await stage.held("web")
    await stage.writer.nominate(held, "node-a", CONDITION)  # the scheduler would take node-b
    status = (await stage.pods.get("web"))["status"]
    assert status["nominatedNodeName"] == "node-a"
    conditions = {one["type"]: one["reason"] for one in status["conditions"]}
    assert conditions == {QUEUED_CONDITION: "Nominated", "PodScheduled": "SchedulingGated"}
    await stage.writer.release(held, {RELEASED_ANNOTATION: "node-a"})
    assert await stage.pods.bound("web") == "node-a"
    stored = await stage.pods.get("web")
    assert stored["metadata"]["annotations"] == {RELEASED_ANNOTATION: "node-a"}


async def test_a_nomination_that_was_not_followed_is_withdrawn_and_one_with_victims_is_not(
    stage: Stage,
) -> None:
    await stage.pods.add_nodes("node-a", cpu="1")
    await stage.pods.create("old", "1")
    await stage.pods.bound("old")
    slow = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/slow"]}
    await stage.patch("old", slow)  # nobody here stops its containers, it would be gone at once
    async with priority_class(stage.cluster, "patient", 1000, preempts=False):
        held = await stage.held("web", priorityClassName="patient")
        await stage.writer.nominate(held, "node-a")
        await stage.writer.release(held, annotations={RELEASED_ANNOTATION: "node-a"})
        await stage.pods.unschedulable("web")
        assert await stage.pods.nominated("web") == "node-a"  # the scheduler leaves it there
        await stage.writer.withdraw_unfollowed(held.pod, "node-a")
        assert await stage.pods.nominated("web") == ""
        await stage.writer.withdraw_unfollowed(held.pod, "node-a")  # and twice equals once
        await stage.pods.delete("web")
    async with priority_class(stage.cluster, "urgent", 1000):
        held = await stage.held("urgent", priorityClassName="urgent")
        await stage.writer.release(held)

        async def is_nominated() -> bool:
            return await stage.pods.nominated("urgent") == "node-a"

        await eventually(is_nominated, "the scheduler evicts the old pod for it")
        await stage.writer.withdraw_unfollowed(held.pod, "node-a")
        assert await stage.pods.nominated("urgent") == "node-a"
        await stage.patch("old", {"op": "remove", "path": "/metadata/finalizers"})
        assert await stage.pods.bound("urgent") == "node-a"


async def test_a_withdrawn_nomination_leaves_the_pod_held(stage: Stage) -> None:
    held = await stage.held("web")
    await stage.writer.nominate(held, "node-a")
    await stage.writer.withdraw(held, CONDITION)
    status = (await stage.pods.get("web"))["status"]
    assert "nominatedNodeName" not in status
    assert [one["reason"] for one in status["conditions"]] == ["Nominated", "SchedulingGated"]
    assert await stage.gates("web") == [HOLD_GATE]


async def test_gates_of_others_stay_and_may_come_off_in_any_order(stage: Stage) -> None:
    held = await stage.held("web", OTHER_GATE, HOLD_GATE, "example.com/third")
    await stage.patch("web", {"op": "remove", "path": "/spec/schedulingGates/0"})
    await stage.writer.release(held)  # our gate has moved since
    assert await stage.gates("web") == ["example.com/third"]
    held = await stage.held("api", HOLD_GATE, OTHER_GATE)
    await stage.writer.release(held)
    assert await stage.gates("api") == [OTHER_GATE]


async def test_annotations_that_somebody_adds_meanwhile_stay(stage: Stage) -> None:
    held = await stage.held("web")
    await stage.patch("web", {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}})
    await stage.writer.release(held, annotations={RELEASED_ANNOTATION: "node-a"})
    stored = await stage.pods.get("web")
    assert stored["metadata"]["annotations"] == {"a": "b", RELEASED_ANNOTATION: "node-a"}


async def test_writes_of_a_deleted_pod_say_that_it_is_gone(stage: Stage) -> None:
    held = await stage.held("web")
    await stage.pods.delete("web")
    assert set(await stage.every_write(held)) == {WriteFailure.GONE}


async def test_a_new_pod_of_the_same_name_stays_as_it_is(stage: Stage) -> None:
    held = await stage.held("web")
    await stage.pods.delete("web")
    await stage.held("web")
    before = await stage.pods.get("web")
    assert set(await stage.every_write(held)) == {WriteFailure.GONE}
    assert await stage.pods.get("web") == before


async def test_a_pod_that_somebody_else_released_has_changed(stage: Stage) -> None:
    await stage.pods.add_nodes("node-a")
    held = await stage.held("web")
    await stage.patch("web", {"op": "remove", "path": "/spec/schedulingGates"})
    await stage.pods.bound("web")
    with failing(WriteFailure.CHANGED):
        await stage.writer.release(held)


async def test_a_pod_that_is_bound_has_changed_for_who_nominates_it(stage: Stage) -> None:
    await require_on(stage.cluster, "ClearingNominatedNodeNameAfterBinding")
    await stage.pods.add_nodes("node-a")
    held = await stage.held("web")
    await stage.patch("web", {"op": "remove", "path": "/spec/schedulingGates"})
    await stage.pods.bound("web")
    with failing(WriteFailure.CHANGED):
        await stage.writer.nominate(held, "node-a")


@pytest.mark.parametrize("reason", ["", "Forbidden"])  # 422 by default, 403
async def test_a_policy_of_somebody_else_refuses_a_release(stage: Stage, reason: str) -> None:
    held = await stage.held("web")
    async with refusing_releases(stage.cluster, stage.namespace, reason):
        with failing(WriteFailure.REFUSED, "nobody releases here"):
            await stage.writer.release(held)
        with failing(WriteFailure.REFUSED, "nobody releases here"):
            await stage.writer.release(held, {RELEASED_ANNOTATION: "node-a"})
        await stage.writer.nominate(held, "node-a")  # the status is not its business
        assert stage.writer.pause_seconds == 0
    assert await stage.gates("web") == [HOLD_GATE]


async def test_a_webhook_of_somebody_else_refuses_a_release(
    stage: Stage, reviewer: Reviewer
) -> None:
    held = await stage.held("web")
    rules = [rule("", ["pods"], "CREATE", "UPDATE")]
    async with reviewer.asked(stage.cluster, "Validating", stage.namespace, rules) as path:
        await stage.writer.touch(held)
        # It is reviewed again if the API server's cache did not hold the newest version yet.
        assert {one["operation"] for one in reviewer.requests(path)} == {"UPDATE"}
        reviewer.refuses = "not today"
        with failing(WriteFailure.REFUSED, "not today"):
            await stage.writer.release(held)
    assert await stage.gates("web") == [HOLD_GATE]


async def test_a_broken_webhook_of_somebody_else_is_a_refusal_and_stops_nobody_else(
    stage: Stage, reviewer: Reviewer
) -> None:
    held = await stage.held("web")
    rules = [rule("", ["pods"], "CREATE", "UPDATE")]
    async with reviewer.asked(stage.cluster, "Validating", stage.namespace, rules):
        reviewer.breaks = True
        with failing(WriteFailure.REFUSED, "failed calling webhook"):
            await stage.writer.release(held)
        assert stage.writer.pause_seconds == 0
        reviewer.breaks = False
        await stage.writer.release(held)


async def test_an_account_without_the_right_is_refused(
    stage: Stage, control_plane: ControlPlane
) -> None:
    held = await stage.held("web")
    async with writing(control_plane, "nobody", ()) as (_, writer):
        with failing(WriteFailure.REFUSED, "cannot patch resource"):
            await writer.release(held)
        with failing(WriteFailure.REFUSED, "cannot patch resource"):
            await writer.nominate(held, "node-a")


async def test_an_api_server_that_is_away_is_found_again(
    stage: Stage, control_plane: ControlPlane
) -> None:
    held = await stage.held("web")
    control_plane.api_server.kill()
    for _ in range(3):
        with failing(WriteFailure.UNREACHABLE):
            await stage.writer.release(held)
    assert stage.writer.pause_seconds > 0
    await asyncio.to_thread(control_plane.start)
    await stage.writer.release(held)
    assert stage.writer.pause_seconds == 0
    assert await stage.gates("web") == []


async def test_a_touch_lets_a_scheduler_that_was_restarted_keep_the_room_again(
    stage: Stage, control_plane: ControlPlane
) -> None:
    await stage.pods.add_nodes("node-a")
    held = await stage.held("web", nodeSelector=only_on("node-a"))
    await stage.writer.nominate(held, "node-a")
    await asyncio.to_thread(control_plane.scheduler.restart)
    await stage.pods.nodes_seen()  # it has its lists: what comes now is an event
    await stage.writer.touch(await stage.seen("web"))
    await stage.pods.create("rival", "3500m")
    assert "Insufficient cpu" in await stage.pods.unschedulable("rival")
    await stage.writer.release(await stage.seen("web"))
    assert await stage.pods.bound("web") == "node-a"


async def test_another_holder_of_the_schedulers_lease_is_noticed(
    stage: Stage, control_plane: ControlPlane
) -> None:
    lease = SchedulerLease(stage.connection)
    assert not await lease.has_new_holder()  # there is none: here it runs without
    # The scheduler ends where it cannot renew the Lease in time, as on a busy machine.
    quick = {"lease-duration": "6s", "renew-deadline": "5s", "retry-period": "500ms"}
    flags = {"leader-elect": "true"} | {
        f"leader-elect-{key}": value for key, value in quick.items()
    }
    async with control_plane.scheduling_with(flags):

        async def is_held() -> bool:
            path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
            return bool((await stage.cluster.call("GET", path))["spec"].get("holderIdentity"))

        await eventually(is_held, "the scheduler leads")
        assert not await lease.has_new_holder()
        await asyncio.to_thread(control_plane.scheduler.restart)
        await eventually(lease.has_new_holder, "the scheduler that was restarted leads")
        assert not await lease.has_new_holder()
    await stage.cluster.delete("leases", "kube-scheduler", "kube-system")
