"""Requests and limits of a pod, as Kubernetes and its scheduler plugins count them.

Every result is a sparse `dict` from resource name to an int64 in base units: millicores for cpu,
whole units (bytes, devices) for everything else. An absent name is not the same as zero: upstream
distinguishes the two, and so do we.

Sums run over exact values and are rounded once at the end, as Kubernetes does with quantities: two
containers of 0.3Gi take 644,245,095 bytes, not twice 322,122,548. LimitAware rounds each container,
because upstream it adds integers. So do CapacityScheduling and Trimaran; theirs can come to a
millicore or a byte more for each container than `peak_requests` and `peak_limits`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias

from engine.model import api
from engine.model.kubernetes_version import (
    ASSUMED,
    EMPTY_IS_UNSET,
    GREATEST_SUM,
    KubernetesVersion,
)
from engine.model.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    INT64_MIN,
    MEMORY,
    base_units,
    in_base_units,
    is_huge_pages,
    is_scalar,
    quantity_of,
    to_int64,
)

# Pods that are resized in place: resources that their containers have, but do not request.
#
# Until the kubelet has actuated a resize, a container or the pod itself counts for what is greater
# (component-helpers/resource/helpers.go, with UseStatusResources); from Kubernetes 1.37 on, all
# containers together do, and what the status of the pod says counts for each pod. A resize that the
# kubelet calls infeasible takes nothing on the node, yet counts for quota: it may become feasible
# later, without another check of the quota.


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
    """Return the resources of containers; amounts compare as texts, canonical by the API server."""
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


Amounts: TypeAlias = Mapping[str, int]
"""Resource name to amount in base units, without those that are never mentioned."""

QosClass: TypeAlias = Literal["Guaranteed", "Burstable", "BestEffort"]

DEFAULT_MILLICORES = 100
DEFAULT_MEMORY = 200 * 1024 * 1024
"""Assumed by scoring for a container without requests (pkg/scheduler/util/pod_resources.go)."""

_Exact: TypeAlias = dict[str, int]
"""Resource name to amount in nano-units, the finest a quantity can hold."""

_Side: TypeAlias = Literal["requests", "limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOptions:
    """How `pod_requests` and `pod_limits` count (component-helpers, PodResourcesOptions)."""

    exclude_overhead: bool = False  # leave `spec.overhead` out
    skip_pod_level_resources: bool = False  # ignore `spec.resources`
    # start the requests from nothing instead of the containers
    skip_container_level_resources: bool = False
    # count what the kubelet has actuated and allocated (in-place resize)
    use_status_resources: bool = False
    kubernetes: KubernetesVersion = ASSUMED  # the version, which decides how: see `_greatest_sum`
    # requests assumed of containers that do not name them
    non_missing_container_requests: api.ResourceList | None = None

    @property
    def counts_greatest_sum(self) -> bool:
        """Whether the three amounts of a resized pod are compared after they are summed."""
        return self.use_status_resources and self.kubernetes >= GREATEST_SUM


_DEFAULT_OPTIONS = ResourceOptions()
_SCORING_DEFAULTS: api.ResourceList = {CPU: f"{DEFAULT_MILLICORES}m", MEMORY: DEFAULT_MEMORY}


def as_the_scheduler(kubernetes: KubernetesVersion = ASSUMED) -> ResourceOptions:
    """Return the options by which the scheduler of a version counts pods, on nodes and before."""
    return ResourceOptions(use_status_resources=True, kubernetes=kubernetes)


def amounts(resource_list: Mapping[str, str | float | None] | None) -> dict[str, int]:
    """Return a resource list in base units."""
    return {name: base_units(name, text) for name, text in (resource_list or {}).items()}


def greater(first: Amounts, second: Amounts) -> dict[str, int]:
    """Return the greater amount of each resource that either names."""
    total = dict(first)
    _raise_to(total, second)
    return total


def pod_requests(pod: api.Pod, options: ResourceOptions = _DEFAULT_OPTIONS) -> dict[str, int]:
    """Return what the pod requests (component-helpers/resource/helpers.go, PodRequests)."""
    spec = pod.spec
    total: _Exact = {}
    if not options.skip_container_level_resources:
        total = _container_aggregate(pod, "requests", options)
    if spec.resources is not None and not options.skip_pod_level_resources:
        total |= _effective_pod_level(pod, "requests", options)
    if spec.overhead and not options.exclude_overhead:
        _add(total, _exact(spec.overhead))
    return _rounded(total)


def pod_limits(pod: api.Pod, options: ResourceOptions = _DEFAULT_OPTIONS) -> dict[str, int]:
    """Return how much the pod may use (component-helpers/resource/helpers.go, PodLimits).

    Overhead raises only limits that exist and are not zero: no limit plus overhead is no limit.
    """
    spec = pod.spec
    total = _container_aggregate(pod, "limits", options)
    if spec.resources is not None and not options.skip_pod_level_resources:
        total |= _effective_pod_level(pod, "limits", options)
    if spec.overhead and not options.exclude_overhead:
        overhead = _exact(spec.overhead)
        _add(total, {name: amount for name, amount in overhead.items() if total.get(name)})
    return _rounded(total)


def non_zero_requests(pod: api.Pod, kubernetes: KubernetesVersion = ASSUMED) -> dict[str, int]:
    """Return the requests as scoring sees them: containers that name none take 100m and 200Mi.

    An explicit 0 stays 0, and a pod without containers gets nothing. Where the pod itself names
    requests, containers take a default only of what neither it nor any of them names.
    Source: pkg/scheduler/framework/types.go, getNonMissingContainerRequests.
    """
    options, missing = as_the_scheduler(kubernetes), _SCORING_DEFAULTS
    if pod.spec.resources is not None and _pod_level(pod.spec.resources.requests):
        named = pod_requests(pod, options)
        missing = {name: least for name, least in missing.items() if name not in named}
    return pod_requests(pod, replace(options, non_missing_container_requests=missing))


def non_zero_container_requests(
    pod: api.Pod, kubernetes: KubernetesVersion = ASSUMED
) -> dict[str, int]:
    """Return the same of the containers alone, whatever the pod itself names.

    NodeResourcesFit of Kubernetes 1.36 scores an incoming pod by these: its scorer is not told that
    pod-level resources are enabled (noderesources/fit.go, NewFit, and resource_allocation.go,
    calculatePodResourceRequest).
    """
    options = replace(
        as_the_scheduler(kubernetes),
        non_missing_container_requests=_SCORING_DEFAULTS,
        skip_pod_level_resources=True,
    )
    return pod_requests(pod, options)


def cpu_request(pod: api.Pod) -> int:
    """Return the millicores that the kubelet, and Peaks after it, count as requested.

    The containers do not count if the pod itself names any resources, resizes in place do not at
    all, and overhead does on top of a request only.
    Source: pkg/api/v1/resource/helpers.go, GetResourceRequestQuantity.
    """
    own = pod.spec.resources
    is_pod_level = own is not None and bool(_pod_level(own.requests) or _pod_level(own.limits))
    options = ResourceOptions(exclude_overhead=True, skip_container_level_resources=is_pod_level)
    request = pod_requests(pod, options).get(CPU, 0)
    return to_int64(request + amounts(pod.spec.overhead).get(CPU, 0)) if request else 0


def container_limits(pod: api.Pod) -> dict[str, int]:
    """Return the sum of the app containers' limits alone (KEP-217's view of existing pods)."""
    total: _Exact = {}
    for container in pod.spec.containers or ():
        _add(total, _exact(_list_of(container.resources, "limits")))
    return _rounded(total)


def container_cpu(pod: api.Pod) -> tuple[tuple[int | None, int | None], ...]:
    """Return request and limit of each app container in millicores, None where it names none."""
    sides = [
        (
            amounts(_list_of(container.resources, "requests")),
            amounts(_list_of(container.resources, "limits")),
        )
        for container in pod.spec.containers or ()
    ]
    return tuple((requests.get(CPU), limits.get(CPU)) for requests, limits in sides)


def peak_limits(pod: api.Pod) -> dict[str, int]:
    """Return the limit of a pod as KEP-217 (of an incoming one) and Trimaran count it.

    Containers add up, any one init container (sidecars too) sets a floor, overhead comes on top.
    """
    return _peak(pod, "limits")


def peak_requests(pod: api.Pod) -> dict[str, int]:
    """Return the request of a pod, counted in the same way; CapacityScheduling does too."""
    return _peak(pod, "requests")


def requests_without_overhead(pod: api.Pod) -> dict[str, int]:
    """Return the same without overhead.

    This is what the controller of scheduler-plugins adds up in `status.used` of an ElasticQuota
    (pkg/controllers/elasticquota_controller.go, computePodResourceRequest).
    """
    return _peak(pod, "requests", overhead=False)


def _peak(pod: api.Pod, side: _Side, *, overhead: bool = True) -> dict[str, int]:
    total: _Exact = {}
    for container in pod.spec.containers or ():
        _add(total, _exact(_list_of(container.resources, side)))
    for container in pod.spec.init_containers or ():
        _raise_to(total, _exact(_list_of(container.resources, side)))
    if overhead:
        _add(total, _exact(pod.spec.overhead))
    return _rounded(total)


def effective_limits(pod: api.Pod, *, non_zero: bool = False) -> dict[str, int]:
    """Return LimitAware's limit of a pod (koordinator PR 1486, util.go, getPodResourceLimit).

    Each container counts the greater of limit and request. Containers add up, any one init
    container (sidecars too) sets a floor, overhead comes on top. Pod-level resources are ignored,
    and so is every name that is neither cpu, memory, ephemeral-storage nor scalar.
    """
    total: dict[str, int] = {}
    for container in pod.spec.containers or ():
        _add(total, _effective_limit(container, non_zero=non_zero))
    for container in pod.spec.init_containers or ():
        _raise_to(total, _effective_limit(container, non_zero=non_zero))
    _add(total, _counted(pod.spec.overhead))
    return {name: to_int64(amount) for name, amount in total.items()}


def qos_class(pod: api.Pod, kubernetes: KubernetesVersion = ASSUMED) -> QosClass:
    """Return the QoS class by the pod's specification (pkg/apis/core/v1/helper/qos, ComputePodQOS).

    Only positive amounts of cpu and memory count, in init containers as well; pod-level
    resources, where set, stand for all containers; up to 1.36 also where they name nothing.
    `status.qosClass` is ignored.
    """
    spec, own = pod.spec, pod.spec.resources
    names_some = own is not None and bool(_pod_level(own.requests) or _pod_level(own.limits))
    if own is not None and (names_some or kubernetes < EMPTY_IS_UNSET):
        holders: list[api.ResourceRequirements | None] = [own]
    else:
        containers = (*(spec.containers or ()), *(spec.init_containers or ()))
        holders = [container.resources for container in containers]
    requests: _Exact = {}
    limits: _Exact = {}
    are_all_limited = True
    for resources in holders:
        own_limits = _compute(_list_of(resources, "limits"))
        _add(limits, own_limits)
        _add(requests, _compute(_list_of(resources, "requests")))
        are_all_limited &= own_limits.keys() == {CPU, MEMORY}
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if are_all_limited and requests == limits else "Burstable"


def _container_aggregate(pod: api.Pod, side: _Side, options: ResourceOptions) -> _Exact:
    """Return the most that the containers need at once, see `_most_at_once`."""
    if options.counts_greatest_sum:
        return _greatest_sum(pod, side, options)
    actual = _actual_by_container(pod, side) if options.use_status_resources else {}
    spec_counts = not is_infeasible(pod.status)
    assumed = _exact(options.non_missing_container_requests) if side == "requests" else {}

    def need(container: api.Container, *, resizable: bool) -> _Exact:
        own = _exact(_list_of(container.resources, side))
        running = actual.get(container.name) if resizable else None
        if running is not None:
            own = own if spec_counts else {}
            _raise_to(own, running)
        return assumed | own

    return _most_at_once(pod, need)


def _greatest_sum(pod: api.Pod, side: _Side, options: ResourceOptions) -> _Exact:
    """Return the greatest of what is specified, allocated and actuated, summed over all containers.

    So Kubernetes counts from 1.37 on, where 1.36 sums the greatest of each container; limits are
    not allocated. A status of the pod itself has the sums. What the specification asks for does not
    count if the kubelet calls it infeasible, nor do containers without a status then.
    Source: component-helpers v0.37.2, resource/helpers.go, AggregateContainerRequests and
    AggregateContainerLimits.
    """
    own, assumed = pod.status, _exact(options.non_missing_container_requests)
    assumed = assumed if side == "requests" else {}
    spec_counts = not is_infeasible(own)
    statuses = {
        status.name: status
        for status in (*(own.init_container_statuses or ()), *(own.container_statuses or ()))
    }

    def summed(of_status: Callable[[api.ContainerStatus], api.ResourceList | None]) -> _Exact:
        def need(container: api.Container, *, resizable: bool) -> _Exact:  # noqa: ARG001 (all are)
            status = statuses.get(container.name)
            has = None if status is None else of_status(status)
            if has is None and spec_counts:
                has = _list_of(container.resources, side)
            return assumed | _exact(has)

        return _most_at_once(pod, need)

    actuated = _list_of(own.resources, side)
    if side == "limits":
        sums = [summed(lambda status: _list_of(status.resources, side))]
        sums = sums if actuated is None else [_exact(actuated)]
    elif actuated is not None and own.allocated_resources is not None:
        sums = [_exact(actuated), _exact(own.allocated_resources)]
    else:
        sums = [summed(_actuated_requests), summed(lambda status: status.allocated_resources)]
    if spec_counts:
        sums.append(_container_aggregate(pod, side, replace(options, use_status_resources=False)))
    total: _Exact = {}
    for one in sums:
        _raise_to(total, one)
    return total


def _actuated_requests(status: api.ContainerStatus) -> api.ResourceList | None:
    requests = _list_of(status.resources, "requests")
    return status.allocated_resources if requests is None else requests


class _Need(Protocol):
    """What a container needs; `resizable` for those that run while the pod does."""

    def __call__(self, container: api.Container, *, resizable: bool) -> _Exact: ...


def _most_at_once(pod: api.Pod, need: _Need) -> _Exact:
    """Return the most that the containers need at once, at any time in the pod's life.

    Sidecars run beside every container that starts after them: an init container needs itself
    plus the sidecars declared before it, and the app containers need all of them.
    """
    total: _Exact = {}
    for container in pod.spec.containers or ():
        _add(total, need(container, resizable=True))
    sidecars: _Exact = {}
    peak: _Exact = {}
    for container in pod.spec.init_containers or ():
        is_sidecar = container.restart_policy == "Always"
        own = need(container, resizable=is_sidecar)
        if is_sidecar:
            _add(total, own)
            _add(sidecars, own)
        # Only of these names: of any other, `peak` has what the sidecars so far need.
        beside = {name: sidecars.get(name, 0) for name in own}
        if not is_sidecar:
            _add(beside, own)
        _raise_to(peak, beside)
    _raise_to(total, peak)
    return total


def _actual_by_container(pod: api.Pod, side: _Side) -> dict[str, _Exact]:
    """Return the actuated resources of each container whose status has them."""
    status = pod.status
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    actual = ((container.name, _actuated_amounts(container, side)) for container in statuses)
    return {name: resources for name, resources in actual if resources is not None}


def _actuated_amounts(status: api.ContainerStatus | api.PodStatus, side: _Side) -> _Exact | None:
    """Return what the kubelet has actuated or allocated, None where a status does not say.

    Source: helpers.go, determineEffectiveRequests and determineEffectiveLimits.
    """
    if status.resources is None:
        return None
    actuated = _exact(_list_of(status.resources, side))
    if side == "requests":
        _raise_to(actuated, _exact(status.allocated_resources))
    return actuated


def _effective_pod_level(pod: api.Pod, side: _Side, options: ResourceOptions) -> _Exact:
    """Return the pod-level amounts, while they are resized the greater of both."""
    wanted = _pod_level(_list_of(pod.spec.resources, side))
    actuated = _actuated_amounts(pod.status, side) if options.use_status_resources else None
    if actuated is None or not _is_resizable(pod, side, options):
        return wanted
    effective = {} if is_infeasible(pod.status) else dict(wanted)
    _raise_to(effective, actuated)
    if options.counts_greatest_sum:
        return {name: amount for name, amount in effective.items() if _is_pod_level(name)}
    return {name: effective.get(name, 0) for name in wanted}


def _is_resizable(pod: api.Pod, side: _Side, options: ResourceOptions) -> bool:
    """Return whether the pod-level amounts may be others than it asks for."""
    own = pod.spec.resources
    if options.counts_greatest_sum:
        asks = _pod_level(_list_of(own, "requests"))
        return bool(asks) or (side == "limits" and bool(_pod_level(_list_of(own, "limits"))))
    # Upstream takes limits that the status does not have for none that are in force.
    has_limits = _list_of(pod.status.resources, "limits") is not None
    return side == "requests" or has_limits or not is_infeasible(pod.status)


def _pod_level(resource_list: api.ResourceList | None) -> _Exact:
    """Return the pod-level amounts that replace the sum over its containers."""
    return {name: amount for name, amount in _exact(resource_list).items() if _is_pod_level(name)}


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or is_huge_pages(name)


def _effective_limit(container: api.Container, *, non_zero: bool) -> dict[str, int]:
    """Return the greater of limit and request of one container, by LimitAware's rules."""
    limit = _counted(_list_of(container.resources, "limits"))
    _raise_to(limit, _counted(_list_of(container.resources, "requests")))
    if non_zero:
        limit.setdefault(CPU, DEFAULT_MILLICORES)
        limit.setdefault(MEMORY, DEFAULT_MEMORY)
    return limit


def _counted(resource_list: api.ResourceList | None) -> dict[str, int]:
    """Return the amounts that the scheduler counts on a node, except for the number of pods."""
    return {
        name: amount
        for name, amount in amounts(resource_list).items()
        if name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar(name)
    }


def _compute(resource_list: api.ResourceList | None) -> _Exact:
    """Return the amounts that decide the QoS class: positive cpu and memory."""
    return {
        name: amount
        for name, amount in _exact(resource_list).items()
        if name in (CPU, MEMORY) and amount > 0
    }


def _list_of(resources: api.ResourceRequirements | None, side: _Side) -> api.ResourceList | None:
    """Return one side of a container's resources."""
    if resources is None:
        return None
    return resources.requests if side == "requests" else resources.limits


def _exact(resource_list: Mapping[str, str | float | None] | None) -> _Exact:
    """Return a resource list in nano-units, as a new dict."""
    return {name: quantity_of(text).nanos for name, text in (resource_list or {}).items()}


def _rounded(exact: _Exact) -> dict[str, int]:
    """Return exact amounts in base units."""
    return {name: in_base_units(name, nanos) for name, nanos in exact.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add `more` to `total` name by name."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    """Raise each amount in `total` to at least that in `floor`; a missing name takes it as is."""
    for name, amount in floor.items():
        total[name] = max(total.get(name, amount), amount)


_ABSENT = INT64_MIN
"""The value of a name that is absent from a list; no amount is that small."""

_FEW = 5
"""The most keys that tables are likely to share: the types of readings over a window."""


class AmountsTable(Mapping[str, Amounts]):
    """Amounts by key: a mapping at a sixth of the memory of nested dicts.

    A cluster's usage reports hold a list per pod and percentile, 200,000 of them, nearly all with
    the same few names: each is a row of int64 instead of a dict. Keys are found by binary search,
    as an index of them would take more memory than all amounts.
    """

    __slots__ = ("_keys", "_names", "_values")

    def __init__(self, amounts: Mapping[str, Amounts]) -> None:
        names = _shared(tuple(dict.fromkeys(name for row in amounts.values() for name in row)))
        self._names = names
        keys = tuple(sorted(amounts))
        self._keys = _shared(keys) if len(keys) <= _FEW else keys
        self._values = array(
            "q", [amounts[key].get(name, _ABSENT) for key in keys for name in names]
        )

    def __getitem__(self, key: str) -> Amounts:
        row = self.row(key)
        if row is None:
            raise KeyError(key)
        return self.at(row)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.row(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def row(self, key: str) -> int | None:
        """Return the position of a key, None when it is unknown."""
        row = bisect_left(self._keys, key)
        return row if row < len(self._keys) and self._keys[row] == key else None

    def values_at(self, row: int, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the amounts of some names for the key at a position, 0 for one that is absent."""
        if names != self._names:
            return tuple(map(self.at(row).get, names, (0,) * len(names)))
        width = len(names)
        values = tuple(self._values[row * width : (row + 1) * width])
        if _ABSENT in values:
            return tuple([0 if value == _ABSENT else value for value in values])
        return values

    def at(self, row: int) -> Amounts:
        """Return the amounts of the key at a position."""
        width = len(self._names)
        values = self._values[row * width : (row + 1) * width]
        amounts = dict(zip(self._names, values, strict=True))
        if _ABSENT in values:
            return {name: value for name, value in amounts.items() if value != _ABSENT}
        return amounts


@lru_cache(maxsize=256)
def _shared(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return an equal tuple, the same object for all tables."""
    return texts
