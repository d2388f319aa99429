"""Pods that are resized in place: resources that their containers have, but do not request.

Until the kubelet has actuated a resize, a container or the pod itself counts for what is greater
(component-helpers/resource/helpers.go, with UseStatusResources). A resize that the kubelet calls
infeasible takes nothing on the node, yet counts for quota: it may become feasible later, without
another check of the quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from engine.model import api

_Items: TypeAlias = tuple[tuple[str, "str | int | float | None"], ...]

_Status: TypeAlias = api.ContainerStatus | api.PodStatus

_NOTHING = api.ResourceRequirements()

_INFEASIBLE = api.PodCondition(type="PodResizePending", reason="Infeasible")

Actuated: TypeAlias = tuple[_Items, _Items, _Items] | None
"""Requests, limits and allocation by a status, None where it has none."""

ActuatedResources: TypeAlias = tuple[Actuated, ...]
"""Those of each container; empty if each has what it requests, as nearly always."""


def actuated_resources(
    containers: Sequence[api.Container] | None, statuses: Sequence[api.ContainerStatus] | None
) -> ActuatedResources:
    """Return the resources of containers; amounts compare as texts, canonical by the API server."""
    by_name = {status.name: status for status in statuses or () if status.resources is not None}
    if not by_name:
        return ()
    containers = containers or ()
    if all(
        _is_actuated(container.resources, by_name.get(container.name)) for container in containers
    ):
        return ()
    return tuple(_actuated(by_name.get(container.name)) for container in containers)


def actuated_pod_resources(
    wanted: api.ResourceRequirements | None, status: api.PodStatus
) -> Actuated:
    """Return the resources of a pod itself; None if it has what it requests, or requests none."""
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
        allocated_resources=None if actuated is None else dict(actuated[2]),
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
            allocated_resources=dict(resources[2]),
        )
        for position, resources in enumerate(actuated, first)
        if resources is not None
    ]


def _requirements(actuated: tuple[_Items, _Items, _Items]) -> api.ResourceRequirements:
    requests, limits, _ = actuated
    return api.ResourceRequirements(requests=dict(requests), limits=dict(limits))


def _is_actuated(wanted: api.ResourceRequirements | None, status: _Status | None) -> bool:
    if status is None or status.resources is None:
        return True
    has, wants = status.resources, wanted or _NOTHING
    allocated = status.allocated_resources or has.requests
    return (
        (has.requests or None) == (wants.requests or None)
        and (has.limits or None) == (wants.limits or None)
        and (allocated or None) == (wants.requests or None)
    )


def _actuated(status: _Status | None) -> Actuated:
    if status is None or status.resources is None:
        return None
    has = status.resources
    return _items(has.requests), _items(has.limits), _items(status.allocated_resources)


def _items(resource_list: api.ResourceList | None) -> _Items:
    return tuple(sorted(resource_list.items())) if resource_list else ()
