"""Somebody else's admission that refuses to release pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.workloads import pod


@asynccontextmanager
async def refusing_releases(
    cluster: Cluster, namespace: str, reason: str = ""
) -> AsyncIterator[None]:
    """Have a ValidatingAdmissionPolicy refuse that gates come off in a namespace.

    Args:
        cluster: as its admin.
        namespace: of the pods.
        reason: of the refusals; empty for `Invalid`, 422.
    """
    name = f"{namespace}-no-release"
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    gates = "size({}.spec.?schedulingGates.orValue([]))"
    expression = f"{gates.format('object')} == {gates.format('oldObject')}"
    validation: Json = {"expression": expression, "message": "nobody releases here"}
    if reason:
        validation["reason"] = reason
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    await cluster.create(
        {
            **kind,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{**pods, "operations": ["UPDATE"]}]},
                "validations": [validation],
            },
        }
    )
    await cluster.create(
        {
            **kind,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": here},
            },
        }
    )
    probe = pod(namespace, "probe")
    probe["spec"]["schedulingGates"] = [{"name": "example.com/probe"}]
    await cluster.create(probe)
    remove = [{"op": "remove", "path": "/spec/schedulingGates"}]

    async def is_in_force() -> bool:
        try:
            await cluster.patch("pods", "probe", remove, namespace, how="json", dryRun="All")
        except CallError as refused:
            return "nobody releases here" in refused.message
        return False

    try:
        await eventually(is_in_force, "the policy is in force")
        await cluster.delete("pods", "probe", namespace)
        yield
    finally:
        for resource in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await cluster.delete(resource, name)
