"""PodGroups on a real API server: their definition, holds of their pods, and their status."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model.gang import POD_GROUP_LABEL
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.definitions import DEFINITIONS, defined, definition_of_the_chart
from tests.e2e.installed import installed
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import pod

_GROUPS = "podgroups.scheduling.x-k8s.io"


@pytest.fixture
async def definition(cluster: Cluster) -> AsyncIterator[Json]:
    """The definition that the chart brings, installed for this test."""
    found = definition_of_the_chart(_GROUPS)
    async with defined(cluster, found):
        yield found


def _pod_group(namespace: str, **spec: object) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": spec,
    }


def _member(namespace: str, name: str, pod_group: str = "train") -> Json:
    member = pod(namespace, name)
    member["metadata"]["labels"] = {POD_GROUP_LABEL: pod_group}
    return member


async def test_the_definition_checks_what_a_pod_group_says(
    cluster: Cluster, definition: Json, namespace: str
) -> None:
    stored = await cluster.get(DEFINITIONS, definition["metadata"]["name"])
    conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions
    for spec in (
        {"minMember": 0},
        {"minMember": 2, "minResources": {"cpu": "lots"}},
        {"minMember": 2, "scheduleTimeoutSeconds": -1},
    ):
        with pytest.raises(CallError) as refused:
            await cluster.create(_pod_group(namespace, **spec))
        assert refused.value.status == 422
    resources = {"cpu": "64", "example.com/gpu": 8}
    await cluster.create(
        _pod_group(namespace, minMember=8, minResources=resources, scheduleTimeoutSeconds=300)
    )


@pytest.mark.usefixtures("definition")
async def test_members_are_held_until_enough_exist_and_their_group_tells_how_far_they_are(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})

    async def phase() -> Json:
        stored = await cluster.get(_GROUPS, "train", namespace)
        status: Json = stored.get("status", {})
        return status

    async def reaches(expected: str, **counts: int) -> None:
        async def reached() -> bool:
            status = await phase()
            assert status.get("phase") == expected, status
            assert counts.items() <= status.items(), status
            return True

        await eventually(reached, f"the PodGroup is {expected}")

    async def is_bound(name: str) -> bool:
        stored = await cluster.get("pods", name, namespace)
        return bool(stored["spec"].get("nodeName"))

    options = [("hold", "true")]
    async with installed(cluster, control_plane, tmp_path, [], options=options):

        async def holds() -> bool:
            tried = await cluster.create(_member(namespace, "tried"), dry_run=True)
            return bool(tried["spec"].get("schedulingGates"))

        await cluster.create(_pod_group(namespace, minMember=2))
        await eventually(holds, "members are held")
        held = await cluster.create(_member(namespace, "m-0"))
        assert held["spec"]["schedulingGates"] == [{"name": HOLD_GATE}]
        assert held["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == "gang"
        await reaches("Pending")
        assert not await is_bound("m-0")

        await cluster.create(_member(namespace, "m-1"))
        await eventually(lambda: is_bound("m-0"), "the first member is bound")
        await eventually(lambda: is_bound("m-1"), "the second one is")
        await reaches("Running", running=2)
        # Pods that have finished are not watched.
        for name in ("m-0", "m-1"):
            status = {"status": {"phase": "Succeeded"}}
            await cluster.patch("pods", name, status, namespace, subresource="status")
        await reaches("Finished", succeeded=2)

        # No PodGroup of this name ever appears.
        await cluster.create(_member(namespace, "alone", "missing"))
        await eventually(lambda: is_bound("alone"), "a pod without its PodGroup starts alone")
