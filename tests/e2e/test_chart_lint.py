"""Policies with mistakes: an upgrade that brings them changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.chart import HelmError, Release, rendered
from tests.e2e.chart_pods import linted, started_pod
from tests.e2e.cluster import Cluster, Json
from tests.e2e.nodes import Nodes, finish

_BAD = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "PlacementPolicy",
    "metadata": {"name": "mistaken"},
    "spec": {"filters": [{"name": "typo", "expression": "node.nme == 'a'"}]},
}


@pytest.mark.parametrize("bad", [True, False])
async def test_an_upgrade_with_a_bad_policy_fails_before_anything_changes(
    cluster: Cluster, nodes: Nodes, release: Release, *, bad: bool
) -> None:
    await nodes.add("node-a")
    policies = {"mistaken": _BAD} if bad else {}
    upgrade = asyncio.create_task(
        release.change_with_hooks(**{"policies.inline": policies, "replicas": 5})
    )
    pod = await started_pod(cluster, release.namespace, f"{release.name}-lint")
    code, said = await linted(cluster, pod)
    name = pod["metadata"]["name"]
    if bad:
        assert (code, "mistaken.yaml" in said, "`nme`" in said) == (3, True, True), said
        await finish(cluster, release.namespace, name, failed=True)
        with pytest.raises(HelmError, match="pre-upgrade"):
            await upgrade
    else:
        assert code == 0, said
        await finish(cluster, release.namespace, name)
        await upgrade
    deployment = await cluster.get("deployments", release.name, release.namespace)
    assert deployment["spec"]["replicas"] == (3 if bad else 5)


def test_policies_of_an_own_config_map_are_checked_too() -> None:
    manifests = rendered(values={"policies.existingConfigMap": "ours"})
    hooks = [one for one in manifests if one["metadata"]["name"] == "stowplan-lint"]
    (job,) = hooks
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["name"] == "ours"


@pytest.mark.parametrize(
    "values", [{"policies.lint": False}, {"placement.mode": "Off"}, {"policies.shipped": []}]
)
def test_nothing_is_checked_where_nothing_is_loaded_or_it_is_switched_off(values: Json) -> None:
    names = {one["metadata"]["name"] for one in rendered(values=values)}
    assert "stowplan-lint" not in names
