"""The values of the names in `engine.policy.environment`, as plain CEL values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from engine.cel import Program, Reference, Timestamp
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.node import Node, NodeCondition
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape, cached_by_shape
from engine.model.quantity import CPU, MEMORY
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
    is_long,
    label_column,
    pods_matching,
    pods_not_evictable,
)
from engine.view.axis import PODS

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

NOW_STEP_SECONDS: Final = 10
"""The step in which `now` moves: columns that depend on it last for as long."""

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
    """Return a moment, exactly."""
    return Timestamp(moment * _NANOS_PER_MICRO)


def condition_value(condition: NodeCondition) -> dict[str, object]:
    """Return a condition of a node as expressions see it."""
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
    """Return taints as expressions see them."""
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


class PodAttribute(NamedTuple):
    """An attribute of a pod that decides the value of a field, and can be a part of a key."""

    name: str  # of the attribute
    is_map: bool = False  # whether only its values can, each by its key


POD_ATTRIBUTES: Final[Mapping[str, PodAttribute]] = {
    "namespace": PodAttribute("namespace"),
    "labels": PodAttribute("labels", is_map=True),
    "annotations": PodAttribute("annotations", is_map=True),
    "requests": PodAttribute("shape"),
    "limits": PodAttribute("shape"),
    "qosClass": PodAttribute("shape"),
    "priority": PodAttribute("priority"),
    "priorityClassName": PodAttribute("priority_class_name"),
    "koordinatorPriorityClass": PodAttribute("shape"),
    "ownerKinds": PodAttribute("owner_kinds"),
    "nodeSelector": PodAttribute("node_selector", is_map=True),
    "notEvictableBy": PodAttribute("not_evictable_by"),
    "tolerations": PodAttribute("tolerations"),
    "schedulerName": PodAttribute("scheduler_name"),
}
"""What decides the fields of `pod` that pods of one template have in common."""

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
    "podCount": lambda view, row, *_: int(view.sums[Sum.REQUESTS, PODS, row]),
    "podsNotEvictable": lambda view, row, *_: int(pods_not_evictable(view)[row]),
    ON_NODE: lambda view, row, _, pod: int(owner_pods(ON_NODE, pod, view)[row]),
    IN_ZONE: lambda view, row, _, pod: int(owner_pods(IN_ZONE, pod, view)[row]),
}
"""The getter of each field of `node`; None where it is absent."""

_TEMPLATES: Final = 256  # of one policy; some kilobytes each
_LARGEST_SHAPE: Final = 8_192  # bytes, as of `cached_by_shape`
_FIELD_DEPTH: Final = 2  # of a path such as `pod.labels`


class RequestValues:
    """Values of a request by name, each computed when it is read.

    Attributes:
        activation: what programs get.
        pod: fields of the pod, part of the activation.
        variables: those of the policy, likewise.
        prepared: sources of the programs whose values are there.
        failed: names of variables that have no value.
        keys: of columns, by the expression, see `Plan.key`; and of all that a program reads, by its
            source, see `PolicyContext.key_of`.
        owner: stands for the request whose alone they are by now; None while they are shared.
    """

    __slots__ = ("activation", "failed", "keys", "owner", "pod", "prepared", "variables")

    def __init__(self) -> None:
        self.activation: dict[str, object] = {}
        self.pod: dict[str, object] = {}
        self.variables: dict[str, object] = {}
        self.prepared: set[str] = set()
        self.failed: set[str] = set()
        self.keys: dict[Hashable, str | None] = {}
        self.owner: RequestValues | None = None


class SharedValues:
    """Values that expressions of a policy read of pods alone, shared by pods that agree in them.

    Where a value costs some of the budget or fails they are withdrawn: each request is charged for
    its own, and has the errors of its own.
    """

    def __init__(self, programs: Iterable[Program], variables: Mapping[str, Program]) -> None:
        paths = {each.source: _pod_paths(each, variables) for each in programs}
        known = {source: found for source, found in paths.items() if found is not None}
        self.sources: Final = frozenset(known)
        """Of the programs that read nothing of a request but what is shared."""
        read = sorted(frozenset[Reference]().union(*known.values()))
        self._attributes = tuple(dict.fromkeys(_attribute(path) for path in read if not _key(path)))
        self._entries = tuple((_attribute(path), _key(path)) for path in read if _key(path))
        self._templates: OrderedDict[Hashable, RequestValues] = OrderedDict()

    def of(self, pod: Pod) -> RequestValues:
        """Return the values of a pod."""
        template = self._template(pod)
        values = self._templates.get(template)
        if values is not None:
            self._templates.move_to_end(template)
            return values
        values = RequestValues()
        if pod.shape.size <= _LARGEST_SHAPE and not is_long(template):
            self._templates[template] = values
            if len(self._templates) > _TEMPLATES:
                self._templates.popitem(last=False)
        return values

    def withdraw(self, pod: Pod, values: RequestValues, owner: RequestValues) -> None:
        """Leave values to the request of a pod, whose other values are `owner`."""
        values.owner = owner
        self._templates.pop(self._template(pod), None)

    def _template(self, pod: Pod) -> tuple[Hashable, ...]:
        """Return all that the programs read of a pod."""
        read: list[Hashable] = [getattr(pod, name) for name in self._attributes]
        if self._entries:
            read += [getattr(pod, name).get(key) for name, key in self._entries]
        return tuple(read)


def _pod_paths(program: Program, variables: Mapping[str, Program]) -> frozenset[Reference] | None:
    """Return the paths of a pod that a program reads, also by variables; None if it reads more."""
    paths, left, seen = set[Reference](), [program], set[str]()
    while left:
        for path in left.pop().references:
            root, name = (*path, "")[:2]
            if root == "variables":
                names = {name} if name else variables.keys()
                left.extend(variables[each] for each in names - seen if each in variables)
                seen |= names
            elif root == "pod" and _is_shared(path):
                paths.add(path[: _FIELD_DEPTH + 1])
            elif root not in {"node", "nodes"}:
                return None
    return frozenset(paths)


def _is_shared(path: Reference) -> bool:
    """Return whether what a path leads to is part of a template: a text or a number, not a map."""
    return (
        len(path) >= _FIELD_DEPTH
        and path[1] in POD_ATTRIBUTES
        and (not POD_ATTRIBUTES[path[1]].is_map or len(path) > _FIELD_DEPTH)
    )


def _attribute(path: Reference) -> str:
    return POD_ATTRIBUTES[path[1]].name


def _key(path: Reference) -> str:
    """Return the key that a path has in a map of the pod, "" where it is not one's."""
    return path[_FIELD_DEPTH] if POD_ATTRIBUTES[path[1]].is_map else ""
