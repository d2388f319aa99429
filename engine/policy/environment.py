"""The names that expressions can read, their types, and their values as plain CEL values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np

from engine.cel import (
    CelProblem,
    CelType,
    Environment,
    ObjectType,
    Reference,
    Timestamp,
    ast,
    references,
)
from engine.cel.static_types import list_of, map_of
from engine.cel.values import BOOL, DOUBLE, INT, MAP, NULL, STRING, TIMESTAMP
from engine.documents import Document, Path
from engine.errors import Diagnostic, did_you_mean
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.node import Node, NodeCondition
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape, cached_by_shape
from engine.model.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_scalar
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.model.well_known import NAMESPACE_NAME_LABEL, ZONE_LABEL
from engine.model.workload import controller_selector
from engine.view import (
    MISSING,
    ClusterView,
    IntColumn,
    PodQuery,
    Sum,
    label_column,
    pods_matching,
    pods_not_evictable,
)

# Misspelt resource names, in expressions and in the args of plugins.
#
# No node has a misspelt resource, so without this check every pod and node would pass silently.


BY_RESOURCE: Final = frozenset(
    {
        "defaultLimitToAllocatableRatio",
        "defaultLimits",
        "defaultRequests",
        "estimatedScalingFactors",
        "prodUsageThresholds",
        "resourceWeights",
        "riskLimitWeights",
        "scoringResourceWeights",
        "usageThresholds",
    }
)
"""Arguments that are maps by resource name, in any plugin."""

LISTS_OF_RESOURCES: Final = frozenset({"ignoredResources", "resources", "supportedResources"})
"""Arguments that are lists of resources, in any plugin: names, or mappings with a `name`."""

_VENDOR_HINT = "resources of a vendor are named with its domain, as `nvidia.com/gpu`"
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def hint_if_misspelt(name: str) -> str:
    """Return a hint for a resource that Kubernetes cannot have, "" if it can.

    A name without a domain can only be one of Kubernetes' own.
    """
    if name in _NATIVE or "/" in name or is_scalar(name):
        return ""
    return did_you_mean(name, _NATIVE) or _VENDOR_HINT


def misspelt_in_args(args: object, document: Document, at: Path) -> Iterator[Diagnostic]:
    """Yield a problem for each resource that args name and Kubernetes cannot have."""
    for key, value in args.items() if isinstance(args, dict) else ():
        path = (*at, key)
        if key in BY_RESOURCE and isinstance(value, dict):
            for name in value:
                if hint := hint_if_misspelt(name):
                    yield document.problem_at_key((*path, name), _message(key, name), hint=hint)
        elif key in LISTS_OF_RESOURCES and isinstance(value, list):
            for index, item in enumerate(value):
                name = item.get("name") if isinstance(item, dict) else item
                if isinstance(name, str) and (hint := hint_if_misspelt(name)):
                    below = (index, "name") if isinstance(item, dict) else (index,)
                    yield document.problem((*path, *below), _message(key, name), hint=hint)
        else:
            yield from misspelt_in_args(value, document, path)


def _message(of: str, name: str) -> str:
    return f"`{of}` cannot have a resource `{name}`"


NOW_STEP_SECONDS: Final = 10
"""The step in which `now` moves: columns that depend on it last for as long."""

_TEXTS = map_of(STRING, STRING)
_AMOUNTS = map_of(STRING, DOUBLE)
OBJECT: Final = CelType("object")
"""Stands in the table for a type that is made of the entries below it."""


class ExpressionScope(IntEnum):
    """The expressions that know a name: those in the place and in the places after it."""

    MATCH = 0  # matchConditions
    VARIABLES = 1
    RULES = 2  # filters and scores
    SCORES = 3

    @property
    def text(self) -> str:
        """The places, in words."""
        return ("all", "variables, filters and scores", "filters and scores", "scores")[self]


@dataclass(frozen=True, slots=True)
class Entry:
    path: str  # the name, with dots
    type: CelType  # its type; `OBJECT` where further entries describe its fields
    meaning: str  # its meaning, and when it is absent
    unit: str = ""  # the unit of a number; empty where there is none

    @property
    def scope(self) -> ExpressionScope:
        """The expressions that know it."""
        root = self.path.partition(".")[0]
        return _ROOTS_FROM.get(root, ExpressionScope.MATCH)


_ROOTS_FROM: Final = {
    "variables": ExpressionScope.VARIABLES,
    "node": ExpressionScope.RULES,
    "nodes": ExpressionScope.SCORES,
}


def _amounts(path: str, meaning: str) -> tuple[Entry, ...]:
    """Return the entries of a map of resources, with the keys that the manual lists."""
    return (
        Entry(path, _AMOUNTS, meaning),
        Entry(f"{path}.cpu", DOUBLE, "", "cores"),
        Entry(f"{path}.memory", DOUBLE, "", "bytes"),
        Entry(f"{path}.*", DOUBLE, "any other resource, by its name", "units"),
    )


TABLE: Final[tuple[Entry, ...]] = (
    Entry("object", MAP, "the pod as it was sent"),
    Entry(
        "now",
        TIMESTAMP,
        f"the time of the decision, rounded down to {NOW_STEP_SECONDS} s",
    ),
    Entry("oldObject", NULL, "always null: only new pods are placed"),
    Entry("request", OBJECT, "the admission request; fields that the API server omits are absent"),
    Entry("request.operation", STRING, "`CREATE`"),
    Entry("request.name", STRING, "name of the pod, empty while it is to be generated"),
    Entry("request.namespace", STRING, "namespace of the pod"),
    Entry("request.kind", MAP, "`group`, `version` and `kind`"),
    Entry("request.resource", MAP, "`group`, `version` and `resource`"),
    Entry("request.subResource", STRING, "empty for the pod itself"),
    Entry("request.requestKind", MAP, "like `kind`, before any conversion"),
    Entry("request.requestResource", MAP, "like `resource`, before any conversion"),
    Entry("request.requestSubResource", STRING, "like `subResource`, before any conversion"),
    Entry("request.userInfo", OBJECT, "who creates the pod, often a controller"),
    Entry("request.userInfo.username", STRING, ""),
    Entry("request.userInfo.uid", STRING, ""),
    Entry("request.userInfo.groups", list_of(STRING), ""),
    Entry("request.userInfo.extra", map_of(STRING, list_of(STRING)), ""),
    Entry("request.dryRun", BOOL, "whether nothing will be stored"),
    Entry("request.options", MAP, "the options of the request"),
    Entry("namespaceObject", OBJECT, "the namespace of the pod, as far as it is known"),
    Entry("namespaceObject.metadata", OBJECT, ""),
    Entry("namespaceObject.metadata.name", STRING, ""),
    Entry("namespaceObject.metadata.labels", _TEXTS, ""),
    Entry("pod", OBJECT, "the pod, in brief"),
    Entry("pod.name", STRING, "empty while it is to be generated"),
    Entry("pod.generateName", STRING, "what a generated name will begin with"),
    Entry("pod.namespace", STRING, ""),
    Entry("pod.labels", _TEXTS, ""),
    Entry("pod.annotations", _TEXTS, ""),
    *_amounts("pod.requests", "its requests; cpu and memory are 0 if it names none"),
    *_amounts("pod.limits", "its limits; a resource without a limit is absent"),
    Entry("pod.qosClass", STRING, "`Guaranteed`, `Burstable` or `BestEffort`"),
    Entry("pod.priority", INT, "0 if it has none"),
    Entry("pod.priorityClassName", STRING, ""),
    Entry(
        "pod.koordinatorPriorityClass",
        STRING,
        "`koord-prod`, `koord-mid`, `koord-batch` or `koord-free`, by Koordinator's rules",
    ),
    Entry("pod.ownerKinds", list_of(STRING), "kinds of its owners, such as `ReplicaSet` or `Job`"),
    Entry(
        "pod.notEvictableBy",
        list_of(STRING),
        "autoscalers that will not evict it, so that its node stays: `ClusterAutoscaler`, "
        "`Karpenter`, both or neither; see autoscalers.md",
    ),
    Entry("pod.nodeSelector", _TEXTS, ""),
    Entry("pod.tolerations", list_of(_TEXTS), "each with `key`, `operator`, `value`, `effect`"),
    Entry("pod.schedulerName", STRING, ""),
    Entry("variables", OBJECT, "the policy's own `variables`, each a field"),
    Entry("node", OBJECT, "the node that is evaluated"),
    Entry("node.name", STRING, ""),
    Entry("node.labels", _TEXTS, ""),
    Entry("node.annotations", _TEXTS, ""),
    Entry("node.taints", list_of(_TEXTS), "each with `key`, `value`, `effect`"),
    Entry("node.unschedulable", BOOL, "whether it is cordoned"),
    Entry(
        "node.ready",
        BOOL,
        "false only if the node reports that it is not ready; the scheduler leaves out such a node "
        "by its taint, unless the pod tolerates that",
    ),
    Entry("node.creationTimestamp", TIMESTAMP, "when it joined the cluster"),
    Entry("node.conditions", list_of(OBJECT), "its conditions, without heartbeat times"),
    Entry("node.conditions[].type", STRING, "such as `Ready` or `DiskPressure`"),
    Entry("node.conditions[].status", STRING, "`True`, `False` or `Unknown`: a string"),
    Entry("node.conditions[].reason", STRING, "the reason in one word, empty if there is none"),
    Entry(
        "node.conditions[].lastTransitionTime",
        TIMESTAMP,
        "when its status last changed; absent if unknown",
    ),
    *_amounts("node.allocatable", "what pods may request of it"),
    *_amounts("node.requested", "requests of its pods; every allocatable resource is there"),
    *_amounts("node.limits", "limits of its pods; every allocatable resource is there"),
    *_amounts("node.usage", "its measured usage; absent without a report of the last 3 minutes"),
    Entry("node.podCount", INT, "pods on it that have not finished", "pods"),
    Entry(
        "node.podsNotEvictable",
        INT,
        "pods on it that its autoscaler does not evict (Karpenter if it has the label "
        "`karpenter.sh/nodepool`, else Cluster Autoscaler), or that a PodDisruptionBudget protects "
        "now",
        "pods",
    ),
    Entry(
        "node.podsOfOwner",
        INT,
        "pods on it of the same ReplicaSet, ReplicationController or StatefulSet as the pod: those "
        "with its labels, as for PodTopologySpread; 0 if none controls it",
        "pods",
    ),
    Entry("node.podsOfOwnerInZone", INT, "such pods in its zone; 0 if it is in none", "pods"),
    Entry(
        "nodes",
        list_of(OBJECT),
        "the nodes that the pod's node selector and required node affinity allow, each as `node`; "
        "for [statistics](#statistics-over-nodes) alone",
    ),
)
"""Every name that an expression can read."""

_AMOUNTS_OF_NODE: Final = "amounts are at `node.allocatable`, `node.requested` and `node.usage`"
_FREE: Final = "write `node.allocatable.cpu - node.requested.cpu`"
_OF_PODS: Final = "amounts are at `pod.requests` and `pod.limits`"
_CONTAINERS: Final = "write `object.spec.containers`: `object` is the pod as it was sent"
_EITHER: Final = "write `node` or `pod`"
_HINTS: Final[Mapping[str, str]] = {
    "authorizer": "a policy asks for no rights: select pods by namespace or label",
    "namespace": "its name is `pod.namespace`, its labels are `namespaceObject.metadata.labels`",
    "namespaceObject.annotations": "only its name and labels are known",
    "namespaceObject.metadata.annotations": "only its name and labels are known",
    "namespaceObject.labels": "write `namespaceObject.metadata.labels`",
    "namespaceObject.name": "write `pod.namespace`",
    "node.age": "write `now - node.creationTimestamp`",
    "node.capacity": "what pods may request of it is `node.allocatable`",
    "node.available": _FREE,
    "node.conditions[].status": "a status is a string: compare it with `'True'`",
    "node.cpu": _AMOUNTS_OF_NODE,
    "node.free": _FREE,
    "node.hostname": "write `node.name`, or `node.labels['kubernetes.io/hostname']`",
    "node.memory": _AMOUNTS_OF_NODE,
    "node.metadata": "write `node.name`, `node.labels`, `node.annotations`, without `metadata`",
    "node.pods": "their number is `node.podCount`, those of the same owner are `node.podsOfOwner`;"
    " to keep away from other pods, a pod has anti-affinity",
    "node.replicas": "pods of the same owner are `node.podsOfOwner`",
    "node.siblings": "pods of the same owner are `node.podsOfOwner`",
    "node.spec": "write `node.taints` or `node.unschedulable`, without `spec`",
    "node.status": "write `node.allocatable` or `node.conditions`, without `status`",
    "node.zone": "write `node.labels['topology.kubernetes.io/zone']`",
    "params": "a policy has no parameters: what rules share are its `variables`",
    "pod.containers": _CONTAINERS,
    "pod.cpu": _OF_PODS,
    "pod.evictable": "the autoscalers that do not evict it are `pod.notEvictableBy`",
    "pod.image": _CONTAINERS,
    "pod.memory": _OF_PODS,
    "pod.metadata": "write `pod.labels`, or `object.metadata`: the pod as it was sent",
    "pod.nodeName": "it is absent: a pod that is being placed has no node",
    "pod.ownerReferences": "write `pod.ownerKinds`, or `object.metadata.ownerReferences`",
    "pod.qos": "write `pod.qosClass`",
    "pod.resources": _OF_PODS,
    "pod.spec": "write `object.spec`: `object` is the pod as it was sent",
    "pod.status": "a pod that is being created has no status yet",
    "self": _EITHER,
    "this": _EITHER,
    "time": "the moment is `now`",
}
"""Advice for names that people take for known ones, by path."""

_AMOUNT_PATHS: Final = frozenset(entry.path for entry in TABLE if entry.type == _AMOUNTS)


def environment(
    scope: ExpressionScope,
    variables: Mapping[str, CelType] = MappingProxyType({}),
    later: Collection[str] = (),
) -> Environment:
    """Return the names that an expression at a place may refer to."""
    roots = _roots(scope)
    if "variables" in roots:
        hints = dict.fromkeys(later, "a variable reads only those above it")
        roots = {**roots, "variables": ObjectType("variables", fields=variables, hints=hints)}
    return Environment(variables=roots, hints=_hints_below(""))


@cache
def _roots(scope: ExpressionScope) -> Mapping[str, CelType]:
    """Return the types of top-level names; that of `variables` is another in each policy."""
    entries = (entry for entry in TABLE if "." not in entry.path and entry.scope <= scope)
    return MappingProxyType({entry.path: _type_of(entry) for entry in entries})


def scope_of(name: str) -> ExpressionScope | None:
    """Return the first place that knows a top-level name, None if there is no such name."""
    return next((entry.scope for entry in TABLE if entry.path == name), None)


def misspelt_resources(root: ast.Node) -> Iterator[CelProblem]:
    """Yield a problem for each resource that a tree reads and Kubernetes cannot have.

    Resources are keys of a map, so the checker accepts any name.
    """
    for node, _ in ast.walk(root):
        if isinstance(node, ast.Select | ast.Has):
            operand, name, offset = node.operand, node.field, node.offset
        elif isinstance(node, ast.Index) and isinstance(node.index, ast.Literal):
            operand, name, offset = node.operand, str(node.index.value), node.index.offset
        else:
            continue
        of = ".".join(next(references(operand), ()))
        if of not in _AMOUNT_PATHS or not isinstance(operand, ast.Select):
            continue
        if hint := hint_if_misspelt(name):
            if of == "node.usage" and not hint.startswith("did you mean"):
                hint = "`node.usage` has cpu and memory"
            yield CelProblem(offset, f"`{of}` cannot have a resource `{name}`", hint)


def _type_of(entry: Entry) -> CelType:
    if entry.type == list_of(OBJECT):
        return list_of(_object_type("node" if entry.path == "nodes" else f"{entry.path}[]"))
    return _object_type(entry.path) if entry.type == OBJECT else entry.type


def _object_type(path: str) -> ObjectType:
    fields = {below.path.rpartition(".")[2]: _type_of(below) for below in _directly_below(path)}
    return ObjectType(path, fields=fields, hints=_hints_below(path))


def _hints_below(path: str) -> dict[str, str]:
    """Return the hints for names directly below a path, "" for those of variables."""
    parts = ((name.rpartition("."), hint) for name, hint in _HINTS.items())
    return {name: hint for (above, _, name), hint in parts if above == path}


def _directly_below(path: str) -> Iterable[Entry]:
    return (each for each in TABLE if each.path.rpartition(".")[0] == path)


# The values of names, as plain CEL values.

ON_NODE: Final = "podsOfOwner"
IN_ZONE: Final = "podsOfOwnerInZone"
OWNER_FIELDS: Final = frozenset({ON_NODE, IN_ZONE})
"""The fields of a node that differ by the pod, and rest on other nodes."""


def reads_owner_pods(paths: Iterable[Reference]) -> bool:
    """Return whether any path reads such a field; `node` as a whole holds them."""
    return any(path[0] == "node" and (len(path) == 1 or path[1] in OWNER_FIELDS) for path in paths)


def owner_pods(field: str, pod: Pod | None, view: ClusterView) -> IntColumn:
    """Return a field of `OWNER_FIELDS` for each node, (n,).

    Those that are being deleted do not count; see `controller_selector` for what an owner is.
    """
    if view.parent is not None:
        whole, rows = view.parent
        return owner_pods(field, pod, whole).take(rows)
    selector = None if pod is None else controller_selector(pod)
    if pod is None or selector is None:
        return np.zeros(len(view), np.int64)
    query = PodQuery(frozenset((pod.namespace,)), selector)
    pods = pods_matching(view, (query,), terminating=False)
    if field == ON_NODE:
        return pods
    zones = label_column(view, ZONE_LABEL)
    sums = np.bincount(zones.codes, pods, minlength=len(zones.book)).astype(np.int64)
    sums[MISSING] = 0
    return zones.spread(sums)


USAGE_LIFETIME: Final = 180 * SECOND
"""The age at which a usage report expires: the default of LoadAware."""

_MILLI = 1000
_NANOS_PER_MICRO = 1000
_ZERO: Final = {CPU: 0.0, MEMORY: 0.0}


def request_value(root: str, request: PlacementRequest) -> object:
    """Return the value of a name that depends on the request alone."""
    return _REQUEST_VALUES[root](request)


def now_value(now: Micros) -> Timestamp:
    """Return a moment as expressions see it: it moves in steps."""
    return timestamp_value(Micros(now - now % (NOW_STEP_SECONDS * SECOND)))


def timestamp_value(moment: Micros) -> Timestamp:
    return Timestamp(moment * _NANOS_PER_MICRO)


def condition_value(condition: NodeCondition) -> dict[str, object]:
    value: dict[str, object] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
    }
    if condition.since is not None:
        value["lastTransitionTime"] = timestamp_value(condition.since)
    return value


def namespace_labels(request: PlacementRequest) -> dict[str, str]:
    """Return the labels of the pod's namespace; its name is always among them."""
    return {NAMESPACE_NAME_LABEL: request.pod.namespace, **request.namespace_labels}


def pod_value(fields: Iterable[str], pod: Pod) -> dict[str, object]:
    """Return the pod of a request with `fields`, which are among `POD_FIELDS`."""
    return {field: POD_FIELDS[field](pod) for field in fields}


def node_value(
    fields: Iterable[str], view: ClusterView, row: int, now: Micros, pod: Pod | None = None
) -> dict[str, object]:
    """Return the node of a row with those of `fields` that are known."""
    values: dict[str, object] = {}
    for field in fields:
        value = NODE_FIELDS[field](view, row, now, pod)
        if value is not None:
            values[field] = value
    return values


def amounts_value(amounts: Amounts) -> dict[str, float]:
    """Return amounts as expressions see them: cpu in cores, all else in whole units."""
    return {
        name: float(amount) / _MILLI if name == CPU else float(amount)
        for name, amount in amounts.items()
    }


def taints_value(taints: Iterable[api.Taint]) -> list[object]:
    return [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]


@cached_by_shape
def _requests(shape: PodShape) -> dict[str, float]:
    """Return the requests of a pod. INVARIANT: many decisions share it, none writes to it."""
    return _ZERO | amounts_value(shape.requests)


def _tolerations(pod: Pod) -> list[object]:
    return [
        {"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect}
        for each in pod.tolerations
    ]


def _namespace_value(request: PlacementRequest) -> dict[str, object]:
    labels = namespace_labels(request)
    return {"metadata": {"name": request.pod.namespace, "labels": labels}}


POD_FIELDS: Final[Mapping[str, Callable[[Pod], object]]] = {
    "name": lambda pod: pod.name,
    "generateName": lambda pod: pod.generate_name,
    "namespace": lambda pod: pod.namespace,
    "labels": lambda pod: dict(pod.labels),
    "annotations": lambda pod: dict(pod.annotations),
    "requests": lambda pod: _requests(pod.shape),
    "limits": lambda pod: amounts_value(pod.shape.limits),
    "qosClass": lambda pod: pod.shape.qos_class,
    "priority": lambda pod: pod.priority,
    "priorityClassName": lambda pod: pod.priority_class_name,
    "koordinatorPriorityClass": lambda pod: pod.shape.priority_class.value,
    "ownerKinds": lambda pod: list(pod.owner_kinds),
    "nodeSelector": lambda pod: dict(pod.node_selector),
    "notEvictableBy": lambda pod: list(pod.not_evictable_by),
    "tolerations": _tolerations,
    "schedulerName": lambda pod: pod.scheduler_name,
}
"""The getter of each field of `pod`; all of them take about 10 us."""


_REQUEST_VALUES: Final[Mapping[str, Callable[[PlacementRequest], object]]] = {
    "object": lambda request: request.object,
    "oldObject": lambda _: None,
    "request": lambda request: dict(request.request),
    "namespaceObject": _namespace_value,
}


def _node(view: ClusterView, row: int) -> Node:
    node = view.nodes[row]
    assert node is not None  # noqa: S101 - INVARIANT: the row is valid
    return node


def _creation_timestamp(view: ClusterView, row: int, *_: object) -> Timestamp | None:
    created = _node(view, row).created
    return None if created is None else timestamp_value(created)


def _usage(view: ClusterView, row: int, now: Micros, _: Pod | None) -> dict[str, float] | None:
    usage = view.usages[row]
    if usage is None or usage.usage is None or now - view.metric_time[row] >= USAGE_LIFETIME:
        return None
    return amounts_value(usage.usage)


def _sum(view: ClusterView, row: int, kind: Sum) -> dict[str, float]:
    """Return a sum over the pods of a node, for the resources that it offers or they request."""
    offered = _node(view, row).allocatable
    column: IntColumn = view.sums[kind, :, row]
    known = zip(view.axis.names, column.tolist(), strict=True)
    return _ZERO | amounts_value({n: amount for n, amount in known if amount or n in offered})


NODE_FIELDS: Final[Mapping[str, Callable[[ClusterView, int, Micros, Pod | None], object]]] = {
    "name": lambda view, row, *_: view.names[row],
    "labels": lambda view, row, *_: dict(_node(view, row).labels),
    "annotations": lambda view, row, *_: dict(_node(view, row).annotations),
    "taints": lambda view, row, *_: taints_value(_node(view, row).taints),
    "unschedulable": lambda view, row, *_: _node(view, row).unschedulable,
    "ready": lambda view, row, *_: _node(view, row).ready,
    "creationTimestamp": _creation_timestamp,
    "conditions": lambda view, row, *_: [*map(condition_value, _node(view, row).conditions)],
    "allocatable": lambda view, row, *_: amounts_value(_node(view, row).allocatable),
    "requested": lambda view, row, *_: _sum(view, row, Sum.REQUESTS),
    "limits": lambda view, row, *_: _sum(view, row, Sum.LIMITS),
    "usage": _usage,
    "podCount": lambda view, row, *_: int(view.amount(view.sums[Sum.REQUESTS], PODS)[row]),
    "podsNotEvictable": lambda view, row, *_: int(pods_not_evictable(view)[row]),
    ON_NODE: lambda view, row, _, pod: int(owner_pods(ON_NODE, pod, view)[row]),
    IN_ZONE: lambda view, row, _, pod: int(owner_pods(IN_ZONE, pod, view)[row]),
}
"""The getter of each field of `node`; None where it is absent."""
