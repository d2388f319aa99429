"""What held pods rely on, and the stock scheduler and API server do: nothing of ours is running.

A version on which one of these fails needs another way to release pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.e2e.cluster import CallError, Cluster, Json
from tests.e2e.control_plane import ControlPlane
from tests.e2e.features import is_on, require, require_on
from tests.e2e.nodes import Nodes
from tests.e2e.nominations import GATE, Nominations, only_on
from tests.e2e.priorities import priority_class
from tests.e2e.workloads import pod

HIGH, LOW = "nominations-high", "nominations-low"
PRIORITIES = {HIGH: 1_000, LOW: -1_000}


@pytest.fixture
def pods(cluster: Cluster, nodes: Nodes, namespace: str) -> Nominations:
    """Pods to nominate."""
    return Nominations(cluster, nodes, namespace)


@pytest.fixture
async def priorities(cluster: Cluster) -> AsyncIterator[None]:
    """A higher and a lower priority than that of other pods, 0."""
    async with AsyncExitStack() as stack:
        for name, value in PRIORITIES.items():
            await stack.enter_async_context(priority_class(cluster, name, value))
        yield


async def test_a_nomination_is_kept_while_the_pod_is_gated_and_decides_when_it_is_released(
    cluster: Cluster, pods: Nominations
) -> None:
    await pods.add_nodes("node-a", "node-b")
    await pods.create("old", "2", nodeSelector=only_on("node-a"))
    await pods.bound("old")
    await pods.hold("held", "1", "node-a")  # the scheduler would take the empty node
    await pods.create("other", "1")
    assert await pods.bound("other") == "node-b"  # it has seen both pods by now
    assert await pods.waits("held")
    assert await pods.nominated("held") == "node-a"
    await pods.release("held")
    assert await pods.bound("held") == "node-a"
    is_cleared = await is_on(cluster, "ClearingNominatedNodeNameAfterBinding")
    assert await pods.nominated("held") == ("" if is_cleared else "node-a")


async def test_every_one_of_many_pods_lands_where_it_is_nominated(pods: Nominations) -> None:
    names = [f"node-{number:02}" for number in range(12)]
    await pods.add_nodes(*names)
    wanted = {f"held-{number}": names[number % 3] for number in range(12)}
    await asyncio.gather(*(pods.hold(name, "1", node) for name, node in wanted.items()))
    await asyncio.gather(*map(pods.release, wanted))
    assert {name: await pods.bound(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "gates",
    [
        {
            "NominatedNodeNameForExpectation": "true",
            "ClearingNominatedNodeNameAfterBinding": "true",
            "SchedulerAsyncAPICalls": "true",
        },
        {"OpportunisticBatching": "false"},
    ],
    ids=["async API calls", "no batching"],
)
async def test_nominations_count_with_feature_gates_of_the_scheduler(
    cluster: Cluster, control_plane: ControlPlane, pods: Nominations, gates: dict[str, str]
) -> None:
    await require(cluster, *gates)
    values = ",".join(f"{gate}={value}" for gate, value in gates.items())
    async with control_plane.scheduling_with({"feature-gates": values}):
        await pods.add_nodes("node-a", "node-b")
        wanted = {f"held-{number}": "node-a" for number in range(4)}
        await asyncio.gather(*(pods.hold(name, "1", node) for name, node in wanted.items()))
        await asyncio.gather(*map(pods.release, wanted))
        assert {name: await pods.bound(name) for name in wanted} == wanted


async def test_a_nomination_that_does_not_fit_falls_back(
    cluster: Cluster, nodes: Nodes, pods: Nominations
) -> None:
    await pods.add_nodes("node-cordoned", "node-tainted", "node-gone", "node-good", cpu="8")
    await nodes.add("node-small", {"cpu": "100m"})
    for name in ("small", "unknown", "cordoned", "tainted", "gone"):
        await pods.hold(name, "1", f"node-{name}")
    await cluster.patch("nodes", "node-cordoned", {"spec": {"unschedulable": True}})
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    await cluster.patch("nodes", "node-tainted", {"spec": {"taints": [taint]}})
    await nodes.remove("node-gone")
    await pods.nodes_seen()
    for name in ("small", "unknown", "cordoned", "tainted", "gone"):
        await pods.release(name)
        assert await pods.bound(name) == "node-good", name


@pytest.mark.usefixtures("priorities")
async def test_pods_of_any_priority_land_where_they_are_nominated(pods: Nominations) -> None:
    await pods.add_nodes("node-a", "node-b", "node-c")
    for name in PRIORITIES:
        await pods.hold(name, "1", "node-a", priorityClassName=name)
    for name in PRIORITIES:
        await pods.release(name)
        assert await pods.bound(name) == "node-a"


@pytest.mark.usefixtures("priorities")
async def test_a_nomination_of_a_gated_pod_reserves_room_against_equal_and_lower_priority(
    pods: Nominations,
) -> None:
    await pods.add_nodes("node-a")
    await pods.hold("held", "3", "node-a")
    await pods.create("equal", "3")
    await pods.create("lower", "3", priorityClassName=LOW)
    assert "Insufficient cpu" in await pods.unschedulable("equal")
    assert "Insufficient cpu" in await pods.unschedulable("lower")
    await pods.create("small", "900m")
    assert await pods.bound("small") == "node-a"
    await pods.release("held")
    assert await pods.bound("held") == "node-a"


@pytest.mark.usefixtures("priorities")
async def test_a_higher_priority_takes_the_room_and_the_nominated_pod_falls_back(
    pods: Nominations,
) -> None:
    await pods.add_nodes("node-a")
    await pods.hold("held", "3", "node-a")
    await pods.create("higher", "3", priorityClassName=HIGH)
    assert await pods.bound("higher") == "node-a"
    await pods.add_nodes("node-b")
    await pods.release("held")
    assert await pods.bound("held") == "node-b"


@pytest.mark.usefixtures("priorities")
async def test_a_nomination_preempts_nobody(pods: Nominations) -> None:
    await pods.add_nodes("node-a", "node-b")
    await pods.create("lower", "3", nodeSelector=only_on("node-a"), priorityClassName=LOW)
    await pods.bound("lower")
    await pods.hold("held", "3", "node-a")
    await pods.release("held")
    assert await pods.bound("held") == "node-b"
    assert "deletionTimestamp" not in (await pods.get("lower"))["metadata"]


async def test_a_released_pod_that_fits_nowhere_loses_its_nomination(pods: Nominations) -> None:
    await pods.add_nodes("node-a")
    await pods.hold("huge", "5", "node-a")
    await pods.release("huge")
    await pods.unschedulable("huge")
    await pods.create("other", "4")
    assert await pods.bound("other") == "node-a"
    assert await pods.nominated("huge") == ""


async def test_room_is_reserved_until_the_nomination_is_taken_back_or_the_pod_deleted(
    pods: Nominations,
) -> None:
    await pods.add_nodes("node-a", "node-b")
    await pods.hold("held-a", "3", "node-a")
    await pods.hold("held-b", "3", "node-b")
    for node in ("a", "b"):
        await pods.create(f"waiting-{node}", "3", nodeSelector=only_on(f"node-{node}"))
        await pods.unschedulable(f"waiting-{node}")
    await pods.nominate("held-a", None)
    assert await pods.bound("waiting-a") == "node-a"
    # A pod that has no node needs no time to end: it is gone when the call is answered.
    await pods.delete("held-b", grace_seconds=30)
    with pytest.raises(CallError, match="NotFound"):
        await pods.get("held-b")
    assert await pods.bound("waiting-b") == "node-b"


async def test_the_second_nomination_counts(pods: Nominations) -> None:
    await pods.add_nodes("node-a", "node-b", "node-c")
    await pods.hold("held", "3", "node-a")
    await pods.nominate("held", "node-b")
    await pods.create("other", "3", nodeSelector=only_on("node-a"))
    assert await pods.bound("other") == "node-a"
    await pods.release("held")
    assert await pods.bound("held") == "node-b"


async def test_of_two_pods_that_refuse_each_other_the_second_lands_elsewhere(
    pods: Nominations,
) -> None:
    await pods.add_nodes("node-a", "node-b")
    any_of_them = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": any_of_them}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await pods.hold("first", "1", "node-a", affinity=apart)
    await pods.release("first")
    assert await pods.bound("first") == "node-a"
    await pods.hold("second", "1", "node-a", affinity=apart)
    await pods.release("second")
    assert await pods.bound("second") == "node-b"


async def test_more_nominated_than_fits_blocks_the_wrong_pod(pods: Nominations) -> None:
    """Why never more is nominated on a node than fits there: each counts the other."""
    await pods.add_nodes("node-a")
    await pods.hold("first", "3", "node-a")
    await pods.hold("second", "3", "node-a")
    await pods.release("first")
    assert "Insufficient cpu" in await pods.unschedulable("first")
    await pods.release("second")
    assert await pods.bound("second") == "node-a"


async def test_a_pod_without_a_gate_can_be_nominated_while_it_waits(pods: Nominations) -> None:
    await pods.add_nodes("node-a", "node-b")
    term = {"topologyKey": "kubernetes.io/os", "labelSelector": {"matchLabels": {"app": "first"}}}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await pods.create("pending", "1", affinity=beside)
    await pods.unschedulable("pending")
    await pods.nominate("pending", "node-b")
    # Opens both nodes at once, of which the scheduler would take the empty one.
    await pods.create("first", "1", nodeSelector=only_on("node-b"))
    assert await pods.bound("pending") == "node-b"


async def test_required_affinity_wins_over_a_nomination(pods: Nominations) -> None:
    await pods.add_nodes("node-a", "node-b")
    await pods.hold("held", "1", "node-a", nodeSelector=only_on("node-b"))
    await pods.release("held")
    assert await pods.bound("held") == "node-b"


async def test_a_nomination_and_a_release_are_two_writes(cluster: Cluster, namespace: str) -> None:
    made = pod(namespace, "held")
    made["spec"]["schedulingGates"] = [{"name": GATE}]
    created = await cluster.create({**made, "status": {"nominatedNodeName": "node-a"}})
    assert "nominatedNodeName" not in created["status"]

    both = {"spec": {"schedulingGates": None}, "status": {"nominatedNodeName": "node-a"}}
    by_status = await cluster.patch("pods", "held", both, namespace, subresource="status")
    assert by_status["spec"]["schedulingGates"] == [{"name": GATE}]
    assert by_status["status"]["nominatedNodeName"] == "node-a"

    both["status"] = {"nominatedNodeName": "node-b"}
    by_pod = await cluster.patch("pods", "held", both, namespace)
    assert "schedulingGates" not in by_pod["spec"]
    assert by_pod["status"]["nominatedNodeName"] == "node-a"

    later: Json = {"spec": {"schedulingGates": [{"name": "example.com/late"}]}}
    with pytest.raises(CallError, match="only deletion is allowed"):
        await cluster.patch("pods", "held", later, namespace)


async def test_a_gated_pod_cannot_be_bound(
    cluster: Cluster, namespace: str, pods: Nominations
) -> None:
    await pods.add_nodes("node-a", "node-b")
    await pods.hold("held", "1", "node-a")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "held"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-a"},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/held/binding"
    with pytest.raises(CallError) as refused:
        await cluster.call("POST", path, binding)
    assert refused.value.status == 409


async def test_a_bound_pod_cannot_be_nominated(cluster: Cluster, pods: Nominations) -> None:
    await require_on(cluster, "ClearingNominatedNodeNameAfterBinding")
    await pods.add_nodes("node-a", "node-b")
    await pods.create("bound", "1")
    await pods.bound("bound")
    with pytest.raises(CallError) as refused:
        await pods.nominate("bound", "node-b")
    assert refused.value.status == 422


async def test_a_scheduler_that_starts_forgets_a_nomination_until_the_gated_pod_is_touched(
    cluster: Cluster, control_plane: ControlPlane, namespace: str, pods: Nominations
) -> None:
    await pods.add_nodes("node-a", "node-b")
    await pods.hold("touched", "3", "node-a")
    await pods.hold("untouched", "3", "node-b")
    await asyncio.to_thread(control_plane.scheduler.restart)
    await pods.nodes_seen()  # it has its lists: what comes now is an event
    touch = {"metadata": {"annotations": {"example.com/touched": "true"}}}
    await cluster.patch("pods", "touched", touch, namespace)
    await pods.create("rival-a", "3", nodeSelector=only_on("node-a"))
    await pods.create("rival-b", "3", nodeSelector=only_on("node-b"))
    assert "Insufficient cpu" in await pods.unschedulable("rival-a")
    if int((await cluster.call("GET", "/version"))["minor"]) < 37:
        assert await pods.bound("rival-b") == "node-b"
    else:
        assert "Insufficient cpu" in await pods.unschedulable("rival-b")
    await pods.release("touched")
    assert await pods.bound("touched") == "node-a"
