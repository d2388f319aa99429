"""Where pods are bound while the API server asks us about bindings, and while it cannot."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.features import require_on
from tests.e2e.installed import NAME, Installed, installed, leader_of
from tests.e2e.nodes import Nodes
from tests.e2e.priorities import priority_class
from tests.e2e.replica import Replica
from tests.e2e.workloads import pod

OLD_FIRST = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: old-first}
spec:
  placement: {at: Binding}
  scores: [{name: old, expression: "node.labels['rack'] == 'old' ? 100 : 0"}]
"""
WAITING = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: calm-nodes}
spec:
  placement: {at: Binding, whenNoneFits: Wait}
  filters:
    - name: calm
      expression: "node.requested.cpu < 1.0"
      message: the node is busy
"""
TIMEOUT_SECONDS = 5  # of the webhooks, see `installed`


@asynccontextmanager
async def binding(
    cluster: Cluster,
    control_plane: ControlPlane,
    folder: Path,
    policy: str,
    *,
    replicas: int = 1,
    options: Sequence[tuple[str, str]] = (("outcome", "false"),),
) -> AsyncIterator[Installed]:
    """Yield an installation whose leader the API server asks about bindings.

    What it answers is judged by the chart's admission policies.
    """
    file = folder / "policy.yaml"
    file.write_text(policy, encoding="utf-8")
    async with installed(
        *(cluster, control_plane, folder, [file]),
        options=[("binding", "true"), *options],
        replicas=replicas,
        admission_policies=True,
    ) as stowplan:
        leader = await leader_of(cluster, stowplan)
        stowplan.front.targets = [leader.port]  # as the Service of the leader does
        await stowplan.front.end()
        await eventually(partial(_is_asked, cluster, stowplan), "bindings are decided")
        yield stowplan


async def _is_asked(cluster: Cluster, stowplan: Installed) -> bool:
    """Bind a pod that is not there, as a dry run: webhooks are asked before it is looked up."""
    details = [await replica.detail() for replica in stowplan.replicas]
    if not any(detail["bindings"]["leads"] for detail in details):
        return False
    path = "/api/v1/namespaces/default/pods/not-there/binding"
    body = {"metadata": {"name": "not-there"}, "target": {"kind": "Node", "name": "nowhere"}}
    try:
        await cluster.call("POST", path, body, params={"dryRun": "All"})
    except CallError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    return bool(await stowplan.reviews("bind"))


async def counted(replica: Replica, metric: str, label: str = "") -> Mapping[str, int]:
    """Return a counter by a label, or under an empty text."""
    families = text_string_to_metric_families(await replica.metrics())
    found = Counter[str]()
    for family in families:
        for sample in family.samples:
            if sample.name == metric:
                found[sample.labels.get(label, "")] += int(sample.value)
    return found


async def nodes_of_pods(cluster: Cluster, namespace: str, count: int) -> dict[str, str]:
    """Wait until as many pods are bound; return the node of each."""

    async def bound() -> dict[str, str]:
        pods = await cluster.list_all("pods", namespace)
        nodes = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}
        assert len(nodes) == count, len(nodes)
        assert all(nodes.values()), f"{sum(map(bool, nodes.values()))} of {count} are bound"
        return nodes

    return await eventually(bound, f"{count} pods are bound")


async def racks(nodes: Nodes, *, old: int, new: int, **allocatable: str) -> None:
    for number in range(old + new):
        rack = "old" if number < old else "new"
        await nodes.add(f"{rack}-{number}", allocatable, labels={"rack": rack})


async def create(cluster: Cluster, namespace: str, count: int, cpu: str) -> None:
    pods = [pod(namespace, f"web-{number}", requests={"cpu": cpu}) for number in range(count)]
    await asyncio.gather(*(cluster.create(each) for each in pods))


async def test_a_burst_goes_where_the_policy_says_and_each_pod_says_why(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await racks(nodes, old=2, new=6)
    async with binding(cluster, control_plane, tmp_path, OLD_FIRST) as stowplan:
        await nodes.known(namespace)
        (replica,) = stowplan.replicas
        await create(cluster, namespace, 40, "100m")  # a node of 4 cores takes them all
        placed = await nodes_of_pods(cluster, namespace, 40)
        assert {node.partition("-")[0] for node in placed.values()} == {"old"}
        pods = await cluster.list_all("pods", namespace)
        for each in pods:
            annotations = each["metadata"]["annotations"]
            assert annotations["stowplan.dev/scheduler-node"] in nodes.names
            assert annotations["stowplan.dev/binding"] in {"BetterNode", "BestNode"}
            assert annotations["stowplan.dev/reason"]
        moved = {
            each["metadata"]["name"]
            for each in pods
            if each["metadata"]["annotations"]["stowplan.dev/scheduler-node"]
            != each["spec"]["nodeName"]
        }
        assert len(moved) > 10  # the stock scheduler spreads them over all nodes
        events = await eventually(partial(_rebound, cluster, namespace), "an Event is written")
        for event in events:
            name = event["involvedObject"]["name"]
            assert name in moved
            assert f"Bound to {placed[name]} instead of" in event["message"]
        by_action = await counted(replica, "stowplan_bindings_total", "action")
        assert by_action["Move"] == len(moved)
        assert (await counted(replica, "stowplan_bindings_escaped_total"))[""] == 0


async def test_a_moved_pod_has_the_topology_labels_of_the_node_that_it_has(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await require_on(cluster, "PodTopologyLabelsAdmission")
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    await nodes.add("old-0", labels={"rack": "old", region: "east"})
    for name in ("new-0", "new-1"):
        await nodes.add(name, labels={"rack": "new", region: "west", zone: f"zone-of-{name}"})
    async with binding(cluster, control_plane, tmp_path, OLD_FIRST):
        await nodes.known(namespace)
        await create(cluster, namespace, 8, "100m")
        assert set((await nodes_of_pods(cluster, namespace, 8)).values()) == {"old-0"}
        pods = await cluster.list_all("pods", namespace)
        assert any(
            each["metadata"]["annotations"]["stowplan.dev/scheduler-node"] != "old-0"
            for each in pods
        )
        labels = [each["metadata"]["labels"] for each in pods]
        assert {(each[region], each.get(zone)) for each in labels} == {("east", None)}


async def _rebound(cluster: Cluster, namespace: str) -> Sequence[Json]:
    events = await cluster.list_all("events", namespace)
    return [event for event in events if event["reason"] == "Rebound"]


async def test_a_pod_that_is_denied_is_tried_again_until_a_node_is_right(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await racks(nodes, old=0, new=2)
    for name in nodes.names:
        busy = pod(namespace, f"busy-on-{name}", requests={"cpu": "1500m"})
        busy["spec"]["nodeName"] = name
        await cluster.create(busy)
    async with binding(cluster, control_plane, tmp_path, WAITING) as stowplan:
        (replica,) = stowplan.replicas
        await cluster.create(pod(namespace, "web", requests={"cpu": "100m"}))

        async def is_denied() -> bool:
            return (await counted(replica, "stowplan_bindings_total", "reason"))["Waits"] > 0

        await eventually(is_denied, "the binding is denied")
        found = await cluster.get("pods", "web", namespace)
        assert "nodeName" not in found["spec"]
        await cluster.delete("pods", f"busy-on-{nodes.names[0]}", namespace, grace_seconds=0)
        placed = await nodes_of_pods(cluster, namespace, 2)
        assert placed["web"] == nodes.names[0]


async def test_without_us_pods_are_bound_as_by_the_scheduler_and_we_notice(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await racks(nodes, old=2, new=6)
    async with binding(cluster, control_plane, tmp_path, OLD_FIRST) as stowplan:
        await nodes.known(namespace)
        (replica,) = stowplan.replicas
        targets, stowplan.front.targets = stowplan.front.targets, []
        await stowplan.front.end()
        await create(cluster, namespace, 16, "100m")
        placed = await nodes_of_pods(cluster, namespace, 16)
        assert "new" in {node.partition("-")[0] for node in placed.values()}
        for each in await cluster.list_all("pods", namespace):
            assert "stowplan.dev/binding" not in each["metadata"].get("annotations", {})

        async def has_escaped() -> bool:
            return (await counted(replica, "stowplan_bindings_escaped_total"))[""] == 16

        await eventually(has_escaped, "the bindings are seen")
        assert (await replica.detail())["bindings"]["paused"]
        # Nothing moves for a while, but each binding is answered.
        stowplan.front.targets = targets
        await cluster.create(pod(namespace, "later", requests={"cpu": "100m"}))
        await nodes_of_pods(cluster, namespace, 17)
        assert (await counted(replica, "stowplan_bindings_total", "action"))["Keep"] > 0


async def test_a_hung_replica_delays_a_binding_by_the_timeout_and_no_more(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await racks(nodes, old=1, new=2)
    async with binding(cluster, control_plane, tmp_path, OLD_FIRST) as stowplan:
        await nodes.known(namespace)
        (replica,) = stowplan.replicas
        replica.pause()
        try:
            created = time.monotonic()
            await cluster.create(pod(namespace, "web", requests={"cpu": "100m"}))
            await nodes_of_pods(cluster, namespace, 1)
            took = time.monotonic() - created
        finally:
            replica.resume()
        # The creation waits for /mutate, the binding for /bind; then it is the scheduler's choice.
        assert took > TIMEOUT_SECONDS
        assert took < 2 * TIMEOUT_SECONDS + 5


async def test_at_95_percent_no_node_gets_more_than_it_has(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await racks(nodes, old=3, new=5)
    async with binding(cluster, control_plane, tmp_path, OLD_FIRST):
        await nodes.known(namespace)
        await cluster_filled(cluster, namespace)
        used = await used_by_node(cluster, namespace, len(SIZES) - 3)
        print(used)
        assert max(used.values()) <= CORES
        assert max(used[f"old-{number}"] for number in range(3)) > CORES * 3 // 4


async def test_with_fail_a_leader_that_is_killed_in_a_burst_leaves_no_node_too_full(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await racks(nodes, old=3, new=5)
    async with binding(cluster, control_plane, tmp_path, OLD_FIRST, replicas=2) as stowplan:
        fail = [{"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Fail"}]
        await cluster.patch("mutatingwebhookconfigurations", NAME, fail, how="json")
        await nodes.known(namespace)
        leader = await leader_of(cluster, stowplan)
        (other,) = (replica for replica in stowplan.replicas if replica is not leader)
        filling = asyncio.create_task(cluster_filled(cluster, namespace))
        await used_by_node(cluster, namespace, 8)
        leader.kill()
        stowplan.front.targets = [other.port]
        await filling

        async def leads() -> bool:
            return bool((await other.detail())["bindings"]["leads"])

        await eventually(leads, "the other replica decides")
        # It moves none until all that the last one has answered must have ended.
        assert (await other.detail())["bindings"]["paused"]
        used = await used_by_node(cluster, namespace, len(SIZES) - 3)
        print(used)
        assert max(used.values()) <= CORES


CORES = 4_000  # millicores of a node
# Of pods on 8 such nodes: 100m to 900m, 30.7 of 32 cores in sum.
SIZES = [100 * (1 + number * 7 % 9) for number in range(61)]


async def cluster_filled(cluster: Cluster, namespace: str) -> None:
    """Create a pod of each size, at once."""
    pods = [
        pod(namespace, f"web-{number}", requests={"cpu": f"{size}m"})
        for number, size in enumerate(SIZES)
    ]
    await asyncio.gather(*(cluster.create(each) for each in pods))


async def used_by_node(cluster: Cluster, namespace: str, count: int) -> Mapping[str, int]:
    """Wait until so many pods are bound; return what they request, by node."""

    async def bound() -> Mapping[str, int]:
        used, found = Counter[str](), 0
        for each in await cluster.list_all("pods", namespace):
            node = each["spec"].get("nodeName")
            if node:
                found += 1
                used[node] += SIZES[int(each["metadata"]["name"].removeprefix("web-"))]
        assert found >= count, f"{found} of {count} are bound"
        return used

    return await eventually(bound, f"{count} pods are bound")


async def test_what_was_decided_for_its_node_stays_there(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await racks(nodes, old=1, new=1)
    async with (
        binding(cluster, control_plane, tmp_path, OLD_FIRST) as stowplan,
        local_volumes(cluster, namespace, nodes.names),
        devices(cluster, namespace, nodes.names),
        priority_class(cluster, f"{namespace}-urgent", 1_000),
    ):
        await nodes.known(namespace)
        (replica,) = stowplan.replicas
        for what, spec in (("volume", _VOLUME), ("device", _DEVICE)):
            found = pod(namespace, what, requests={"cpu": "100m"})
            found["spec"] = {**found["spec"], **spec}
            # The scheduler goes to the new rack, and so do volume and device.
            found["spec"]["affinity"] = _preferring("new")
            if what == "device":
                found["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]
            await cluster.create(found)
        placed = await nodes_of_pods(cluster, namespace, 2)
        assert placed == {"volume": "new-1", "device": "new-1"}
        # A pod that others are evicted for goes where they were.
        filling = pod(namespace, "filling", requests={"cpu": "3500m"})
        filling["spec"]["affinity"] = _preferring("new")
        filling["spec"]["nodeName"] = "new-1"
        other = pod(namespace, "other", requests={"cpu": "3500m"})
        other["spec"] |= {"nodeName": "old-0", "priorityClassName": f"{namespace}-urgent"}
        await cluster.create(filling)
        await cluster.create(other)
        urgent = pod(namespace, "urgent", requests={"cpu": "1"})
        urgent["spec"]["priorityClassName"] = f"{namespace}-urgent"
        await cluster.create(urgent)

        async def has_preempted() -> bool:
            found = await cluster.get("pods", "urgent", namespace)
            return bool(found["spec"].get("nodeName") == "new-1")

        await eventually(has_preempted, "the pod is where others were evicted for it")
        reasons = await counted(replica, "stowplan_bindings_total", "reason")
        assert reasons["Claims"] == 2
        assert reasons["Preemptor"] == 1


_VOLUME: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
_DEVICE: Json = {"resourceClaims": [{"name": "device", "resourceClaimName": "device"}]}


def _preferring(rack: str) -> Json:
    expression = {"key": "rack", "operator": "In", "values": [rack]}
    preference = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}


@asynccontextmanager
async def local_volumes(
    cluster: Cluster, namespace: str, names: Sequence[str]
) -> AsyncIterator[None]:
    """Create a volume on each node, and a claim that is bound with its first pod."""
    storage_class = f"local-{namespace}"
    await cluster.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": storage_class},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    common = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
    for name in names:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
        await cluster.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{namespace}-{name}"},
                "spec": {
                    **common,
                    "capacity": {"storage": "1Gi"},
                    "local": {"path": "/mnt"},
                    "nodeAffinity": {
                        "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
                    },
                },
            }
        )
    await cluster.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": namespace, "name": "data"},
            "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}},
        }
    )
    try:
        yield
    finally:
        for name in names:
            await cluster.delete("persistentvolumes", f"{namespace}-{name}")
        await cluster.delete("storageclasses", storage_class)


@asynccontextmanager
async def devices(cluster: Cluster, namespace: str, names: Sequence[str]) -> AsyncIterator[None]:
    """Offer a device on each node, and create a claim for one."""
    driver = f"{namespace}.example.com"
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    api = {"apiVersion": "resource.k8s.io/v1"}
    device_class = {
        **api,
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [selector]},
    }
    await cluster.create(device_class)
    for name in names:
        await cluster.create(
            {
                **api,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{namespace}-{name}"},
                "spec": {
                    "driver": driver,
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "device-0"}],
                },
            }
        )
    request = {"name": "device", "exactly": {"deviceClassName": driver}}
    await cluster.create(
        {
            **api,
            "kind": "ResourceClaim",
            "metadata": {"namespace": namespace, "name": "device"},
            "spec": {"devices": {"requests": [request]}},
        }
    )
    try:
        yield
    finally:
        for name in names:
            await cluster.delete("resourceslices", f"{namespace}-{name}")
        await cluster.delete("deviceclasses", driver)
