"""The values of the names in `engine.policy.environment`, as plain CEL values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from engine.cel import Reference, Timestamp
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
