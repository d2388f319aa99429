"""Pods that are resized in place: what their containers have, while that is not what they ask for.

Until the kubelet has done what it was asked, a container counts for the greater of both
(component-helpers/resource/helpers.go, with UseStatusResources). Unlike there, a resize that the
kubelet calls infeasible goes on to count as asked: a later one may become feasible, and nobody asks
again whether it fits a quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from engine.model import api

_Items: TypeAlias = tuple[tuple[str, "str | int | float | None"], ...]

_NOTHING = api.ResourceRequirements()

ActuatedResources: TypeAlias = tuple[tuple[_Items, _Items, _Items] | None, ...]
"""Requests, limits and allocation of each container, None where its status does not say; empty if
each has what it asks for, as nearly always."""


def given_to(
    containers: Sequence[api.Container] | None, statuses: Sequence[api.ContainerStatus] | None
) -> ActuatedResources:
    """Return what containers have; amounts compare as texts, which the API server has settled."""
    by_name = {one.name: one for one in statuses or () if one.resources is not None}
    if not by_name:
        return ()
    containers = containers or ()
    if all(_has_what_it_asks(one, by_name.get(one.name)) for one in containers):
        return ()
    return tuple(_given(by_name.get(one.name)) for one in containers)


def statuses_of(given: ActuatedResources) -> list[api.ContainerStatus]:
    """Return the statuses of containers that are named by their positions."""
    return [
        api.ContainerStatus(
            name=str(position),
            resources=api.ResourceRequirements(requests=dict(has[0]), limits=dict(has[1])),
            allocated_resources=dict(has[2]),
        )
        for position, has in enumerate(given)
        if has is not None
    ]


def _has_what_it_asks(container: api.Container, status: api.ContainerStatus | None) -> bool:
    if status is None or status.resources is None:
        return True
    has, wants = status.resources, container.resources or _NOTHING
    allocated = status.allocated_resources or has.requests
    return (
        (has.requests or None) == (wants.requests or None)
        and (has.limits or None) == (wants.limits or None)
        and (allocated or None) == (wants.requests or None)
    )


def _given(status: api.ContainerStatus | None) -> tuple[_Items, _Items, _Items] | None:
    if status is None or status.resources is None:
        return None
    has = status.resources
    return _items(has.requests), _items(has.limits), _items(status.allocated_resources)


def _items(resource_list: api.ResourceList | None) -> _Items:
    return tuple(sorted(resource_list.items())) if resource_list else ()
