"""The nodes that pass the real scheduler's filters are those that pass ours, in random clusters."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from engine.model.decision import PlacementRequest
from engine.pipeline import decide_in
from engine.policy import SCHEDULER_POLICY
from engine.view import ClusterState, ClusterView
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import REFUSED, extended
from tests.e2e.namespaces import create_namespaces
from tests.e2e.nodes import Nodes
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.neighbour_worlds import (
    NAMESPACES,
    model_of,
    random_cluster,
    random_pod,
    state_of,
)
from tests.engine.plugins.scheduler_oracle import TAINT, PlainCluster, first_reasons

_PROBES = 60
_SIDES = ("podAffinity", "podAntiAffinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize("seed", range(4))
async def test_the_scheduler_finds_the_same_nodes(
    seed: int,
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
) -> None:
    random = Random(seed)
    world = _renamed(random_cluster(random, most_nodes=8, most_pods=14), namespace)
    drawn = (random_pod(random, f"probe-{i}") for i in range(_PROBES))
    probes = [_renamed_pod(pod, namespace) for pod in drawn if not _asks_what_is_not(pod)]
    async with _created(world, cluster, nodes), extended(control_plane) as extender:
        view = (await _state_of(cluster, world)).view()
        stored = await asyncio.gather(*map(cluster.create, probes))
        for probe, as_stored in zip(probes, stored, strict=True):
            metadata = probe["metadata"]
            message = await _verdict(cluster, probe)
            passing = extender.passing.get((metadata["namespace"], metadata["name"]), frozenset())
            reasons = _first_reasons(probe, view)
            shown = json.dumps([probe, message], indent=1)
            assert passing == {name for name, reason in reasons.items() if not reason}, shown
            # What a review brings is what the API server stores, label keys in selectors or not.
            assert _first_reasons(as_stored, view) == reasons == first_reasons(probe, world), shown
            counted = Counter(reason or REFUSED for reason in reasons.values())
            assert _counted(message) == counted, shown


async def _state_of(cluster: Cluster, world: PlainCluster) -> ClusterState:
    """Return the cluster as ours sees it: what the API server has stored."""
    namespaces = [await cluster.get("namespaces", name) for name in world.namespaces]
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in namespaces}
    pods = [pod for name in labels for pod in await cluster.list_all("pods", name)]
    return state_of(PlainCluster(await cluster.list_all("nodes"), pods, labels))


def _first_reasons(pod: Json, view: ClusterView) -> dict[str, str]:
    """Return what the first of our filters that rejects a node says of it, "" if all pass."""
    request = PlacementRequest(pod=model_of(pod), raw=b"")
    context = SCHEDULER_POLICY.context(request, view, NOW)
    decision = decide_in([context], [SCHEDULER_POLICY])
    return {
        name: _plain(next((each.reason(row) for each in decision.filters if each.rejects[row]), ""))
        for row, name in enumerate(view.names)
        if view.valid[row]
    }


def _asks_what_is_not(pod: Json) -> bool:
    """Return whether a pod selects namespaces by what their labels are not.

    Before 1.37 the scheduler takes this to select all of them: it unrolls the selector into a copy
    of the term (mergeAffinityTermNamespacesIfNotEmpty in interpodaffinity/plugin.go).
    """
    sides = (pod["spec"].get("affinity", {}).get(side, {}) for side in _SIDES)
    terms = (term for side in sides for term in side.get(_REQUIRED, ()))
    return any("matchExpressions" in term.get("namespaceSelector", {}) for term in terms)


def _counted(message: str) -> dict[str, int]:
    """Return the numbers of nodes by reason in `0/3 nodes are available: 1 ..., 2 .... more`."""
    listed = message.partition(": ")[2].partition(". ")[0].removesuffix(".")
    return {reason: int(number) for number, reason in re.findall(r"(\d+) ([^,]+)", listed)}


def _plain(reason: str) -> str:
    """Return a reason as the scheduler gives it, which does not name the taint."""
    return TAINT if reason.startswith("node(s) had untolerated taint") else reason


async def _verdict(cluster: Cluster, pod: Json) -> str:
    """Return what the scheduler says of a pod that it has considered."""
    metadata = pod["metadata"]

    async def message() -> str:
        found = await cluster.get("pods", metadata["name"], metadata["namespace"])
        conditions = found["status"].get("conditions", ())
        texts = [each["message"] for each in conditions if each["type"] == "PodScheduled"]
        return "".join(texts)

    return await eventually(message, f"pod {metadata['name']} is considered")


@asynccontextmanager
async def _created(world: PlainCluster, cluster: Cluster, nodes: Nodes) -> AsyncIterator[None]:
    """Create namespaces, nodes, and pods that are on them; they go when the block is left."""
    for name, labels in world.namespaces.items():
        await create_namespaces(cluster, name)
        await cluster.patch("namespaces", name, {"metadata": {"labels": labels}})
    for node in world.nodes:
        metadata, taints = node["metadata"], tuple(node["spec"]["taints"])
        await nodes.add(metadata["name"], {"cpu": "64"}, labels=metadata["labels"], taints=taints)
    for pod in world.pods:
        await cluster.create(pod)
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            await cluster.delete("pods", metadata["name"], metadata["namespace"])
    try:
        yield
    finally:
        await asyncio.gather(*(_emptied(cluster, name) for name in world.namespaces))


async def _emptied(cluster: Cluster, namespace: str) -> None:
    async def empty() -> bool:
        await cluster.delete_all("pods", namespace, grace_seconds=0)
        left = await cluster.list_all("pods", namespace)
        for pod in left:
            if "finalizers" in pod["metadata"]:
                patch = {"metadata": {"finalizers": None}}
                await cluster.patch("pods", pod["metadata"]["name"], patch, namespace)
        return not left

    await eventually(empty, f"namespace {namespace} is empty")
    await cluster.delete("namespaces", namespace)


def _renamed(world: PlainCluster, prefix: str) -> PlainCluster:
    """Return a cluster in namespaces of this test."""
    return PlainCluster(
        world.nodes,
        [_renamed_pod(pod, prefix) for pod in world.pods],
        {name.replace("neighbours", prefix): labels for name, labels in NAMESPACES.items()},
    )


def _renamed_pod(pod: Json, prefix: str) -> Json:
    renamed: Json = json.loads(json.dumps(pod).replace("neighbours", prefix))
    return renamed
