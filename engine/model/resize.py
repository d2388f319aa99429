"""Pods that are resized in place: resources that their containers have, but do not request.

Until the kubelet has actuated a resize, a container counts for the greater of both
(component-helpers/resource/helpers.go, with UseStatusResources). Unlike there, a resize that the
kubelet calls infeasible still counts: it may become feasible later, without another check of the
quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from engine.model import api

_Items: TypeAlias = tuple[tuple[str, "str | int | float | None"], ...]

_NOTHING = api.ResourceRequirements()

ActuatedResources: TypeAlias = tuple[tuple[_Items, _Items, _Items] | None, ...]
"""Requests, limits and allocation of each container, None where its status has none; empty if each
container has what it requests, as nearly always."""


def actuated_resources(
    containers: Sequence[api.Container] | None, statuses: Sequence[api.ContainerStatus] | None
) -> ActuatedResources:
    """Return the resources of containers; amounts compare as texts, canonical by the API server."""
    by_name = {status.name: status for status in statuses or () if status.resources is not None}
    if not by_name:
        return ()
    containers = containers or ()
    if all(_is_actuated(container, by_name.get(container.name)) for container in containers):
        return ()
    return tuple(_actuated(by_name.get(container.name)) for container in containers)


def statuses_of(actuated: ActuatedResources, first: int = 0) -> list[api.ContainerStatus]:
    """Return statuses of containers that are named by their positions, counted from `first`."""
    return [
        api.ContainerStatus(
            name=str(position),
            resources=api.ResourceRequirements(
                requests=dict(resources[0]), limits=dict(resources[1])
            ),
            allocated_resources=dict(resources[2]),
        )
        for position, resources in enumerate(actuated, first)
        if resources is not None
    ]


def _is_actuated(container: api.Container, status: api.ContainerStatus | None) -> bool:
    if status is None or status.resources is None:
        return True
    has, wants = status.resources, container.resources or _NOTHING
    allocated = status.allocated_resources or has.requests
    return (
        (has.requests or None) == (wants.requests or None)
        and (has.limits or None) == (wants.limits or None)
        and (allocated or None) == (wants.requests or None)
    )


def _actuated(status: api.ContainerStatus | None) -> tuple[_Items, _Items, _Items] | None:
    if status is None or status.resources is None:
        return None
    has = status.resources
    return _items(has.requests), _items(has.limits), _items(status.allocated_resources)


def _items(resource_list: api.ResourceList | None) -> _Items:
    return tuple(sorted(resource_list.items())) if resource_list else ()
