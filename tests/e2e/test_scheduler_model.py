"""The model of the scheduler against the real one: scores node by node, and how full nodes get."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from engine.model.decision import PlacementRequest
from engine.policy import SCHEDULER_WEIGHTS
from engine.simulation.scheduler import SchedulerModel, node_scores, passing_nodes, weighted_sum
from engine.view import ClusterState, ClusterView, Sum
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.nodes import Nodes
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.neighbour_worlds import model_of, node_model_of

_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT_TAINT: Final = {"key": "spot", "value": "x", "effect": "PreferNoSchedule"}
_IMAGE: Final = "registry.example.com/large:1"
_TOTAL: Final = "total"
_SCORED: Final = re.compile(
    r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(\d+)'
)

_NAMES: Final = tuple(
    f"{figure} {resource}"
    for resource in ("cpu", "memory")
    for figure in ("mean", "spread", "most")
)
_CHANCE: Final = {"mean": 1e-6, "spread": 1.0, "most": 6.3}
"""Points of percent by which figures may differ where equal nodes are taken by chance.

Every pod is bound under both, so that the mean is the same; half of the largest pod for the most.
"""

_Scores = dict[str, dict[str, dict[str, int]]]
"""Weighted points by pod, score, or _TOTAL, and node."""


async def test_every_score_of_every_node_is_the_schedulers(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str
) -> None:
    random = Random(21)
    await _add_uneven_nodes(cluster, nodes)
    pods = [_varied_pod(random, namespace, i) for i in range(140)]
    owners = await _create_owners(cluster, namespace)
    async with _scheduling_alone(control_plane, {"vmodule": "schedule_one=10"}) as log:
        before = log.stat().st_size
        state, expected, nowhere = await _state(cluster), {}, []
        for pod in pods:
            _own(pod, owners)
            created = await cluster.create(pod)
            name = created["metadata"]["name"]
            view = state.view()
            expected[f"{namespace}/{name}"] = _weighted(created, view)
            del view
            landed = await _landed(cluster, namespace, name)
            if landed is None:
                nowhere.append(name)
                assert not expected[f"{namespace}/{name}"], name
                continue
            state.set_pod(model_of(landed), seen_at=NOW)
            totals = expected[f"{namespace}/{name}"].get(_TOTAL, {})
            node = landed["spec"]["nodeName"]
            assert totals[node] == max(totals.values()), (name, node, totals)
        logged = _logged(log.read_text(encoding="utf-8")[before:])
    compared = 0
    for name, by_score in expected.items():
        if len(by_score.get(_TOTAL, {})) < 2:
            continue  # without a choice the scheduler scores nothing
        for score in SCHEDULER_WEIGHTS:
            theirs, ours = logged[name].get(score), by_score[score]
            if theirs is None:
                assert len(set(ours.values())) == 1, (name, score, ours)
            else:
                assert theirs == ours, (name, score)
                compared += len(theirs)
    print(f"{len(pods)} pods, {len(nowhere)} of them nowhere, {compared} points of nodes agree")
    assert compared > 5_000


@pytest.mark.parametrize("count", [40, 130])
async def test_nodes_get_as_full_as_under_the_scheduler(
    count: int, cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str
) -> None:
    random = Random(count)
    await _add_even_nodes(nodes, count)
    owners = await _create_owners(cluster, namespace)
    pods = [_plain_pod(random, namespace, i) for i in range(300)]
    async with _scheduling_alone(control_plane, {}):
        state = await _state(cluster)
        for pod in pods:
            _own(pod, owners)
            await cluster.create(pod)

        async def bound() -> list[Json]:
            found = await cluster.list_all("pods", namespace)
            return found if all(pod["spec"].get("nodeName") for pod in found) else []

        stored = {each["metadata"]["name"]: each for each in await eventually(bound, "all bound")}
    real, scheduler = await _state(cluster), SchedulerModel(0)
    for pod in stored.values():
        real.set_pod(model_of(pod), seen_at=NOW)
    for pod in pods:
        model = model_of(pod)
        view = state.view()
        node = scheduler.place(PlacementRequest(pod=model, raw=b""), view, NOW)
        del view
        state.set_pod(model_of({**pod, "spec": {**pod["spec"], "nodeName": node}}), seen_at=NOW)
    theirs, ours = _figures(real.view()), _figures(state.view())
    print(f"{count} nodes: {_NAMES} {theirs}, by the model {ours}")
    for name, their, our in zip(_NAMES, theirs, ours, strict=True):
        assert our == pytest.approx(their, abs=_CHANCE[name.split()[0]]), name


def _figures(view: ClusterView) -> list[float]:
    """Return mean, standard deviation and maximum over nodes of what is requested, in percent."""
    figures = []
    for name in ("cpu", "memory"):
        requested = view.amount(view.sums[Sum.REQUESTS], name)
        percent = 100 * requested / view.amount(view.allocatable, name)
        figures += [float(percent.mean()), float(percent.std()), float(percent.max())]
    return [round(figure, 2) for figure in figures]


def _weighted(pod: Json, view: ClusterView) -> dict[str, dict[str, int]]:
    """Return the weighted points that the model gives by score, or _TOTAL, and node."""
    model = model_of(pod)
    points = node_scores(model, view, NOW)
    if not points:
        return {}
    names = [view.names[row] for row in passing_nodes(model, view, NOW).nonzero()[0].tolist()]
    weighted = {score: SCHEDULER_WEIGHTS[score] * of for score, of in points.items()}
    weighted[_TOTAL] = weighted_sum(points)
    return {score: dict(zip(names, of.tolist(), strict=True)) for score, of in weighted.items()}


def _logged(log: str) -> _Scores:
    """Return the weighted points that the scheduler wrote down."""
    found: _Scores = defaultdict(lambda: defaultdict(dict))
    for pod, score, node, points in _SCORED.findall(log):
        found[pod][score][node] = int(points)
    return found


async def _landed(cluster: Cluster, namespace: str, name: str) -> Json | None:
    """Return a pod once it is bound; None for one that no node can take, which goes."""

    async def considered() -> Json:
        pod = await cluster.get("pods", name, namespace)
        return pod if pod["spec"].get("nodeName") or pod["status"].get("conditions") else {}

    pod = await eventually(considered, f"pod {name} is considered")
    if pod["spec"].get("nodeName"):
        return pod
    await cluster.delete("pods", name, namespace, grace_seconds=0)
    return None


async def _state(cluster: Cluster) -> ClusterState:
    """Return the cluster as it is stored, without pods: there are none on these nodes."""
    state = ClusterState()
    for namespace in await cluster.list_all("namespaces"):
        metadata = namespace["metadata"]
        state.set_namespace(metadata["name"], metadata["labels"])
    for node in await cluster.list_all("nodes"):
        state.set_node(node_model_of(node))
    return state


@asynccontextmanager
async def _scheduling_alone(
    control_plane: ControlPlane, flags: dict[str, str]
) -> AsyncIterator[Path]:
    """Let the scheduler, started anew, be the only controller; give its log.

    So pods may say that they are of a ReplicaSet, and nobody creates or deletes any for it.
    """
    await asyncio.to_thread(control_plane.controllers.kill)
    try:
        async with control_plane.scheduling_with(flags):
            yield control_plane.scheduler.log
    finally:
        await asyncio.to_thread(control_plane.controllers.start)


async def _create_owners(cluster: Cluster, namespace: str) -> dict[str, Json]:
    """Create the controllers of pods, which create none; return references to them by name."""
    owners = {}
    for name, kind in (("web", "ReplicaSet"), ("api", "ReplicaSet"), ("db", "StatefulSet")):
        labels = {"app": name}
        container = {"name": "main", "image": "x"}
        created = await cluster.create(
            {
                "apiVersion": "apps/v1",
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [container]},
                    },
                    **({"serviceName": name} if kind == "StatefulSet" else {}),
                },
            }
        )
        owners[name] = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": name,
            "uid": created["metadata"]["uid"],
            "controller": True,
        }
    return owners


def _own(pod: Json, owners: dict[str, Json]) -> None:
    """Let a pod be one of the controller whose name its label says."""
    owner = owners.get(pod["metadata"]["labels"]["app"])
    if owner is not None:
        pod["metadata"]["ownerReferences"] = [owner]


async def _add_uneven_nodes(cluster: Cluster, nodes: Nodes) -> None:
    """Add nodes of several sizes; some have no zone, a taint, or a large image."""
    random = Random(3)

    async def add(i: int) -> None:
        name, labels = f"uneven-{i:02}", {"disk": random.choice(["ssd", "hdd"])}
        if i % 8:
            labels[_ZONE] = f"zone-{i % 3}"
        amounts = {"cpu": str(2 ** (1 + i % 4)), "memory": f"{8 * (1 + i % 3)}Gi"}
        await nodes.add(name, amounts, labels=labels, taints=(_SOFT_TAINT,) if i % 5 == 0 else ())
        if i % 3 == 0:
            images = [{"names": [_IMAGE], "sizeBytes": 900_000_000}]
            status = {"status": {"images": images}}
            await cluster.patch("nodes", name, status, how="strategic", subresource="status")

    await asyncio.gather(*map(add, range(18)))


async def _add_even_nodes(nodes: Nodes, count: int) -> None:
    await asyncio.gather(
        *(
            nodes.add(
                f"even-{i:03}",
                {"cpu": "8", "memory": "32Gi"},
                labels={_ZONE: f"zone-{i % 3}"},
            )
            for i in range(count)
        )
    )


def _pod(namespace: str, name: str, app: str, requests: dict[str, str], **spec: object) -> Json:
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def _plain_pod(random: Random, namespace: str, i: int) -> Json:
    """Return a pod of one of four everyday templates."""
    app, cpu, memory = random.choice(
        [
            ("web", "300m", "1Gi"),
            ("api", "150m", "256Mi"),
            ("db", "1", "4Gi"),
            ("job", "500m", "2Gi"),
        ]
    )
    return _pod(namespace, f"{app}-{i}", app, {"cpu": cpu, "memory": memory})


def _varied_pod(random: Random, namespace: str, i: int) -> Json:
    """Return a pod of one of many templates, which ask for all that is scored."""
    app = random.choice(["web", "api", "db", "cache", "needy", "picky", "large", "idle", "apart"])
    requests = {"cpu": f"{random.randint(1, 8) * 50}m", "memory": f"{random.randint(1, 8) * 64}Mi"}
    if app == "large":
        requests = {"cpu": "3", "memory": "5Gi"}
    pod = _pod(namespace, f"{app}-{i}", app, {} if app == "idle" else requests)
    spec = pod["spec"]
    match app:
        case "db":
            pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = f"{app}-{i}"
            spec["affinity"] = {"podAntiAffinity": {_PREFERRED: [_near(100, "db", _HOSTNAME)]}}
        case "cache":
            spec["affinity"] = {
                "podAffinity": {_PREFERRED: [_near(50, "web", _ZONE), _near(7, "api", _HOSTNAME)]}
            }
            spec["topologySpreadConstraints"] = [
                _spread(app, _ZONE, 1, "ScheduleAnyway"),
                _spread(app, _HOSTNAME, 2, "ScheduleAnyway"),
            ]
        case "needy":
            spec["affinity"] = {"podAffinity": {_REQUIRED: [_term("web", _ZONE)]}}
        case "picky":
            spec["containers"][0]["image"] = _IMAGE
            spec["affinity"] = {
                "nodeAffinity": {_PREFERRED: [_on(10, "disk", "ssd"), _on(4, _ZONE, "zone-1")]}
            }
        case "large":
            spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        case "apart":
            spec["topologySpreadConstraints"] = [_spread(app, _HOSTNAME, 1, "DoNotSchedule")]
    return pod


def _term(app: str, key: str) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def _near(weight: int, app: str, key: str) -> Json:
    return {"weight": weight, "podAffinityTerm": _term(app, key)}


def _on(weight: int, key: str, value: str) -> Json:
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def _spread(app: str, key: str, skew: int, when: str) -> Json:
    return {"maxSkew": skew, "whenUnsatisfiable": when, **_term(app, key)}
