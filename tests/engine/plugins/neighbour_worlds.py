"""Random clusters whose pods care for each other: host ports, spread, affinity and anti-affinity.

Everything is an object as the API server accepts it, so that it can also be created on a real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from engine.model import api
from engine.model.node import Node, node_of
from engine.model.pod import Pod, pod_of
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.scheduler_oracle import Json, PlainCluster

HOSTNAME = "kubernetes.io/hostname"
ZONE, RACK = "example.com/zone", "example.com/rack"
NAMESPACES = {
    "neighbours-red": {"team": "red"},
    "neighbours-blue": {"team": "blue"},
    "neighbours-new": {},
}
FINALIZER = "example.com/stays"
"""Of pods that are about to be deleted."""

_APPS, _TIERS, _VERSIONS = ("shop", "cart"), ("front", "back"), ("1", "2")
_POD_LABELS = {"app": _APPS, "tier": _TIERS, "version": _VERSIONS}


def random_cluster(random: Random, *, most_nodes: int = 6, most_pods: int = 10) -> PlainCluster:
    """Return a cluster of some nodes, with pods on them."""
    nodes = [random_node(random, f"node-{i}") for i in range(random.randint(1, most_nodes))]
    names = [node["metadata"]["name"] for node in nodes]
    count = random.randint(0, most_pods)
    pods = [random_pod_on(random, f"existing-{i}", names) for i in range(count)]
    return PlainCluster(nodes, pods, NAMESPACES)


def random_node(random: Random, name: str) -> Json:
    """Return a node."""
    labels = {HOSTNAME: name}
    if random.random() < 0.85:
        labels[ZONE] = f"z{random.randint(0, 2)}"
    if random.random() < 0.6:
        labels[RACK] = f"r{random.randint(0, 1)}"
    taints = []
    if random.random() < 0.3:
        effect = random.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
        taints.append({"key": "dedicated", "value": "x", "effect": effect})
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def random_pod_on(random: Random, name: str, nodes: Sequence[str]) -> Json:
    """Return a pod that is on one of some nodes."""
    pod = _pod(random, name)
    pod["spec"]["nodeName"] = random.choice(nodes)
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    if random.random() < 0.15:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pod["metadata"]["finalizers"] = [FINALIZER]
    return pod


def random_pod(random: Random, name: str = "incoming") -> Json:
    """Return a pod that is to be placed."""
    pod = _pod(random, name)
    spec = pod["spec"]
    if random.random() < 0.3:
        spec["nodeSelector"] = {ZONE: random.choice(["z0", "z1"])}
    if random.random() < 0.3:
        term = {"key": RACK, "operator": random.choice(["Exists", "DoesNotExist"])}
        required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        spec.setdefault("affinity", {})["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": required
        }
    if random.random() < 0.3:
        toleration = {"key": "dedicated", "operator": "Exists"}
        spec["tolerations"] = [toleration]
    keys = random.sample([ZONE, RACK, HOSTNAME], random.randint(0, 2))
    if keys:
        spec["topologySpreadConstraints"] = [_constraint(random, key) for key in keys]
    return pod


def state_of(cluster: PlainCluster) -> ClusterState:
    """Return the cluster as events would have made it."""
    state = ClusterState()
    for name, labels in cluster.namespaces.items():
        state.set_namespace(name, labels)
    for node in cluster.nodes:
        state.set_node(node_model_of(node))
    for pod in cluster.pods:
        state.set_pod(model_of(pod), seen_at=NOW)
    return state


def node_model_of(node: Json) -> Node:
    """Return the model of a node."""
    return node_of(msgspec.convert(node, api.Node, strict=False))


def model_of(pod: Json) -> Pod:
    """Return the model of a pod."""
    return pod_of(msgspec.convert(pod, api.Pod, strict=False))


def _pod(random: Random, name: str) -> Json:
    labels = {key: random.choice(values) for key, values in _POD_LABELS.items()}
    for key in list(labels):
        if random.random() < 0.2:
            del labels[key]
    container: Json = {"name": "main", "image": "x"}
    ports = _ports(random)
    if ports:
        container["ports"] = ports
    spec: Json = {"containers": [container]}
    affinity: Json = {}
    if random.random() < 0.25:
        affinity["podAffinity"] = _required(_term(random) for _ in range(random.randint(1, 2)))
    if random.random() < 0.25:
        affinity["podAntiAffinity"] = _required(_term(random) for _ in range(random.randint(1, 2)))
    for side in ("podAffinity", "podAntiAffinity"):
        if random.random() < 0.25:
            terms = [_weighted(random) for _ in range(random.randint(1, 2))]
            preferred = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
            affinity[side] = {**affinity.get(side, {}), **preferred}
    if affinity:
        spec["affinity"] = affinity
    namespace = random.choice(sorted(NAMESPACES))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def _ports(random: Random) -> list[Json]:
    if random.random() < 0.7:
        return []
    number = random.choice([80, 81])
    port: Json = {"containerPort": number, "hostPort": number}
    if random.random() < 0.3:
        port["protocol"] = "UDP"
    if random.random() < 0.5:
        port["hostIP"] = random.choice(["10.0.0.1", "10.0.0.2", "0.0.0.0"])  # noqa: S104 (any)
    inside = {"containerPort": 9090}
    return [port, inside]


def _required(terms: Any) -> Json:  # noqa: ANN401 (terms of pods)
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def _term(random: Random) -> Json:
    term: Json = {"topologyKey": random.choice([ZONE, RACK, HOSTNAME])}
    keys = _select(random, term)
    if random.random() < 0.3:
        term["namespaces"] = random.sample(sorted(NAMESPACES), random.randint(1, 2))
    if random.random() < 0.3:
        term["namespaceSelector"] = random.choice(
            [
                {},
                {"matchLabels": {"team": "red"}},
                {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            ]
        )
    if "labelSelector" in term and keys and random.random() < 0.3:
        term[random.choice(["matchLabelKeys", "mismatchLabelKeys"])] = [random.choice(keys)]
    return term


def _weighted(random: Random) -> Json:
    return {"weight": random.choice([1, 50, 100]), "podAffinityTerm": _term(random)}


def _constraint(random: Random, key: str) -> Json:
    constraint: Json = {
        "topologyKey": key,
        "maxSkew": random.randint(1, 2),
        "whenUnsatisfiable": random.choice(["DoNotSchedule"] * 5 + ["ScheduleAnyway"]),
    }
    keys = _select(random, constraint)
    is_hard = constraint["whenUnsatisfiable"] == "DoNotSchedule"
    if is_hard and random.random() < 0.3:
        constraint["minDomains"] = random.randint(1, 3)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if random.random() < 0.5:
            constraint[policy] = random.choice(["Honor", "Ignore"])
    if "labelSelector" in constraint and keys and random.random() < 0.3:
        constraint["matchLabelKeys"] = [random.choice(keys)]
    return constraint


def _select(random: Random, selecting: Json) -> list[str]:
    """Give a selector to what selects, maybe; return the keys of labels that it does not name."""
    key, *others = random.sample(sorted(_POD_LABELS), len(_POD_LABELS))
    value = random.choice(_POD_LABELS[key])
    how = random.random()
    if how < 0.5:
        selecting["labelSelector"] = {"matchLabels": {key: value}}
    elif how < 0.85:
        operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        expression: Json = {"key": key, "operator": operator}
        if "In" in operator:
            expression["values"] = [value]
        selecting["labelSelector"] = {"matchExpressions": [expression]}
    elif how < 0.95:
        selecting["labelSelector"] = {}
    return others
