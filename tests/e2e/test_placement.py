"""What the policies are for: where the stock scheduler puts pods, with and without advice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from statistics import pstdev

import msgspec

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import pod_of
from engine.pipeline import decide
from engine.policy import load_policies
from tests.e2e.advice import first_choice
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed, account, installed
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import deployment, pod
from webhook.serving.composition import run_server, wall_clock
from webhook.settings import Settings

BALANCED = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: balanced}
spec:
  filters:
  - {plugin: LimitAware, args: &limits {defaultLimitToAllocatableRatio: {cpu: 400%, memory: 150%}}}
  - {plugin: LoadAware, args: &load {usageThresholds: {cpu: 65, memory: 95}}}
  scores:
  - {plugin: LimitAware, args: *limits}
  - {plugin: LoadAware, args: *load, weight: 2}
"""
LIMITS_ALONE = BALANCED + '  placement: { schedulerScores: "Off" }\n'
LIMITS_REQUIRED = BALANCED + ('  placement: { schedulerScores: "Off", dynamicFilters: Required }\n')
CORES = 16
NODES = tuple(f"node-{number:02}" for number in range(20))
HOT = NODES[::5]
PODS = 60
CORES_PER_POD = 1.5
SYNC_SECONDS = 60
MEASURED_AFTER = timedelta(seconds=25)  # a measurement covers the 20 s before it

BY_LOAD = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: by-load}
spec:
  filters: [{plugin: LoadAware, args: {usageThresholds: {cpu: 65}}}]
  scores: [{plugin: LoadAware, args: {resourceWeights: {cpu: 1}}}]
"""


def promised(number: int) -> float:
    """Return what the limits on a node add up to before, as a part of its cores: 0 to 1.9."""
    return number * 7 % len(NODES) / 10


def load_percent(number: int) -> int:
    """Return how busy a node is: four are hot, the others have 5 to 26 percent."""
    return 80 if NODES[number] in HOT else 5 + number * 13 % 8 * 3


async def test_a_deployment_goes_where_the_policy_ranks_and_evens_limits_out(
    cluster: Cluster,
    control_plane: ControlPlane,
    metrics_api: MetricsServer,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
) -> None:
    await _uneven_nodes(cluster, nodes, namespace)
    spreads = {"without": await _round(cluster, namespace)}
    await _measure(cluster, metrics_api, namespace)
    policy = tmp_path / "policy.yaml"
    policy.write_text(BALANCED, encoding="utf-8")
    async with installed(cluster, control_plane, tmp_path, [policy], replicas=2) as stowplan:
        await stowplan.knows_usage(len(NODES))
        ranking = await _ranking(control_plane, policy)
        spreads["balanced"] = await _round(cluster, namespace)
        # Without the scheduler's own spread of the Deployment, which counts pods and no limits.
        await _take_up(stowplan, policy, LIMITS_ALONE)
        spreads["limits alone"] = await _round(cluster, namespace)
        await _take_up(stowplan, policy, LIMITS_REQUIRED)
        spreads["limits alone, required"] = await _round(cluster, namespace)
    for name, counts in spreads.items():
        print(_report(name, counts), f"agreement {_agreement(ranking, counts):+.2f}")

    without, balanced, limits, required = spreads.values()
    for with_advice in (balanced, limits):
        assert _most(with_advice) <= _most(without)
        assert _agreement(ranking, with_advice) > 0.5 > _agreement(ranking, without)
        assert _hot(with_advice) < _hot(without)
    assert _deviation(limits) < _deviation(without)
    assert _deviation(required) < _deviation(without)
    assert _most(required) < _most(without)
    assert _agreement(ranking, required) > 0.5
    assert not any(required[name] for name in HOT)


async def test_a_burst_through_three_replicas_spreads_as_the_policy_means(
    cluster: Cluster,
    control_plane: ControlPlane,
    metrics_api: MetricsServer,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
) -> None:
    # Node 0 uses 5 % of its cores, all others 30 %; each pod is expected to use 85 % of its limit:
    # 2.66 % of a node. 200 pods bring all nodes to (5 + 19 * 30 + 200 * 2.66) / 20 = 55 %, for
    # which node 0 takes 19 and each other one 9 or 10. A replica counts what it advised itself at
    # once, and what others did as soon as its watch tells: at worst, each does all of that alone.
    # Without counting, all 200 would be sent to node 0, as the one that was measured to be idle.
    for number, name in enumerate(NODES):
        await nodes.add(name, {"cpu": str(CORES)})
        cores = CORES * (30 if number else 5) / 100
        metrics_api.nodes[name] = {"cpu": f"{cores:.1f}", "memory": "1Gi"}
    metrics_api.at = datetime.now(UTC)
    policy = tmp_path / "policy.yaml"
    policy.write_text(BY_LOAD, encoding="utf-8")
    async with installed(cluster, control_plane, tmp_path, [policy], replicas=3) as stowplan:
        await stowplan.knows_usage(len(NODES))
        made = [pod(namespace, f"burst-{number:03}") for number in range(200)]
        for one in made:
            one["spec"]["containers"][0]["resources"] = _resources("500m")
        await asyncio.gather(*(cluster.create(one) for one in made))
        pods = await _running(cluster, namespace, len(made))
        asked = [sum((await replica.reviews()).values()) for replica in stowplan.replicas]
    advised = Counter(first_choice(one) for one in pods)
    counts = _counts(pods)
    print(
        f"reviews {asked}; node 0: advised {advised[NODES[0]]}, took {counts[NODES[0]]};", end=" "
    )
    print(f"others took {sorted(counts[name] for name in NODES[1:])}")
    assert all(asked)
    assert 10 < counts[NODES[0]] <= 3 * 19
    assert max(counts[name] for name in NODES[1:]) <= 3 * 10
    assert advised[NODES[0]] <= 3 * 19


async def _uneven_nodes(cluster: Cluster, nodes: Nodes, namespace: str) -> None:
    """Add nodes with pods on them that may use more than others, and ask for little."""
    for number, name in enumerate(NODES):
        await nodes.add(name, {"cpu": str(CORES), "memory": "64Gi"})
        if promised(number):
            old = pod(namespace, f"old-{number}")
            old["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
            old["spec"]["containers"][0]["resources"] = _resources(
                f"{round(promised(number) * CORES * 1000)}m"
            )
            await cluster.create(old)
    await _running(cluster, namespace, sum(promised(n) > 0 for n in range(len(NODES))))


async def _measure(cluster: Cluster, metrics_api: MetricsServer, namespace: str) -> None:
    """Report the load of all nodes, at a moment when their pods have been there for a while."""

    async def for_a_while() -> bool:
        bound = [
            datetime.fromisoformat(condition["lastTransitionTime"])
            for one in await cluster.list_all("pods", namespace)
            for condition in one["status"]["conditions"]
            if condition["type"] == "PodScheduled"
        ]
        return datetime.now(UTC) - max(bound) > MEASURED_AFTER

    await eventually(for_a_while, "the old pods have been there for a while")
    for number, name in enumerate(NODES):
        cores = CORES * load_percent(number) / 100
        metrics_api.nodes[name] = {"cpu": f"{cores:.1f}", "memory": "4Gi"}
    metrics_api.at = datetime.now(UTC)


async def _round(cluster: Cluster, namespace: str) -> Counter[str]:
    """Let a Deployment come, and go; return how many of its pods each node took."""
    web = deployment(namespace, "web", replicas=0)
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = _resources(f"{CORES_PER_POD:g}")
    await cluster.create(web)
    await cluster.patch("deployments", "web", {"spec": {"replicas": PODS}}, namespace)
    counts = _counts(await _running(cluster, namespace, PODS, labelSelector="app=web"))
    await cluster.delete("deployments", "web", namespace)

    async def gone() -> bool:
        return not await cluster.list_all("pods", namespace, labelSelector="app=web")

    await eventually(gone, "the pods of the Deployment are gone")
    return counts


async def _take_up(stowplan: Installed, policy: Path, text: str) -> None:
    """Change the policy, and wait until that is in force."""
    before = [one["loadedAt"] for one in await stowplan.policies()]
    await asyncio.to_thread(policy.write_text, text)

    async def reloaded() -> bool:
        return not set(before) & {one["loadedAt"] for one in await stowplan.policies()}

    await eventually(reloaded, "the changed policy is in force")


async def _ranking(control_plane: ControlPlane, policy: Path) -> dict[str, int]:
    """Return the policy's score of each node, computed here; one that is rejected has -1."""
    policies = load_policies([policy])
    settings = Settings(
        policies=(policy,),
        kubeconfig=account(control_plane),
        usage_poll_seconds=5,
        host="127.0.0.1",
        port=0,
        metrics_port=0,
    )
    async with run_server(settings) as server:
        async with asyncio.timeout(SYNC_SECONDS):
            await server.cluster.synced()

        async def knows_usage() -> bool:
            return server.cluster.sources["metrics.k8s.io"].synced

        # Where the first poll fails, nobody waits for the next.
        await eventually(knows_usage, "the usage is known")
        server.cluster.flush()
        raw = deployment("default", "web", replicas=1)["spec"]["template"]
        raw["spec"]["containers"][0]["resources"] = _resources(f"{CORES_PER_POD:g}")
        body = msgspec.json.encode(raw)
        request = PlacementRequest(
            pod=pod_of(msgspec.json.decode(body, type=api.Pod), namespace="default"),
            raw=body,
            namespace_labels={},
            request={},
        )
        decision = decide(request, policies, server.cluster.view(), wall_clock())
        totals = zip(decision.candidates.tolist(), decision.totals.tolist(), strict=True)
        scores = {decision.names[row]: total for row, total in totals}
    return {name: scores.get(name, -1) for name in NODES}


async def _running(cluster: Cluster, namespace: str, count: int, **selected: str) -> list[Json]:
    async def running() -> list[Json]:
        pods = await cluster.list_all("pods", namespace, **selected)
        ready = len(pods) == count and all(one["status"]["phase"] == "Running" for one in pods)
        return pods if ready else []

    return await eventually(running, f"{count} pods run")


def _resources(limit: str) -> Json:
    return {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": limit}}


def _counts(pods: Sequence[Json]) -> Counter[str]:
    return Counter(one["spec"]["nodeName"] for one in pods)


def _ratios(counts: Mapping[str, int]) -> list[float]:
    """Return limit by allocatable of each node, with the pods it took."""
    return [
        promised(number) + counts[name] * CORES_PER_POD / CORES for number, name in enumerate(NODES)
    ]


def _deviation(counts: Mapping[str, int]) -> float:
    return pstdev(_ratios(counts))


def _most(counts: Mapping[str, int]) -> float:
    return max(_ratios(counts))


def _hot(counts: Mapping[str, int]) -> int:
    return sum(counts[name] for name in HOT)


def _agreement(ranking: Mapping[str, int], counts: Mapping[str, int]) -> float:
    """Return -1 to 1: in how many pairs of nodes the better one took more pods, less the reverse.

    Pairs that are equal in either do not count (Goodman and Kruskal's gamma).
    """
    signs = [(ranking[a] - ranking[b]) * (counts[a] - counts[b]) for a, b in combinations(NODES, 2)]
    agree, differ = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    return (agree - differ) / max(agree + differ, 1)


def _report(name: str, counts: Mapping[str, int]) -> str:
    return (
        f"{name:18} limit/allocatable: deviation {_deviation(counts):.3f},"
        f" maximum {_most(counts):.3f}; pods on hot nodes {_hot(counts)}"
    )
