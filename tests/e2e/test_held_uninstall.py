"""Held pods are switched off or uninstalled: whoever is held runs, and no gate is left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from engine.model.hold import HOLD_GATE
from tests.e2e.chart import CONFIGURATIONS, HelmError, Release
from tests.e2e.chart_pods import run_container, started_pod
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.nodes import Nodes, finish
from tests.e2e.workloads import pod

_HELD = {"hold": {"enabled": True}, "placement": {"mode": "Enforce"}}
_FOREIGN = "example.com/gate"


async def _hold(cluster: Cluster, namespace: str, *names: str, more: tuple[str, ...] = ()) -> None:
    async def create(name: str) -> None:
        made = pod(namespace, name, requests={"cpu": "1m"})
        made["spec"]["schedulingGates"] = [{"name": gate} for gate in (HOLD_GATE, *more)]
        await cluster.create(made)

    await asyncio.gather(*(create(name) for name in names))


async def _gates(cluster: Cluster, namespace: str) -> dict[str, list[str]]:
    return {
        one["metadata"]["name"]: [gate["name"] for gate in one["spec"]["schedulingGates"]]
        for one in await cluster.list_all("pods", namespace)
        if "schedulingGates" in one["spec"]
    }


async def _all_run(cluster: Cluster, namespace: str) -> bool:
    pods = await cluster.list_all("pods", namespace)
    return all(one["status"]["phase"] == "Running" for one in pods)


async def test_of_200_held_pods_all_run_after_an_uninstall_and_no_gate_is_left(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a", {"pods": "400"})
    guard = {"enabled": True, "breakGlassGroups": []}
    await release.change(hold={"enabled": True, "gateGuard": guard}, placement={"mode": "Enforce"})
    await _hold(cluster, shop, *(f"held-{number}" for number in range(200)))
    await _hold(cluster, shop, "both", more=(_FOREIGN,))
    hook = f"{release.name}-uninstall"
    uninstalling = asyncio.create_task(release.uninstall())
    job = await started_pod(cluster, release.namespace, hook)

    async def run(container: Json) -> tuple[int | None, str]:
        return await run_container(cluster, control_plane, release, hook, container, tmp_path)

    (remove,) = job["spec"]["initContainers"]
    code, said = await run(remove)
    assert code == 0, said
    for kind in CONFIGURATIONS:  # nobody is held any more
        assert release.name not in {one["metadata"]["name"] for one in await cluster.list_all(kind)}
    (releasing,) = job["spec"]["containers"]
    code, said = await run(releasing)
    assert (code, said) == (0, "released 201 pods\n")
    assert await _gates(cluster, shop) == {"both": [_FOREIGN]}
    await cluster.delete("pods", "both", shop)
    await eventually(lambda: _all_run(cluster, shop), "all pods run")
    assert len(await cluster.list_all("pods", shop)) == 200

    await finish(cluster, release.namespace, job["metadata"]["name"])
    await uninstalling
    for kind in ("clusterroles", "clusterrolebindings", "validatingadmissionpolicies"):
        left = {one["metadata"]["name"] for one in await cluster.list_all(kind)}
        assert not {name for name in left if name.startswith(release.name)}
    for namespace in (release.namespace, "kube-system"):
        left = {one["metadata"]["name"] for one in await cluster.list_all("roles", namespace)}
        assert not {name for name in left if name.startswith(release.name)}


async def _deny_releases(cluster: Cluster, name: str, namespace: str) -> None:
    """Have somebody else's admission refuse the release of pods that are called `stuck`."""
    group = "admissionregistration.k8s.io"
    await cluster.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["UPDATE"],
                            "resources": ["pods"],
                        }
                    ]
                },
                "validations": [
                    {"expression": "object.metadata.name != 'stuck'", "message": "not this one"}
                ],
            },
        }
    )
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    await cluster.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": selector},
            },
        }
    )

    async def denies() -> bool:
        touched = {"metadata": {"annotations": {"touched": "yes"}}}
        try:
            await cluster.patch("pods", "stuck", touched, namespace, dryRun="All")
        except CallError as refused:
            return "not this one" in refused.message
        return False

    await eventually(denies, "releases are refused")


async def test_an_uninstall_that_leaves_a_gate_fails_and_says_what_removes_it(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    await release.change(**_HELD)
    await _hold(cluster, shop, "stuck", "free")
    await _deny_releases(cluster, release.name, shop)
    hook = f"{release.name}-uninstall"
    uninstalling = asyncio.create_task(release.uninstall())
    try:
        job = await started_pod(cluster, release.namespace, hook)
        (releasing,) = job["spec"]["containers"]
        assert releasing["terminationMessagePolicy"] == "FallbackToLogsOnError"
        code, said = await run_container(cluster, control_plane, release, hook, releasing, tmp_path)
        assert code == 2, said
        assert "released 1 pod\n" in said
        assert f"{shop}/stuck" in said
        assert "not this one" in said
        assert f"kubectl patch pod stuck --namespace {shop} --type strategic" in said
        assert await _gates(cluster, shop) == {"stuck": [HOLD_GATE]}
        # As often as the Job may: then Helm gives up, and all that could release is still there.
        patch = {"spec": {"activeDeadlineSeconds": 1}}
        await cluster.patch("jobs", hook, patch, release.namespace)
        with pytest.raises(HelmError, match="DeadlineExceeded"):
            await uninstalling
        await cluster.get("cronjobs", f"{release.name}-deadman", release.namespace)
    finally:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await cluster.delete(kind, release.name)


async def test_whoever_is_held_when_held_pods_are_switched_off_is_released(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    await release.change(**_HELD)
    await _hold(cluster, shop, "a", "b")
    hook = f"{release.name}-unhold"
    upgrading = asyncio.create_task(release.change_with_hooks(**{"policies.lint": False}))
    job = await started_pod(cluster, release.namespace, hook)
    (releasing,) = job["spec"]["containers"]
    code, said = await run_container(cluster, control_plane, release, hook, releasing, tmp_path)
    assert (code, said) == (0, "released 2 pods\n")
    await finish(cluster, release.namespace, job["metadata"]["name"])
    await upgrading
    await eventually(lambda: _all_run(cluster, shop), "both pods run")
    # Nothing is left of the rights, and the next upgrade has nothing to do.
    for kind in ("clusterroles", "validatingadmissionpolicies"):
        left = json.dumps([one["metadata"]["name"] for one in await cluster.list_all(kind)])
        assert f"{release.name}-deadman" not in left
        assert f"{release.name}-held-pods" not in left
        assert hook not in left
    await release.change_with_hooks(**{"policies.lint": False})
