"""Record what a real API server sends: `python -m tests.e2e.capture_reviews`.

Starts a control plane, lets people and controllers do what they do to pods, and writes the reviews
of both phases to `tests/webhook/reviews/recorded_*.json`, where the fast tests find them. What
differs from run to run (identities, times, generated names) is made the same, so a new recording
shows only what a new version of Kubernetes sends differently.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.build import executables
from tests.e2e.cluster import Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.namespaces import create_namespaces
from tests.e2e.nodes import nodes_of
from tests.e2e.reviewer import PHASES, Reviewer, reviewing, rule
from tests.e2e.workloads import (
    daemon_set,
    deployment,
    is_running,
    job,
    pod,
    stateful_set,
)

_TARGET = Path(__file__).parents[1] / "webhook" / "reviews"
_NAMESPACE = "shop"  # where the quota of the fast tests is
_RULES = [
    rule("", ["pods"], "CREATE", "UPDATE", "DELETE"),
    rule("", ["pods/binding", "pods/eviction"], "CREATE"),
    rule("", ["pods/ephemeralcontainers", "pods/resize"], "UPDATE"),
]
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FINGERPRINT = re.compile(r"X509SHA256=[0-9a-f]{64}")
_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
_VERSION = re.compile(r'"resourceVersion": "\d+"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One kind of request to find in the traffic.

    Attributes:
        name: of the file, after `recorded_`; the phase follows where the two differ.
        says: why it is worth a test.
        pod: what the pod's name, or the name it will be generated from, starts with.
        patched: whether a placement webhook has advice for it.
        operation: of the request.
        subresource: of the request.
    """

    name: str
    says: str
    pod: str
    patched: bool
    operation: str = "CREATE"
    subresource: str = ""

    def is_it(self, request: Json) -> bool:
        """Return whether this is the request."""
        metadata = (request["object"] or request["oldObject"])["metadata"]
        name: str = request.get("name") or metadata["generateName"]
        asked = (request["operation"], request.get("subResource", ""))
        return asked == (self.operation, self.subresource) and name.startswith(self.pod)


WANTED = (
    Recorded(name="bare_pod", pod="bare", patched=True, says="a person made the pod"),
    Recorded(
        name="generated_name", pod="any-", patched=True, says="a person left the name to the server"
    ),
    Recorded(name="deployment_pod", pod="web-", patched=True, says="a ReplicaSet made the pod"),
    Recorded(name="job_pod", pod="once-", patched=True, says="a Job made the pod"),
    Recorded(name="stateful_set_pod", pod="db-0", patched=True, says="a StatefulSet made the pod"),
    Recorded(
        name="daemon_set_pod", pod="agent-", patched=False, says="a DaemonSet's pod has its node"
    ),
    Recorded(name="gated_pod", pod="gated", patched=True, says="the scheduler must not look yet"),
    Recorded(name="dry_run", pod="tried", patched=True, says="nothing will be stored"),
    Recorded(
        name="update",
        pod="bare",
        patched=False,
        says="a label was added to a running pod",
        operation="UPDATE",
    ),
    Recorded(
        name="resize",
        pod="bare",
        patched=False,
        says="a running pod was given more",
        operation="UPDATE",
        subresource="resize",
    ),
    Recorded(
        name="ephemeral_container",
        pod="bare",
        patched=False,
        says="a running pod is debugged",
        operation="UPDATE",
        subresource="ephemeralcontainers",
    ),
    Recorded(
        name="binding",
        pod="bare",
        patched=False,
        says="the scheduler bound the pod",
        subresource="binding",
    ),
    Recorded(
        name="eviction",
        pod="bare",
        patched=False,
        says="the pod was evicted",
        subresource="eviction",
    ),
    Recorded(
        name="deletion", pod="gated", patched=False, says="the pod was deleted", operation="DELETE"
    ),
)


async def record(control_plane: ControlPlane) -> None:
    """Write every wanted review, of both phases."""
    async with (
        connected(control_plane) as cluster,
        reviewing(control_plane.authority) as reviewer,
        nodes_of(cluster) as nodes,
    ):
        await nodes.add("node-a")
        await create_namespaces(cluster, _NAMESPACE)
        async with (
            reviewer.asked(cluster, "Mutating", _NAMESPACE, _RULES),
            reviewer.asked(cluster, "Validating", _NAMESPACE, _RULES),
        ):
            await _create(cluster)
            await _change(cluster)
            for wanted in WANTED:
                _write(
                    wanted,
                    {each.lower(): await _found(reviewer, wanted, each.lower()) for each in PHASES},
                )


async def _create(cluster: Cluster) -> None:
    """Make pods in every way there is."""
    await cluster.create(pod(_NAMESPACE, "bare", requests={"cpu": "100m", "memory": "64Mi"}))
    generated = pod(_NAMESPACE, "")
    generated["metadata"] = {"namespace": _NAMESPACE, "generateName": "any-"}
    await cluster.create(generated)
    await cluster.create(deployment(_NAMESPACE, "web", replicas=1, requests={"cpu": "250m"}))
    await cluster.create(job(_NAMESPACE, "once"))
    await cluster.create(stateful_set(_NAMESPACE, "db", replicas=1))
    await cluster.create(daemon_set(_NAMESPACE, "agent"))
    gated = pod(_NAMESPACE, "gated")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    await cluster.create(gated)
    await cluster.create(pod(_NAMESPACE, "tried"), dry_run=True)


async def _change(cluster: Cluster) -> None:
    """Do to a running pod, and to one that waits, whatever can be done."""
    await eventually(lambda: is_running(cluster, _NAMESPACE, "bare"), "the pod runs")
    more = {"name": "main", "resources": {"requests": {"cpu": "200m"}}}
    debugger = {"name": "debugger", "image": "registry.example/debugger:1"}
    for patch, subresource in (
        ({"metadata": {"labels": {"seen": "yes"}}}, ""),
        ({"spec": {"containers": [more]}}, "resize"),
        ({"spec": {"ephemeralContainers": [debugger]}}, "ephemeralcontainers"),
    ):
        await cluster.patch(
            "pods", "bare", patch, _NAMESPACE, how="strategic", subresource=subresource
        )
        await eventually(lambda: _has_what_it_asks_for(cluster), "the pod is resized")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": _NAMESPACE, "name": "bare"},
    }
    await cluster.call("POST", f"/api/v1/namespaces/{_NAMESPACE}/pods/bare/eviction", eviction)
    await cluster.delete("pods", "gated", _NAMESPACE, grace_seconds=0)


async def _has_what_it_asks_for(cluster: Cluster) -> bool:
    """Return whether the kubelet reports the amounts that the pod asks for."""
    found = await cluster.get("pods", "bare", _NAMESPACE)
    (asked,), (status,) = found["spec"]["containers"], found["status"]["containerStatuses"]
    return bool(asked["resources"] == status["resources"])


async def _found(reviewer: Reviewer, wanted: Recorded, phase: str) -> Json:
    """Return the first review of a kind, once it came."""

    async def look() -> Json | None:
        reviews = (review for path, review in reviewer.reviews if path == f"/{phase}")
        return next((one for one in reviews if wanted.is_it(one["request"])), None)

    review = await eventually(look, f"{wanted.name}, {phase}")
    assert review is not None
    return review


def _write(wanted: Recorded, reviews: Mapping[str, Json]) -> None:
    """Write the review of each phase, or a single one where they are the same."""
    texts = {}
    for phase, review in reviews.items():
        case = {"says": wanted.says, "patched": wanted.patched, "review": review}
        texts[f"_{phase}"] = _without_chance(review, json.dumps(case, indent=1)) + "\n"
    if len({*texts.values()}) == 1:
        texts = {"": next(iter(texts.values()))}
    for phase, text in texts.items():
        (_TARGET / f"recorded_{wanted.name}{phase}.json").write_text(text, encoding="utf-8")


def _without_chance(review: Json, text: str) -> str:
    """Return a review's JSON with fixed identities, times and names in place of this run's."""
    metadata = (review["request"]["object"] or review["request"]["oldObject"])["metadata"]
    if "generateName" in metadata and "name" in metadata:
        text = text.replace(metadata["name"], f"{metadata['generateName']}abcde")
    for number, found in enumerate(dict.fromkeys(_UUID.findall(text)), start=1):
        text = text.replace(found, str(uuid.UUID(int=number, version=4)))
    text = _TIME.sub("2026-01-01T00:00:00Z", text)
    text = _FINGERPRINT.sub(f"X509SHA256={0:064x}", text)
    text = _VERSION.sub('"resourceVersion": "1"', text)
    return _VOLUME.sub("kube-api-access-abcde", text)


def main() -> None:
    """Record with a control plane of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(executables(), Path(folder)) as control_plane,
    ):
        asyncio.run(record(control_plane))


if __name__ == "__main__":
    main()
