"""New pods are made offline as a real API server makes them, field by field."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest

from engine.builtin_admission import BuiltinAdmission
from engine.model.kinds import KINDS, AuxObject
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.features import is_on
from tests.e2e.workloads import pod

_KINDS: Final = ("limitranges", "priorityclasses.scheduling.k8s.io", "runtimeclasses.node.k8s.io")
_STORED: Final = (
    "creationTimestamp",
    "uid",
    "managedFields",
    "generation",
    "resourceVersion",
)
_PORT: Final = {"containerPort": 8080}
_LIMITED: Final = {"limits": {"cpu": "3"}}
_HUGE: Final = {"hugepages-2Mi": "4Mi"}

_PODS: Final[dict[str, Json]] = {
    "bare": {},
    "limits": {
        "containers": [{"name": "a", "image": "x:1", "resources": {"limits": {"cpu": "3"}}}]
    },
    "init": {"initContainers": [{"name": "i", "image": "x:latest"}]},
    "host-network": {
        "hostNetwork": True,
        "containers": [{"name": "a", "image": "host:5000/x", "ports": [_PORT]}],
    },
    "ports": {"containers": [{"name": "a", "image": "x@sha256:" + 64 * "0", "ports": [_PORT]}]},
    "class": {"priorityClassName": "e2e-gold"},
    "system": {"priorityClassName": "system-cluster-critical"},
    "kata": {"runtimeClassName": "e2e-kata", "nodeSelector": {"disk": "ssd"}},
    "kata-tolerant": {
        "runtimeClassName": "e2e-kata",
        "tolerations": [
            {"key": "sandbox", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            {"key": "other", "operator": "Exists"},
        ],
    },
    "tolerates-all": {"tolerations": [{"operator": "Exists"}]},
    "pod-level": {
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
        "containers": [
            {"name": "a", "image": "x", "resources": {"requests": {"cpu": "300m"}}},
            {"name": "b", "image": "x", "resources": {"requests": {"cpu": "400m"}}},
        ],
    },
    "pod-level-huge": {
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
        "containers": [{"name": "a", "image": "x", "resources": {"limits": _HUGE}}],
    },
    "own-way": {
        "schedulerName": "other",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "dnsPolicy": "Default",
        "enableServiceLinks": False,
    },
}


@pytest.fixture
async def objects(cluster: Cluster, namespace: str) -> AsyncIterator[list[AuxObject]]:
    """What changes pods, as it is recorded from the API server."""
    made: list[Json] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "e2e-gold"},
            "value": 1000,
            "preemptionPolicy": "Never",
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "e2e-plain"},
            "value": 7,
            "globalDefault": True,
        },
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "e2e-kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
            "scheduling": {
                "nodeSelector": {"runtime": "kata"},
                "tolerations": [{"key": "sandbox", "operator": "Exists"}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "defaults", "namespace": namespace},
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "default": {"cpu": "2"},
                        "defaultRequest": {"cpu": "500m"},
                        "min": {"memory": "1Mi"},
                        "max": {"memory": "64Mi"},
                    }
                ]
            },
        },
    ]
    for each in made:
        await cluster.create(each)
    try:
        yield await _recorded(cluster)
    finally:
        for each in made[:3]:
            group, plural = each["apiVersion"], f"{each['kind'].lower()}es"
            await cluster.call("DELETE", f"/apis/{group}/{plural}/{each['metadata']['name']}")


async def _recorded(cluster: Cluster) -> list[AuxObject]:
    found: list[AuxObject] = []
    for kind in KINDS:
        if kind.name in _KINDS:
            listed = await cluster.call("GET", kind.path)
            found += (kind.decode(msgspec.convert(one, kind.wire)) for one in listed["items"])
    return found


def _without_the_account(manifest: Any) -> Json:  # noqa: ANN401 - JSON
    """Return a pod without what is stored with it, and without the token of its account."""
    metadata = {key: text for key, text in manifest["metadata"].items() if key not in _STORED}
    spec = {key: value for key, value in manifest["spec"].items() if key != "volumes"}
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [
                {name: value for name, value in one.items() if name != "volumeMounts"}
                for one in spec[key]
            ]
    return {"metadata": metadata, "spec": spec}


async def test_new_pods_are_made_as_the_api_server_makes_them(
    cluster: Cluster, namespace: str, objects: list[AuxObject]
) -> None:
    path, admission = f"/api/v1/namespaces/{namespace}/pods", BuiltinAdmission(objects)

    async def sees_all() -> bool:
        tried = pod(namespace, "tried")
        tried["spec"] |= {"priorityClassName": "e2e-gold", "runtimeClassName": "e2e-kata"}
        made = await cluster.call("POST", path, tried, params={"dryRun": "All"})
        return "kubernetes.io/limit-ranger" in made["metadata"].get("annotations", {})

    await eventually(sees_all, "the API server knows what changes pods")
    are_pod_level_last = await is_on(cluster, "PodLevelResourcesFixDefaulting")
    for name, more in _PODS.items():
        written = pod(namespace, name)
        written["spec"] = {"containers": [{"name": "a", "image": "x"}], **more}
        made = await cluster.call("POST", path, written, params={"dryRun": "All"})
        ours = admission.admit(written, namespace=namespace)
        expected, found = _without_the_account(ours.manifest), _without_the_account(made)
        if are_pod_level_last:  # by the limits of the namespace too; ours are those of 1.36
            for each in (expected, found):
                each["spec"].pop("resources", None)
        assert expected == found, name
        assert not ours.notes
