"""Policies of the API: an installation that takes them, and how `kubectl apply` writes them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.advice import first_choice
from tests.e2e.chart import Release, released
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.installed import review_of
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod
from tests.webhook.contract import patched

CLUSTER_POLICIES = "placementpolicies"
NAMESPACED_POLICIES = "namespacedplacementpolicies"
_OF_KUBECTL = {"fieldManager": "kubectl-client-side-apply", "fieldValidation": "Strict"}
_NAMESPACE = "policy-api"


@dataclass(frozen=True, slots=True)
class Installation:
    """A release with replicas beside the cluster.

    Attributes:
        release: as installed.
        replicas: three.
        values: the release was installed with.
    """

    release: Release
    replicas: list[Replica]
    values: Mapping[str, object]


@asynccontextmanager
async def installed_policies(
    control_plane: ControlPlane, folder: Path
) -> AsyncIterator[Installation]:
    """Install the chart with three replicas, asked about policies, until the block is left."""
    async with (
        connected(control_plane) as cluster,
        fronting([]) as front,
        passing_namespaces(cluster, _NAMESPACE),
        released(cluster, control_plane, _NAMESPACE) as release,
    ):
        values = values_beside(f"https://{LOCAL}:{front.port}", "node-a")
        await release.change(**values)
        replicas = chart_replicas(release, control_plane, folder / "three", count=3, values=values)
        control = chart_control(release, control_plane, folder / "control", values=values)
        async with running([*replicas, *control]):
            front.targets = [replica.port for replica in replicas]
            await eventually(lambda: are_checked(cluster), "policies are checked")
            yield Installation(release, replicas, values)


def policy(name: str, spec: Json, namespace: str = "") -> Json:
    """Return a policy of the cluster, or of a namespace."""
    return {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "NamespacedPlacementPolicy" if namespace else "PlacementPolicy",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }


def prefers(node: str, weight: int = 10) -> Json:
    """Return the spec of a policy that prefers a node."""
    expression = f"node.name == '{node}' ? 100 : 0"
    return {"scores": [{"name": "chosen", "expression": expression, "weight": weight}]}


BROKEN = {"filters": [{"name": "typo", "expression": "node.ready && nod.name != 'a'"}]}


def _path(obj: Json, *, with_name: bool = False) -> str:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    within = (
        f"/namespaces/{namespace}/{NAMESPACED_POLICIES}" if namespace else f"/{CLUSTER_POLICIES}"
    )
    return f"/apis/stowplan.dev/v1alpha1{within}" + (f"/{metadata['name']}" if with_name else "")


async def apply(cluster: Cluster, obj: Json, **params: str) -> Json:
    """Create an object as `kubectl apply` does."""
    created: Json = await cluster.call("POST", _path(obj), obj, params={**_OF_KUBECTL, **params})
    return created


async def change(cluster: Cluster, obj: Json, change: Json, **params: str) -> Json:
    """Change an object as `kubectl apply` does."""
    changed: Json = await cluster.call(
        "PATCH",
        _path(obj, with_name=True),
        change,
        params={**_OF_KUBECTL, **params},
        content_type="application/merge-patch+json",
    )
    return changed


async def refused(cluster: Cluster, obj: Json, **params: str) -> CallError:
    """Return the refusal of an object."""
    with pytest.raises(CallError) as refusal:
        await apply(cluster, obj, **params)
    return refusal.value


async def are_checked(cluster: Cluster) -> bool:
    """Return whether a broken policy is refused by us."""
    try:
        await apply(cluster, policy("tried", BROKEN), dryRun="All")
    except CallError as refusal:
        return "policies.stowplan.dev" in refusal.message
    return False


async def choices(installation: Installation, namespace: str) -> list[str]:
    """Return the node that each replica advises a new pod of a namespace to take, "" for none."""
    review = review_of(pod(namespace, "tried"))
    answers = [await replica.review("/mutate", review) for replica in installation.replicas]
    assert all(answer["allowed"] for answer in answers)
    reviews = [patched(review, answer) if "patch" in answer else review for answer in answers]
    return [first_choice(answered["request"]["object"]) for answered in reviews]


async def become(installation: Installation, namespace: str, node: str) -> float:
    """Wait until every replica advises a node; return how many seconds that took."""
    began = time.monotonic()

    async def chosen() -> bool:
        found = await choices(installation, namespace)
        assert found == [node] * len(installation.replicas), found
        return True

    await eventually(chosen, f"every replica advises {node} in {namespace}")
    return time.monotonic() - began
