"""Policies with mistakes: an upgrade that brings them changes nothing."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from tests.e2e.chart import HelmError, Release, rendered
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.nodes import Nodes, finish

_BAD = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "PlacementPolicy",
    "metadata": {"name": "mistaken"},
    "spec": {"filters": [{"name": "typo", "expression": "node.nme == 'a'"}]},
}


async def _linted(cluster: Cluster, pod: Json, folder: Path) -> tuple[int | None, str]:
    """Do what the Job's container does, with the files that its pod mounts."""
    (container,) = pod["spec"]["containers"]
    (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == "policies")
    namespace = pod["metadata"]["namespace"]
    files = await cluster.get("configmaps", volume["configMap"]["name"], namespace)
    for name, text in files["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    command, path = container["args"]
    assert path == container["volumeMounts"][0]["mountPath"]
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("stowplan"), command, folder), stdout=PIPE, stderr=STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


@pytest.mark.parametrize("bad", [True, False])
async def test_an_upgrade_with_a_bad_policy_fails_before_anything_changes(
    cluster: Cluster, nodes: Nodes, release: Release, tmp_path: Path, *, bad: bool
) -> None:
    await nodes.add("node-a")
    policies = {"mistaken": _BAD} if bad else {}
    upgrade = asyncio.create_task(
        release.change_with_hooks(**{"policies.inline": policies, "replicas": 5})
    )
    selector = f"job-name={release.name}-lint"

    async def started() -> Json | None:
        pods = await cluster.list_all("pods", release.namespace, labelSelector=selector)
        return next((one for one in pods if one["status"]["phase"] == "Running"), None)

    pod = await eventually(started, "the Job runs")
    assert pod is not None
    code, said = await _linted(cluster, pod, tmp_path)
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
