"""The queue of held pods as people see it: in order, with reasons, while it moves and after."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.model.hold import QUEUED_CONDITION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import NAME, NAMESPACE, Installed, installed
from tests.e2e.nodes import Nodes
from tests.e2e.test_held_release import POLICY, all_bound, is_held
from tests.e2e.workloads import pod

_STOWPLAN = Path(sys.executable).with_name("stowplan")
_NOBODY_RELEASES = "gates stay where they are"
_SETTINGS = (
    ("hold", "true"),
    ("hold-seconds", "900"),
    ("queue-sort", "QOSSort"),
)


@asynccontextmanager
async def holding(
    cluster: Cluster, control_plane: ControlPlane, folder: Path
) -> AsyncIterator[Installed]:
    """Install stowplan, which releases pods one by one in the order of QOSSort."""
    policy = folder / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    async with installed(cluster, control_plane, folder, [policy], options=_SETTINGS) as stowplan:
        await cluster.create(_deployment())
        try:
            yield stowplan
        finally:
            await cluster.delete("deployments", NAME, NAMESPACE)


def _deployment() -> Json:
    """Return the Deployment whose settings commands read; its replicas run elsewhere."""
    environment = [{"name": "STOWPLAN_QUEUE_SORT", "value": "QOSSort"}]
    labels = {"app": NAME}
    container = {"name": "webhook", "image": "none", "env": environment}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def _queue(control_plane: ControlPlane, *arguments: str) -> tuple[int | None, Json]:
    """Run `stowplan queue`; return its exit status, and the report."""
    process = await asyncio.create_subprocess_exec(
        *(_STOWPLAN, "queue", "--json", "--kubeconfig", control_plane.kubeconfig()),
        *arguments,
        stdout=PIPE,
    )
    out, _ = await process.communicate()
    return process.returncode, json.loads(out)


async def _condition(cluster: Cluster, namespace: str, name: str) -> Json:
    found = await cluster.get("pods", name, namespace)
    conditions: list[Json] = found["status"].get("conditions", [])
    own = [each for each in conditions if each["type"] == QUEUED_CONDITION]
    assert len(own) == 1, conditions
    return own[0]


async def test_the_queue_is_shown_in_order_and_ends_in_it(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "8", "memory": "8Gi"})
    async with holding(cluster, control_plane, tmp_path):
        await is_held(cluster, namespace)
        control_plane.scheduler.pause()
        try:
            await cluster.create(pod(namespace, "first"))

            async def is_released() -> bool:
                found = await cluster.get("pods", "first", namespace)
                return "schedulingGates" not in found["spec"]

            await eventually(is_released, "the first pod is released")
            await cluster.create(pod(namespace, "plain"))
            guaranteed = pod(namespace, "guaranteed")
            amounts = {"cpu": "1", "memory": "1Gi"}
            for container in guaranteed["spec"]["containers"]:
                container["resources"] = {"requests": amounts, "limits": amounts}
            await cluster.create(guaranteed)

            # While the scheduler binds nothing, both wait for the first; the later one goes first.
            async def report_of_both() -> Json | None:
                status, report = await _queue(control_plane, "--namespace", namespace)
                assert status == 0, report
                return report if report["held"] == 2 else None

            report = await eventually(report_of_both, "both pods wait")
            assert report is not None
            assert report["queueSort"] == "QOSSort"
            places = [(each["pod"]["name"], each["place"]) for each in report["pods"]]
            assert places == [("guaranteed", 1), ("plain", 2)]
            assert report["releaser"]["releasing"] is True

            async def is_told() -> bool:
                condition = await _condition(cluster, namespace, "plain")
                assert condition["status"] == "True", condition
                assert condition["reason"] == "WaitingForBindings", condition
                return bool(await _condition(cluster, namespace, "guaranteed"))

            await eventually(is_told, "the pods say that they wait")
        finally:
            control_plane.scheduler.resume()

        await all_bound(cluster, namespace, 3)
        for name in ("guaranteed", "plain"):
            condition = await _condition(cluster, namespace, name)
            assert (condition["status"], condition["reason"]) == ("False", "Released"), condition
        _, report = await _queue(control_plane)
        assert report["held"] == 0


async def test_a_refused_release_is_told_by_condition_event_and_queue(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "8", "memory": "8Gi"})
    async with holding(cluster, control_plane, tmp_path):
        await is_held(cluster, namespace)
        async with _refusing(cluster, namespace):
            await cluster.create(pod(namespace, "refused"))

            async def is_told() -> bool:
                condition = await _condition(cluster, namespace, "refused")
                assert condition["reason"] == "ReleaseRefused", condition
                return _NOBODY_RELEASES in condition["message"]

            # What it waits for changes a minute after the first condition at the earliest.
            await eventually(is_told, "the condition says who refuses", within=120)

            async def has_event() -> bool:
                events = await cluster.list_all("events", namespace)
                found = [each for each in events if each["reason"] == "ReleaseRefused"]
                return any(_NOBODY_RELEASES in each["message"] for each in found)

            await eventually(has_event, "an Event says who refuses")

            async def is_shown() -> bool:
                _, report = await _queue(control_plane, f"{namespace}/refused")
                (shown,) = report["pods"]
                assert shown["reason"] == "ReleaseRefused", shown
                return _NOBODY_RELEASES in shown["message"]

            # Each attempt says first that the pod is released, and then that it is refused again.
            await eventually(is_shown, "the queue says who refuses")
        await all_bound(cluster, namespace, 1)


@asynccontextmanager
async def _refusing(cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    """Have an admission of somebody else refuse that gates are removed in a namespace."""
    group, name = "admissionregistration.k8s.io/v1", f"gates-{namespace}"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["pods"],
    }
    removed = "size(object.spec.?schedulingGates.orValue([]))"
    before = "size(oldObject.spec.?schedulingGates.orValue([]))"
    await cluster.create(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [
                    {"expression": f"{removed} >= {before}", "message": _NOBODY_RELEASES}
                ],
            },
        }
    )
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    await cluster.create(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": selector},
            },
        }
    )
    try:
        await _is_in_force(cluster, namespace)
        yield
    finally:
        await cluster.delete("validatingadmissionpolicybindings", name)
        await cluster.delete("validatingadmissionpolicies", name)


async def _is_in_force(cluster: Cluster, namespace: str) -> None:
    gated = pod(namespace, "gated")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    await cluster.create(gated)
    without = [{"op": "remove", "path": "/spec/schedulingGates/0"}]

    async def is_refused() -> bool:
        try:
            await cluster.patch("pods", "gated", without, namespace, how="json", dryRun="All")
        except CallError as refused:
            return _NOBODY_RELEASES in refused.message
        return False

    await eventually(is_refused, "the policy is in force")
    await cluster.delete("pods", "gated", namespace, grace_seconds=0)
