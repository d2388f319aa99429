"""No pod gets round quota on a real API server, whoever creates it and whatever it says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.definitions import defined, definitions_of_others
from tests.e2e.features import require_on
from tests.e2e.installed import FailurePolicy, Installed
from tests.e2e.loop_thread import entered
from tests.e2e.nodes import Nodes
from tests.e2e.pod_tricks import TRICKS, text_of
from tests.e2e.quotas import enforced, limit, nobodys_pod
from tests.e2e.workloads import daemon_set, is_running, pod


@asynccontextmanager
async def _enforcing(
    control_plane: ControlPlane, folder: Path, policy: FailurePolicy
) -> AsyncIterator[Installed]:
    async with (
        connected(control_plane) as cluster,
        defined(cluster, *definitions_of_others()),
        enforced(cluster, control_plane, folder, replicas=1, failure_policy=policy) as installed,
    ):
        yield installed


@pytest.fixture(scope="module", params=["Ignore", "Fail"])
def stowplan(
    one_control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Installed]:
    """One replica that enforces quotas, asked as the chart says, for all tests of this file."""
    one_control_plane.start()
    folder = tmp_path_factory.mktemp("replica")
    with entered(_enforcing(one_control_plane, folder, request.param)) as installed:
        yield installed


async def test_a_daemon_set_gets_no_more_than_the_quota_of_its_namespace(
    cluster: Cluster, nodes: Nodes, namespace: str, stowplan: Installed
) -> None:
    for name in ("node-a", "node-b", "node-c"):
        await nodes.add(name)
    await limit(cluster, stowplan, namespace, {"cpu": "1"})
    await cluster.create(daemon_set(namespace, "agent", requests={"cpu": "600m"}))

    async def is_denied() -> bool:
        events = await cluster.list_all("events", namespace)
        return any("exceeded quota: team" in event["message"] for event in events)

    await eventually(is_denied, "the DaemonSet is told of the quota")
    assert len(await cluster.list_all("pods", namespace)) == 1
    # An administrator may exempt a namespace as a whole.
    labels = {"metadata": {"labels": {"stowplan.dev/quota": "disabled"}}}
    await cluster.patch("namespaces", namespace, labels)

    async def is_everywhere() -> bool:
        return len(await cluster.list_all("pods", namespace)) == len(nodes.names)

    await eventually(is_everywhere, "the DaemonSet has a pod on every node")


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_pod_that_is_hard_to_read_is_held_to_quota_and_counts(
    cluster: Cluster, namespace: str, stowplan: Installed, trick: str
) -> None:
    async def create(name: str, cpu: str) -> None:
        obj = pod(namespace, name, requests={"cpu": cpu})
        obj["spec"]["schedulerName"] = "nobody"
        TRICKS[trick](obj)
        await cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", text_of(obj))

    await create("stored-before", "50")
    await limit(cluster, stowplan, namespace, {"cpu": "1"})
    with pytest.raises(CallError) as denied:
        await create("large", "50")
    assert denied.value.status == HTTPStatus.FORBIDDEN  # not an error, which the policy decides on
    plain = pod(namespace, "plain", requests={"cpu": "100m"})

    async def counts() -> bool:
        return not await is_created(cluster, plain, dry_run=True)

    await eventually(counts, "what was stored before counts, once the watch has shown it")
    with pytest.raises(CallError, match="exceeded quota"):
        await cluster.create(plain)


async def test_a_pod_resized_as_a_whole_counts_until_the_kubelet_has_given_back(
    cluster: Cluster, namespace: str, stowplan: Installed
) -> None:
    await require_on(cluster, "InPlacePodLevelResourcesVerticalScaling")

    def cpu(amount: str) -> Json:
        return {"requests": {"cpu": amount}, "limits": {"cpu": amount}}

    async def has(amount: str) -> None:
        given = {"resources": cpu(amount), "allocatedResources": {"cpu": amount}}
        stored = await cluster.patch(
            "pods", "shrinks", {"status": given}, namespace, subresource="status"
        )
        assert stored["status"]["resources"]["requests"] == {"cpu": amount}

    await limit(cluster, stowplan, namespace, {"cpu": "1"})
    shrinks = nobodys_pod(namespace, "shrinks")
    shrinks["spec"]["resources"] = cpu("800m")
    await cluster.create(shrinks)
    await has("800m")
    less = {"spec": {"resources": cpu("100m")}}
    await cluster.patch("pods", "shrinks", less, namespace, subresource="resize", how="strategic")
    other = nobodys_pod(namespace, "other")
    other["spec"]["containers"][0]["resources"] = cpu("800m")
    with pytest.raises(CallError, match="used: cpu=800m"):
        await cluster.create(other)
    await has("100m")
    await eventually(lambda: is_created(cluster, other), "what was given back can be used")


async def is_created(cluster: Cluster, obj: Json, *, dry_run: bool = False) -> bool:
    """Create an object; return whether quota let it pass."""
    try:
        await cluster.create(obj, dry_run=dry_run)
    except CallError as error:
        if "exceeded quota" not in error.message:
            raise
        return False
    return True


async def test_creations_of_a_name_that_is_taken_take_no_share(
    cluster: Cluster, namespace: str, stowplan: Installed
) -> None:
    await limit(cluster, stowplan, namespace, {"cpu": "1"})
    taken = nobodys_pod(namespace, "taken")  # of 100m
    await cluster.create(taken)
    for _ in range(9):
        with pytest.raises(CallError) as refused:
            await cluster.create(taken)
        assert refused.value.status == HTTPStatus.CONFLICT
    for number in range(9):
        await cluster.create(nobodys_pod(namespace, f"other-{number}"))
    with pytest.raises(CallError, match="exceeded quota"):
        await cluster.create(nobodys_pod(namespace, "one-too-many"))


def _bound(obj: Json) -> None:
    obj["spec"]["nodeName"] = "node-a"


def _of_another_scheduler(obj: Json) -> None:
    obj["spec"]["schedulerName"] = "other"


def _gated(obj: Json) -> None:
    obj["spec"]["schedulingGates"] = [{"name": "example.com/later"}]


def _like_a_mirror(obj: Json) -> None:
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    _bound(obj)


def _like_one_of_a_daemon_set(obj: Json) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "1"}
    obj["metadata"]["ownerReferences"] = [owner]


def _opted_out(obj: Json) -> None:
    obj["metadata"]["labels"] = {"stowplan.dev/quota": "disabled", "stowplan.dev/mode": "Off"}
    obj["metadata"]["annotations"] = {"stowplan.dev/quota-mode": "Off"}


def _critical(obj: Json) -> None:
    obj["spec"]["priorityClassName"] = "system-node-critical"


def _in_an_init_container(obj: Json) -> None:
    (container,) = obj["spec"]["containers"]
    obj["spec"]["initContainers"] = [{**container, "name": "init"}]
    obj["spec"]["containers"] = [{**container, "resources": {}}]


async def test_nothing_that_a_pod_says_of_itself_exempts_it(
    cluster: Cluster, namespace: str, stowplan: Installed
) -> None:
    await limit(cluster, stowplan, namespace, {"cpu": "1"})
    for disguise in (
        _bound,
        _of_another_scheduler,
        _gated,
        _like_a_mirror,
        _like_one_of_a_daemon_set,
        _opted_out,
        _critical,
        _in_an_init_container,
    ):
        obj = pod(namespace, disguise.__name__.strip("_").replace("_", "-"))
        obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50"}}
        disguise(obj)
        with pytest.raises(CallError, match="exceeded quota: team"):
            await cluster.create(obj)


async def test_no_pod_grows_beyond_its_quota_once_it_is_stored(
    cluster: Cluster, nodes: Nodes, namespace: str, stowplan: Installed
) -> None:
    await nodes.add("node-a")
    await limit(cluster, stowplan, namespace, {"cpu": "1"})
    await cluster.create(pod(namespace, "grows", requests={"cpu": "600m"}))
    await eventually(lambda: is_running(cluster, namespace, "grows"), "the pod runs")
    more = {"name": "main", "resources": {"requests": {"cpu": "1100m"}}}
    for subresource, spec, refusal in (
        ("resize", {"containers": [more]}, "exceeded quota: team, requested: cpu=500m"),
        ("", {"containers": [more]}, "pod updates may not change fields"),
        (
            "ephemeralcontainers",
            {"ephemeralContainers": [{**more, "name": "debug", "image": "debug"}]},
            "cannot be set for an Ephemeral Container",
        ),
    ):
        with pytest.raises(CallError, match=refusal):
            await cluster.patch(
                "pods",
                "grows",
                {"spec": spec},
                namespace,
                how="strategic",
                subresource=subresource,
            )


async def test_pods_that_are_older_than_their_quota_are_reported(
    cluster: Cluster, namespace: str, stowplan: Installed
) -> None:
    old = nobodys_pod(namespace, "old")
    old["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    await cluster.create(old)
    await limit(cluster, stowplan, namespace, {"cpu": "1"})

    async def is_reported() -> bool:
        events = await cluster.list_all("events", namespace)
        return any(event["reason"] == "QuotaOverMax" for event in events)

    await eventually(is_reported, "pods above max are reported")
    of_cpu = f'{{quota="team",quota_namespace="{namespace}",resource="cpu"}}'

    async def is_shown() -> bool:
        metrics = await stowplan.replicas[0].metrics()
        assert f"stowplan_quota_used{of_cpu} 2.0" in metrics
        assert f"stowplan_quota_max{of_cpu} 1.0" in metrics
        assert "stowplan_quota_over_max 1.0" in metrics
        return True

    await eventually(is_shown, "metrics show it, and no other quota of an earlier test")
