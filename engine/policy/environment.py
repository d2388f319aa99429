"""The names that expressions can read: one table for the checker, the values and the manual."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Final

from engine.cel import CelProblem, CelType, Environment, ObjectType, Program, ast, references
from engine.cel.static_types import list_of, map_of
from engine.cel.values import BOOL, DOUBLE, INT, MAP, NULL, STRING, TIMESTAMP
from engine.policy.activation import NOW_STEP_SECONDS
from engine.policy.resource_names import hint_if_misspelt

_TEXTS = map_of(STRING, STRING)
_AMOUNTS = map_of(STRING, DOUBLE)
OBJECT: Final = CelType("object")
"""Stands in the table for a type that is made of the entries below it."""


class ExpressionScope(IntEnum):
    """The expressions that know a name: those in the place and in the places after it."""

    MATCH = 0  # matchConditions
    VARIABLES = 1
    RULES = 2  # filters and scores

    @property
    def text(self) -> str:
        """The places, in words."""
        return ("all", "variables, filters and scores", "filters and scores")[self]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name.

    Attributes:
        path: the name, with dots.
        type: its type; `OBJECT` where further entries describe its fields.
        meaning: its meaning, and when it is absent.
        unit: the unit of a number; empty where there is none.
    """

    path: str
    type: CelType
    meaning: str
    unit: str = ""

    @property
    def scope(self) -> ExpressionScope:
        """The expressions that know it."""
        root = self.path.partition(".")[0]
        return _ROOTS_FROM.get(root, ExpressionScope.MATCH)


_ROOTS_FROM: Final = {"variables": ExpressionScope.VARIABLES, "node": ExpressionScope.RULES}


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
    Entry("node.ready", BOOL, "false only if the node reports that it is not ready"),
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
)
"""Every name that an expression can read."""

_AMOUNTS_OF_NODE: Final = "amounts are at `node.allocatable`, `node.requested` and `node.usage`"
_FREE: Final = "write `node.allocatable.cpu - node.requested.cpu`"
_OF_PODS: Final = "amounts are at `pod.requests` and `pod.limits`"
_CONTAINERS: Final = "write `object.spec.containers`: `object` is the pod as it was sent"
_EITHER: Final = "write `node` or `pod`"
_HINTS: Final[Mapping[str, str]] = {
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
    "node.pods": "their number is `node.podCount`",
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
    """Return the names that an expression at a place may refer to.

    Args:
        scope: the place.
        variables: the types of the policy's variables that it may read.
        later: the names of those that it may not read, because it is not after them.
    """
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


def misspelt_resources(program: Program) -> Iterator[CelProblem]:
    """Yield a problem for each resource that an expression reads and Kubernetes cannot have.

    Resources are keys of a map, so the checker accepts any name.
    """
    for node, _ in ast.walk(program.root):
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
        return list_of(_object_type(f"{entry.path}[]"))
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
