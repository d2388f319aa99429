"""What marks on nodes do: the stock scheduler keeps off hot nodes by itself, until they cool."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed, installed
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.workloads import pod

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: cool}
spec:
  filters: [{plugin: LoadAware, args: {usageThresholds: {cpu: 65}}}]
  placement: {dynamicFilters: Marked}
"""
TAINT = {"key": "stowplan.dev/avoid", "effect": "PreferNoSchedule"}
LABEL = "avoid.stowplan.dev/cool"
MARKED: Json = {"taints": [TAINT], "label": "true"}
UNLABELLED: Json = {"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}
UNMARKED: Json = {"taints": [], "label": None}
NODES = tuple(f"node-{number}" for number in range(6))
HOT = NODES[:4]
PODS = 12
LEFT_ALONE = "kube-public"  # no pod of it is advised
DWELL_SECONDS = 180  # a minute of dwelling, the next measurement, and a busy machine
MARK_OPTION = ("node-marks", "true")


async def test_the_scheduler_keeps_off_a_hot_node_until_it_cools(
    cluster: Cluster,
    control_plane: ControlPlane,
    metrics_api: MetricsServer,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
) -> None:
    for name in NODES:
        await nodes.add(name, {"cpu": "16"})
        _uses(metrics_api, name, "15" if name in HOT else "1")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    async with installed(
        cluster, control_plane, tmp_path, [policy], replicas=2, options=[MARK_OPTION]
    ) as stowplan:
        await stowplan.knows_usage(len(NODES))
        await _have_marks(cluster, dict.fromkeys(NODES, UNMARKED) | dict.fromkeys(HOT, MARKED))
        leader = await eventually(lambda: _leader(stowplan), "the leader shows the marks")
        await nodes.known(namespace)

        # A pod that nobody advised sees the taint; one of the policy prefers no label.
        unadvised = await _placed(cluster, LEFT_ALONE, "unadvised")
        ours = await _placed(cluster, namespace, "ours")
        for each in (*unadvised, *ours):
            assert each["spec"]["nodeName"] not in HOT
        assert all("affinity" not in each["spec"] for each in unadvised)
        assert all(_term(each, "preferred")["preference"] == UNLABELLED for each in ours)
        await cluster.delete_all("pods", LEFT_ALONE, grace_seconds=0)

        # Another leader follows what the first one left.
        for name in HOT:
            _uses(metrics_api, name, "1")
        await asyncio.to_thread(leader.kill)
        await _have_marks(cluster, dict.fromkeys(NODES, UNMARKED))


async def test_a_pod_waits_for_the_mark_to_go_and_all_marks_go_where_they_are_switched_off(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    foreign = {"key": "stowplan.dev/avoid", "value": "by-hand", "effect": "NoExecute"}
    await nodes.add("marked", labels={LABEL: "true", "zone": "a"}, taints=(TAINT,))
    await nodes.add("both", labels={LABEL: "true"}, taints=(foreign, TAINT))
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.replace("Marked", "MarkedRequired"), encoding="utf-8")
    async with installed(cluster, control_plane, tmp_path, [policy], options=[MARK_OPTION]):
        waiting = pod(namespace, "waiting")
        created = await cluster.create(waiting)
        assert _term(created, "required") == UNLABELLED

        async def has_nowhere_to_go() -> bool:
            found = await cluster.get("pods", "waiting", namespace)
            conditions = found["status"].get("conditions") or []
            return any(condition.get("reason") == "Unschedulable" for condition in conditions)

        await eventually(has_nowhere_to_go, "the pod is found unschedulable")
    async with installed(cluster, control_plane, tmp_path, [policy]):
        await _have_marks(
            cluster, {"marked": UNMARKED, "both": {"taints": [foreign], "label": None}}
        )

        async def is_bound() -> bool:
            found = await cluster.get("pods", "waiting", namespace)
            return bool(found["spec"].get("nodeName") == "marked")

        await eventually(is_bound, "the pod runs on the node that was marked")
        assert (await cluster.get("nodes", "marked"))["metadata"]["labels"]["zone"] == "a"


async def _leader(stowplan: Installed) -> Replica:
    """Return the replica that shows how many nodes are marked."""
    line = f'stowplan_marked_nodes{{mark="{LABEL}"}} {len(HOT):.1f}\n'
    shows = [line in await replica.metrics() for replica in stowplan.replicas]
    assert sum(shows) == 1
    return stowplan.replicas[shows.index(True)]


def _uses(metrics_api: MetricsServer, name: str, cpu: str) -> None:
    metrics_api.nodes[name] = {"cpu": cpu, "memory": "1Gi"}


async def _have_marks(cluster: Cluster, expected: dict[str, Json]) -> None:
    """Wait until nodes have these taints and this value of the label."""

    async def as_expected() -> bool:
        found = {
            node["metadata"]["name"]: {
                "taints": [
                    taint
                    for taint in node["spec"].get("taints", ())
                    if taint["key"] == TAINT["key"]
                ],
                "label": node["metadata"]["labels"].get(LABEL),
            }
            for node in await cluster.list_all("nodes")
        }
        assert found == expected
        return True

    await eventually(as_expected, "nodes have their marks", within=DWELL_SECONDS)


async def _placed(cluster: Cluster, namespace: str, name: str) -> list[Json]:
    """Return pods that were created in a namespace, once they are bound."""
    for number in range(PODS):
        await cluster.create(pod(namespace, f"{name}-{number}", requests={"cpu": "100m"}))

    async def bound() -> list[Json]:
        pods = await cluster.list_all("pods", namespace)
        return pods if all("nodeName" in each["spec"] for each in pods) else []

    return await eventually(bound, f"pods of {namespace} are bound")


def _term(created: Json, how: str) -> Json:
    """Return the last term that a pod requires or prefers."""
    affinity = created["spec"]["affinity"]["nodeAffinity"]
    terms = affinity[f"{how}DuringSchedulingIgnoredDuringExecution"]
    last: Json = (terms["nodeSelectorTerms"] if how == "required" else terms)[-1]
    return last
