"""New pods, which the API server asks about only while some policy has anything to say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.advice import first_choice
from tests.e2e.chart import CONFIGURATIONS, Release
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.nodes import Nodes
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod

_ADVISING: Json = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "PlacementPolicy",
    "metadata": {"name": "advising"},
    "spec": {"scores": [{"name": "a-first", "expression": "node.name == 'node-a' ? 100 : 0"}]},
}


@pytest.mark.usefixtures("crds")
async def test_new_pods_are_asked_about_while_a_policy_has_something_to_say(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    await nodes.add("node-b")

    async def conditions() -> list[str]:
        webhooks = (await cluster.get(CONFIGURATIONS[0], release.name))["webhooks"]
        (found,) = (one for one in webhooks if one["name"] == "placement.stowplan.dev")
        return [each["name"] for each in found.get("matchConditions", ())]

    async def is_left_alone() -> bool:
        return bool(await conditions())

    async def is_advised() -> bool:
        made = await cluster.create(pod(shop, "tried"), dry_run=True)
        return first_choice(made) == "node-a"

    async with fronting([]) as front:
        url = f"https://{LOCAL}:{front.port}"
        values = values_beside(url, "node-b", binding={"enabled": True, "url": url})
        at_binding = {"placement": {"at": "Binding"}, **_ADVISING["spec"]}
        later = {**_ADVISING, "metadata": {"name": "later"}, "spec": at_binding}
        values["policies.inline"] = {"later": later}
        await release.change(**values)
        arguments = (release, control_plane)
        serving = chart_replicas(*arguments, tmp_path / "serve", count=1, values=values)
        address = [("pod-ips", "10.0.0.1")]
        control = chart_control(*arguments, tmp_path / "control", values=values, more=address)
        front.targets = [serving[0].port]
        async with running([*serving, *control]):
            await eventually(is_left_alone, "new pods are left alone")

            async def passes_unseen() -> bool:
                before = sum((await serving[0].reviews("mutate")).values())
                await cluster.create(pod(shop, "tried"), dry_run=True)
                return before == sum((await serving[0].reviews("mutate")).values())

            await eventually(passes_unseen, "the API server has taken it up")
            # Whoever installs the chart again does not fight with the leader.
            await release.change(**{**values, "commonLabels": {"again": "yes"}})
            assert await is_left_alone()
            await cluster.create(_ADVISING)
            try:
                await eventually(is_advised, "new pods are advised again")
                assert not await is_left_alone()
            finally:
                await cluster.delete("placementpolicies.stowplan.dev", "advising")
            await eventually(is_left_alone, "new pods are left alone again")
