"""Pods that are resized in place: resources that their containers have, but do not request.

Until the kubelet has actuated a resize, a container or the pod itself counts for what is greater
(component-helpers/resource/helpers.go, with UseStatusResources); from Kubernetes 1.37 on, all
containers together do, and what the status of the pod says counts for each pod. A resize that the
kubelet calls infeasible takes nothing on the node, yet counts for quota: it may become feasible
later, without another check of the quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from engine.model import api
from engine.model.kubernetes_version import ASSUMED, GREATEST_SUM, KubernetesVersion

_Items: TypeAlias = tuple[tuple[str, "str | int | float | None"], ...] | None

_Status: TypeAlias = api.ContainerStatus | api.PodStatus

_NOTHING = api.ResourceRequirements()

_INFEASIBLE = api.PodCondition(type="PodResizePending", reason="Infeasible")

Actuated: TypeAlias = tuple[_Items, _Items, _Items] | None
"""Requests, limits and allocation by a status, None where it has none, or not all of them."""

ActuatedResources: TypeAlias = tuple[Actuated, ...]
"""Those of each container; empty if each has what it requests, as nearly always."""


def actuated_resources(
    containers: Sequence[api.Container] | None,
    statuses: Sequence[api.ContainerStatus] | None,
    kubernetes: KubernetesVersion = ASSUMED,
    *,
    infeasible: bool = False,
) -> ActuatedResources:
    """Return the resources of containers; amounts compare as texts, canonical by the API server.

    Args:
        containers: of the specification.
        statuses: those that the pod has, in any order.
        kubernetes: the version by which the pod is counted.
        infeasible: whether the kubelet calls a resize of the pod so.
    """
    sums = kubernetes >= GREATEST_SUM
    by_name = {
        status.name: status
        for status in statuses or ()
        if status.resources is not None or (sums and status.allocated_resources is not None)
    }
    if not by_name:
        return ()
    containers = containers or ()
    # Where sums count, a container without a status is no part of an infeasible one.
    if not (sums and infeasible) and all(
        _is_actuated(container.resources, by_name.get(container.name)) for container in containers
    ):
        return ()
    return tuple(_actuated(by_name.get(container.name)) for container in containers)


def actuated_pod_resources(
    wanted: api.ResourceRequirements | None,
    status: api.PodStatus,
    kubernetes: KubernetesVersion = ASSUMED,
) -> Actuated:
    """Return the resources of a pod itself; None if it has what it requests, or requests none.

    From 1.37 on they count as the sums over the containers, so they are returned as they are.
    """
    if status.resources is None:
        return None
    if kubernetes >= GREATEST_SUM:
        return _actuated(status)
    if wanted is None or _is_actuated(wanted, status):
        return None
    return _actuated(status)


def is_infeasible(status: api.PodStatus) -> bool:
    """Return whether the node can never provide the resources of the specification.

    Source: component-helpers/resource/helpers.go, IsPodResizeInfeasible.
    """
    for condition in status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def pod_status_of(
    actuated: Actuated,
    container_statuses: list[api.ContainerStatus],
    init_container_statuses: list[api.ContainerStatus],
    *,
    infeasible: bool,
) -> api.PodStatus:
    """Return the status of a pod, given those of its containers."""
    return api.PodStatus(
        resources=None if actuated is None else _requirements(actuated),
        allocated_resources=None if actuated is None else _list(actuated[2]),
        container_statuses=container_statuses,
        init_container_statuses=init_container_statuses,
        conditions=[_INFEASIBLE] if infeasible else None,
    )


def statuses_of(actuated: ActuatedResources, first: int = 0) -> list[api.ContainerStatus]:
    """Return statuses of containers that are named by their positions, counted from `first`."""
    return [
        api.ContainerStatus(
            name=str(position),
            resources=_requirements(resources),
            allocated_resources=_list(resources[2]),
        )
        for position, resources in enumerate(actuated, first)
        if resources is not None
    ]


def _requirements(actuated: tuple[_Items, _Items, _Items]) -> api.ResourceRequirements:
    requests, limits, _ = actuated
    return api.ResourceRequirements(requests=_list(requests), limits=_list(limits))


def _list(items: _Items) -> api.ResourceList | None:
    return None if items is None else dict(items)


def _is_actuated(wanted: api.ResourceRequirements | None, status: _Status | None) -> bool:
    if status is None:
        return True
    wants = wanted or _NOTHING
    if status.resources is None:
        return (status.allocated_resources or wants.requests) == wants.requests
    has = status.resources
    allocated = status.allocated_resources or has.requests
    return (
        (has.requests or None) == (wants.requests or None)
        and (has.limits or None) == (wants.limits or None)
        and (allocated or None) == (wants.requests or None)
    )


def _actuated(status: _Status | None) -> Actuated:
    if status is None:
        return None
    has = status.resources or _NOTHING
    return _items(has.requests), _items(has.limits), _items(status.allocated_resources)


def _items(resource_list: api.ResourceList | None) -> _Items:
    return None if resource_list is None else tuple(sorted(resource_list.items()))
