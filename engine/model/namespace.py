"""A namespace, and what bounds its pods: quota mode, LimitRanges, ResourceQuotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.model import api
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.quantity import NATIVE, PODS, base_units, is_extended, is_huge_pages
from engine.model.resources import Amounts

QUOTA_MODE_ANNOTATION = "stowplan.dev/quota-mode"
"""Annotation of a Namespace: what an exceeded quota does there (Enforce, Queue, Audit, Off)."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace."""

    name: str
    labels: Mapping[str, str]
    quota_mode: str  # text of its annotation `stowplan.dev/quota-mode`, "" without one


def namespace_of(wire: api.Namespace) -> Namespace:
    """Return the model of a Namespace."""
    meta = wire.metadata
    mode = (meta.annotations or {}).get(QUOTA_MODE_ANNOTATION, "")
    return Namespace(meta.name, meta.labels or {}, mode)


_OF_CONTAINERS: Final = "Container"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """The defaults of a LimitRange for containers, as written; its bounds are not known here."""

    namespace: str
    name: str
    limits: Mapping[str, api.Quantity]  # quantities by resource
    requests: Mapping[str, api.Quantity]  # likewise
    node_name: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def limit_range_of(wire: api.LimitRange) -> LimitRange:
    """Return the model of a LimitRange.

    Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_LimitRangeItem: a default limit is
    the maximum where none is given, a default request the default limit, else the minimum.
    """
    limits: dict[str, api.Quantity] = {}
    requests: dict[str, api.Quantity] = {}
    for item in wire.spec.limits or ():
        if item.type != _OF_CONTAINERS:
            continue
        of_item = {**(item.max or {}), **(item.default or {})}
        limits |= of_item
        requests |= {**(item.min or {}), **of_item, **(item.default_request or {})}
    for amounts in (limits, requests):
        for resource, amount in amounts.items():
            base_units(resource, amount)
    return LimitRange(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        limits=limits,
        requests=requests,
    )


# The model of a ResourceQuota, as far as it bounds pods.
#
# Source: Kubernetes, pkg/quota/v1/evaluator/core/pods.go. Counts of other objects, and pods of DRA
# devices, are not known here.


_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_COUNTS: Final = frozenset({PODS, "count/pods"})
_PRIORITY_CLASS: Final = "PriorityClass"
_BEST_EFFORT: Final = {"BestEffort": True, "NotBestEffort": False}
_OF_EACH_CONTAINER: Final = frozenset({"cpu", "memory"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    namespace: str
    name: str
    # the greatest amounts by the quota's names of resources, such as `limits.cpu`, in base units;
    # of pods alone
    hard: Amounts
    scopes: tuple[api.ScopeRequirement, ...] = ()  # which pods count; all where there are none
    node_name: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_known(self) -> bool:
        """Whether it can be told which pods count."""
        return all(
            scope.scope_name in _BEST_EFFORT or scope.scope_name == _PRIORITY_CLASS
            for scope in self.scopes
        )

    def counts(self, pod: Pod) -> bool:
        """Return whether a pod of its namespace counts; see `is_known`."""
        return all(_matches(scope, pod) for scope in self.scopes)

    def charged(self, shape: PodShape) -> Amounts:
        """Return what a pod takes of it, by the quota's names."""
        amounts: dict[str, int] = {}
        for name in self.hard:
            of_pod, resource = _counted(name, shape)
            if resource in of_pod:
                amounts[name] = of_pod[resource]
        return amounts

    def missing(self, pod: Pod) -> Mapping[str, list[str]]:
        """Return the containers that do not say how much cpu or memory they need, by resource.

        Each must where a quota bounds it, and no default was set.
        """
        missing: dict[str, list[str]] = {}
        for name in sorted(self.hard):
            side, resource = _side_of(name)
            if resource not in _OF_EACH_CONTAINER:
                continue
            for container in (*pod.containers, *pod.init_containers):
                resources = container.resources or api.ResourceRequirements()
                named = resources.limits if side == _LIMITS else resources.requests
                if resource not in (named or {}):
                    missing.setdefault(name, []).append(container.name)
        return missing


def resource_quota_of(wire: api.ResourceQuota) -> ResourceQuota:
    spec = wire.spec
    selector = spec.scope_selector or api.ScopeSelector()
    named = [api.ScopeRequirement(scope_name=scope) for scope in spec.scopes or ()]
    return ResourceQuota(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        hard={
            name: base_units(_side_of(name)[1], amount)
            for name, amount in (spec.hard or {}).items()
            if _bounds_pods(name)
        },
        scopes=(*named, *(selector.match_expressions or ())),
    )


def resource_of(name: str) -> str:
    """Return the resource that a name of a quota bounds: `cpu` of `limits.cpu`."""
    return _side_of(name)[1]


def _bounds_pods(name: str) -> bool:
    side, resource = _side_of(name)
    if name in _COUNTS or resource in NATIVE:
        return True
    return is_huge_pages(resource) or (side == _REQUESTS and is_extended(resource))


def _side_of(name: str) -> tuple[str, str]:
    """Return whether requests or limits are bounded, and of which resource."""
    if name in _COUNTS:
        return "", PODS
    side = _LIMITS if name.startswith(_LIMITS) else _REQUESTS
    return side, name.removeprefix(side)


def _counted(name: str, shape: PodShape) -> tuple[Amounts, str]:
    side, resource = _side_of(name)
    if not side:
        return {PODS: 1}, resource
    return (shape.limits if side == _LIMITS else shape.quota_requests), resource


def _matches(scope: api.ScopeRequirement, pod: Pod) -> bool:
    if scope.scope_name in _BEST_EFFORT:
        return (pod.shape.qos_class == "BestEffort") is _BEST_EFFORT[scope.scope_name]
    named, values = pod.priority_class_name, scope.values or ()
    match scope.operator:
        case "In":
            return named in values
        case "NotIn":
            return named not in values
        case "DoesNotExist":
            return not named
        case _:
            return bool(named)
