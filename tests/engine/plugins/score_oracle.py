"""What two of the scheduler's scores give to each node, by loops over objects as they are written.

Source: podtopologyspread/scoring.go and interpodaffinity/scoring.go in
pkg/scheduler/framework/plugins of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import floor, log
from typing import Final

from tests.engine.plugins.scheduler_oracle import (
    Json,
    PlainCluster,
    counts_for_spread,
    is_included,
    labels_of,
    term_selects,
)

_HOSTNAME: Final = "kubernetes.io/hostname"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SYSTEM_DEFAULTS: Final = ((_HOSTNAME, 3), ("topology.kubernetes.io/zone", 5))

Points = dict[str, int]


def topology_spread(pod: Json, cluster: PlainCluster, feasible: Collection[str]) -> Points:
    """Return the points of the feasible nodes by name; defaults for pods with an owner."""
    written = pod["spec"].get("topologySpreadConstraints") or ()
    constraints = [each for each in written if each["whenUnsatisfiable"] == "ScheduleAnyway"]
    if not written and pod["metadata"].get("ownerReferences") and labels_of(pod):
        selector = {"matchLabels": labels_of(pod)}
        constraints = [
            {"topologyKey": key, "maxSkew": skew, "labelSelector": selector}
            for key, skew in _SYSTEM_DEFAULTS
        ]
    if not constraints:
        return dict.fromkeys(feasible, 0)
    nodes = {node["metadata"]["name"]: node for node in cluster.nodes}
    keys = [each["topologyKey"] for each in constraints] if written else []
    ignored = {name for name in feasible if any(key not in labels_of(nodes[name]) for key in keys)}
    costs = dict.fromkeys(feasible, 0.0)
    for constraint in constraints:
        key = constraint["topologyKey"]
        domains = {labels_of(nodes[name]).get(key, "") for name in feasible if name not in ignored}
        if key == _HOSTNAME:
            domains = {name for name in feasible if name not in ignored}
        pods = Counter[str]()
        for node in cluster.nodes:
            has_keys = all(each in labels_of(node) for each in keys)
            if has_keys and is_included(constraint, pod, node):
                pods[labels_of(node).get(key, "")] += _pods_on(node, constraint, pod, cluster)
        for name in feasible:
            if key in labels_of(nodes[name]):
                count = pods[labels_of(nodes[name])[key]]
                if key == _HOSTNAME:
                    count = _pods_on(nodes[name], constraint, pod, cluster)
                costs[name] += count * log(len(domains) + 2) + constraint["maxSkew"] - 1
    rounded = {name: floor(cost + 0.5) for name, cost in costs.items() if name not in ignored}
    least, most = min(rounded.values(), default=0), max(rounded.values(), default=0)
    points = {
        name: 100 * (most + least - cost) // most if most else 100 for name, cost in rounded.items()
    }
    return {name: points.get(name, 0) for name in feasible}


def inter_pod_affinity(pod: Json, cluster: PlainCluster, feasible: Collection[str]) -> Points:
    """Return the points of the feasible nodes by name."""
    sums = Counter[tuple[str, str]]()
    for node in cluster.nodes:
        for other in cluster.on(node):
            matching = [*_weighted(pod, other, cluster), *_weighted(other, pod, cluster)]
            required = (other["spec"].get("affinity") or {}).get("podAffinity", {}).get(_REQUIRED)
            matching += [
                (1, term) for term in required or () if term_selects(term, other, pod, cluster)
            ]
            for weight, term in matching:
                key = term["topologyKey"]
                if key in labels_of(node):
                    sums[key, labels_of(node)[key]] += weight
    nodes = {node["metadata"]["name"]: node for node in cluster.nodes}
    totals = {name: sum(sums[pair] for pair in labels_of(nodes[name]).items()) for name in feasible}
    least, most = min(totals.values()), max(totals.values())
    return {
        name: int(100 * ((total - least) / (most - least))) if most > least else 0
        for name, total in totals.items()
    }


def _pods_on(node: Json, constraint: Json, pod: Json, cluster: PlainCluster) -> int:
    """Return how many pods of a node count for a constraint of a pod."""
    namespace = pod["metadata"]["namespace"]
    return sum(
        counts_for_spread(constraint, pod, other)
        for other in cluster.on(node)
        if other["metadata"]["namespace"] == namespace
        and "deletionTimestamp" not in other["metadata"]
    )


def _weighted(owner: Json, other: Json, cluster: PlainCluster) -> list[tuple[int, Json]]:
    """Return the preferred terms of a pod that select another one; weights below 0 for away."""
    affinity = owner["spec"].get("affinity") or {}
    terms = [
        (sign * each["weight"], each["podAffinityTerm"])
        for side, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
        for each in affinity.get(side, {}).get(_PREFERRED) or ()
    ]
    return [(weight, term) for weight, term in terms if term_selects(term, owner, other, cluster)]
