"""What filters of the scheduler say of each node, by loops over objects as they are written.

Slow and plain: no part of the engine is used here, so that its columns can be compared with this.
Source: podtopologyspread, interpodaffinity and nodeports in pkg/scheduler/framework/plugins of
Kubernetes 1.36, and what these need of tainttoleration and nodeaffinity. Pods are those on nodes; a
pod that is about to be deleted is still on its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""An object of Kubernetes, as it is written."""

TAINT = "node(s) had untolerated taint(s)"
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
PORTS = "node(s) didn't have free ports for the requested pod ports"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 (what an empty hostIP means)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class PlainCluster:
    """A cluster as objects.

    Attributes:
        nodes: its nodes.
        pods: all that are on nodes, by `spec.nodeName`.
        namespaces: labels of namespaces by name.
    """

    nodes: Sequence[Json]
    pods: Sequence[Json]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def on(self, node: Json) -> list[Json]:
        """Return the pods of a node."""
        return [pod for pod in self.pods if pod["spec"].get("nodeName") == _name(node)]


Answers: TypeAlias = dict[str, str]
"""The reason that speaks against a node, "" for none, by its name."""


def taint_toleration(pod: Json, cluster: PlainCluster) -> Answers:
    """Return where a taint keeps a pod away."""
    return {_name(node): "" if _is_tolerated(node, pod) else TAINT for node in cluster.nodes}


def node_affinity(pod: Json, cluster: PlainCluster) -> Answers:
    """Return where a pod does not want to be by its node selector and required affinity."""
    return {_name(node): "" if _is_wanted(node, pod) else NODE_AFFINITY for node in cluster.nodes}


def node_ports(pod: Json, cluster: PlainCluster) -> Answers:
    """Return where a host port of a pod is taken."""
    wanted = _host_ports(pod)

    def reason(node: Json) -> str:
        taken = [port for other in cluster.on(node) for port in _host_ports(other)]
        return PORTS if any(_collide(a, b) for a in wanted for b in taken) else ""

    return {_name(node): reason(node) for node in cluster.nodes}


def pod_topology_spread(pod: Json, cluster: PlainCluster) -> Answers:
    """Return where a pod would break a constraint that must hold."""
    written = pod["spec"].get("topologySpreadConstraints") or ()
    constraints = [each for each in written if each["whenUnsatisfiable"] == "DoNotSchedule"]
    keys = [each["topologyKey"] for each in constraints]
    counts = [_pods_by_domain(each, keys, pod, cluster) for each in constraints]

    def reason(node: Json) -> str:
        for constraint, pods_by_domain in zip(constraints, counts, strict=True):
            domain = labels_of(node).get(constraint["topologyKey"])
            if domain is None:
                return SPREAD_LABEL
            enough = len(pods_by_domain) >= (constraint.get("minDomains") or 1)
            fewest = min(pods_by_domain.values()) if enough else 0
            self_match = _spread_selects(constraint, pod, pod)
            if pods_by_domain[domain] + self_match - fewest > constraint["maxSkew"]:
                return SPREAD
        return ""

    return {_name(node): reason(node) for node in cluster.nodes}


def inter_pod_affinity(pod: Json, cluster: PlainCluster) -> Answers:
    """Return where a pod lacks pods that it needs, or meets pods that it, or that, must not."""
    needs, shuns = _terms(pod, "podAffinity"), _terms(pod, "podAntiAffinity")
    near = Counter[tuple[str, str]]()
    away = Counter[tuple[str, str]]()
    repelled = Counter[tuple[str, str]]()
    for node in cluster.nodes:
        for other in cluster.on(node):
            if needs and all(term_selects(term, pod, other, cluster) for term in needs):
                near.update(_pairs(needs, node))
            hated = [term for term in shuns if term_selects(term, pod, other, cluster)]
            away.update(_pairs(hated, node))
            theirs = _terms(other, "podAntiAffinity")
            hating = [term for term in theirs if term_selects(term, other, pod, cluster)]
            repelled.update(_pairs(hating, node))
    is_first = not near and all(term_selects(term, pod, pod, cluster) for term in needs)

    def reason(node: Json) -> str:
        labels = labels_of(node)
        if any(term["topologyKey"] not in labels for term in needs):
            return AFFINITY
        if not is_first and not all(near[pair] for pair in _pairs(needs, node)):
            return AFFINITY
        if any(away[pair] for pair in _pairs(shuns, node)):
            return ANTI_AFFINITY
        if any(repelled[pair] for pair in labels.items()):
            return EXISTING_ANTI_AFFINITY
        return ""

    return {_name(node): reason(node) for node in cluster.nodes}


FILTERS: Mapping[str, Callable[[Json, PlainCluster], Answers]] = {
    "TaintToleration": taint_toleration,
    "NodeAffinity": node_affinity,
    "NodePorts": node_ports,
    "PodTopologySpread": pod_topology_spread,
    "InterPodAffinity": inter_pod_affinity,
}
"""The filters by the names of their plugins, in the scheduler's order."""


def first_reasons(pod: Json, cluster: PlainCluster) -> Answers:
    """Return what the first filter that rejects a node says of it, "" for those that pass."""
    answers = [judge(pod, cluster) for judge in FILTERS.values()]
    names = map(_name, cluster.nodes)
    return {name: next(filter(None, (each[name] for each in answers)), "") for name in names}


def _name(thing: Json) -> str:
    name: str = thing["metadata"]["name"]
    return name


def _namespace(pod: Json) -> str:
    namespace: str = pod["metadata"].get("namespace", "default")
    return namespace


def labels_of(thing: Json) -> dict[str, str]:
    return thing["metadata"].get("labels") or {}


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    """Return whether one requirement of a selector of labels or of nodes holds."""
    key, operator, values = (requirement.get(part) for part in ("key", "operator", "values"))
    value = labels.get(str(key))
    match operator:
        case "In":
            return value in (values or ())
        case "NotIn":
            return value not in (values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            raise AssertionError(operator)


def _selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects; one that is not there selects nothing."""
    if selector is None:
        return False
    pairs = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in pairs.items()) and all(
        _holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


# Nodes by themselves.


def _is_wanted(node: Json, pod: Json) -> bool:
    """Return whether a node is one of those that a pod selects; terms have expressions alone."""
    labels = labels_of(node)
    selector = pod["spec"].get("nodeSelector") or {}
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    return all(labels.get(key) == value for key, value in selector.items()) and (
        required is None
        or any(
            all(_holds(each, labels) for each in term["matchExpressions"])
            for term in required["nodeSelectorTerms"]
        )
    )


def _is_tolerated(node: Json, pod: Json) -> bool:
    """Return whether a pod tolerates the taints of a node that keep pods away."""
    return all(
        any(_tolerates(each, taint) for each in pod["spec"].get("tolerations") or ())
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint["effect"] in {"NoSchedule", "NoExecute"}
    )


def _tolerates(toleration: Json, taint: Json) -> bool:
    is_equal = toleration.get("value", "") == taint.get("value", "")
    return (
        toleration.get("effect") in {None, "", taint["effect"]}
        and toleration.get("key") in {None, "", taint["key"]}
        and (toleration.get("operator") == "Exists" or is_equal)
    )


# Host ports.


def _host_ports(pod: Json) -> list[tuple[str, str, int]]:
    """Return address, protocol and port of each host port of containers and sidecars."""
    init = pod["spec"].get("initContainers") or ()
    sidecars = [each for each in init if each.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or _ANY_ADDRESS, port.get("protocol") or "TCP", port["hostPort"])
        for container in (*(pod["spec"].get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort", 0) > 0
    ]


def _collide(a: tuple[str, str, int], b: tuple[str, str, int]) -> bool:
    return a[1:] == b[1:] and (a[0] == b[0] or _ANY_ADDRESS in {a[0], b[0]})


# Topology spread.


def _pods_by_domain(
    constraint: Json, keys: Sequence[str], pod: Json, cluster: PlainCluster
) -> Counter[str]:
    """Return the pods of each domain that counts; one without pods is there with 0."""
    found = Counter[str]()
    for node in cluster.nodes:
        labels = labels_of(node)
        if any(key not in labels for key in keys) or not is_included(constraint, pod, node):
            continue
        domain = labels[constraint["topologyKey"]]
        found[domain] += 0
        for other in cluster.on(node):
            is_near = _namespace(other) == _namespace(pod)
            if is_near and "deletionTimestamp" not in other["metadata"]:
                found[domain] += counts_for_spread(constraint, pod, other)
    return found


def is_included(constraint: Json, pod: Json, node: Json) -> bool:
    """Return whether a node counts by the policies about affinity and taints."""
    honors_affinity = (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
    honors_taints = (constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor"
    return (not honors_affinity or _is_wanted(node, pod)) and (
        not honors_taints or _is_tolerated(node, pod)
    )


def _spread_selects(constraint: Json, pod: Json, other: Json) -> bool:
    """Return whether a constraint of a pod selects a pod: by its selector and `matchLabelKeys`."""
    own, labels = labels_of(pod), labels_of(other)
    keys = [key for key in constraint.get("matchLabelKeys") or () if key in own]
    selector = constraint.get("labelSelector")
    return _selects(selector, labels) and all(labels.get(key) == own[key] for key in keys)


def counts_for_spread(constraint: Json, pod: Json, other: Json) -> bool:
    """Return whether a pod on a node counts: none does for a selector without requirements."""
    keys = [key for key in constraint.get("matchLabelKeys") or () if key in labels_of(pod)]
    selector = constraint.get("labelSelector") or {}
    is_empty = not selector.get("matchLabels") and not selector.get("matchExpressions")
    return not (is_empty and not keys) and _spread_selects(constraint, pod, other)


# Affinity of pods to pods.


def _terms(pod: Json, side: str) -> list[Json]:
    affinity = (pod["spec"].get("affinity") or {}).get(side) or {}
    return affinity.get(_REQUIRED) or []


def _pairs(terms: Sequence[Json], node: Json) -> list[tuple[str, str]]:
    """Return the topology pairs of terms on a node, one for each term whose label it has."""
    labels = labels_of(node)
    keys = [term["topologyKey"] for term in terms]
    return [(key, labels[key]) for key in keys if key in labels]


def term_selects(term: Json, owner: Json, other: Json, cluster: PlainCluster) -> bool:
    """Return whether a term of a pod selects another pod, or itself."""
    namespaces, selector = term.get("namespaces") or (), term.get("namespaceSelector")
    if not namespaces and selector is None:
        namespaces = (_namespace(owner),)
    # An empty selector selects namespaces that nothing is known of, too.
    of_namespace = cluster.namespaces.get(_namespace(other), {})
    if _namespace(other) not in namespaces and not _selects(selector, of_namespace):
        return False
    own, labels = labels_of(owner), labels_of(other)
    same = [key for key in term.get("matchLabelKeys") or () if key in own]
    unlike = [key for key in term.get("mismatchLabelKeys") or () if key in own]
    return (
        _selects(term.get("labelSelector"), labels)
        and all(labels.get(key) == own[key] for key in same)
        and all(labels.get(key) != own[key] for key in unlike)
    )
