"""Shapes of pods: the amounts that pods of one template share, computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, wraps
from sys import getsizeof
from typing import Annotated, Final, TypeAlias, TypeVar, TypeVarTuple, Unpack
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import asdict, replace

from engine.model import api, resources
from engine.model.caches import ByteLimitedCache
from engine.model.elastic_quota import NAME_LABEL
from engine.model.kubernetes_version import ASSUMED, GREATEST_SUM, KubernetesVersion
from engine.model.quantity import CPU, INT64_MAX, INT64_MIN
from engine.model.resources import (
    Actuated,
    ActuatedResources,
    Amounts,
    actuated_pod_resources,
    actuated_resources,
    is_infeasible,
    pod_status_of,
    statuses_of,
)
from engine.model.scheduler_plugins import (
    THROUGHPUT_ANNOTATION,
    Throughput,
    Workload,
    throughput_of,
    workload_of,
)
from engine.model.well_known import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QOS_CLASS_LABEL,
    RESERVE_POD_ANNOTATION,
    SCALING_FACTORS_ANNOTATION,
)

_BARE_SHAPE = 512  # bytes of a shape without amounts, in a cache
_AMOUNT = 32  # bytes of an int
_PAIR = 128  # bytes of a tuple of two ints in a tuple
_TEXT = getsizeof("")


class PriorityClass(StrEnum):
    """Koordinator's priority class of a pod, after the fall-back to its QoS class."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodShape:
    """The part of a pod that sums over pods depend on; compared by identity, shared between pods.

    All amounts are sparse and in base units (millicores for cpu, whole units for the rest).

    Of a pod with many hundreds of containers or resources, which no node runs, `requests`,
    `quota_requests`, `limits` and `bare_requests` are exact, and the rest is made of them.
    """

    # Kubernetes' PodRequests; of a pod that is being resized, the greater of its requests and its
    # actuated resources, without requests that its node can never provide
    requests: Amounts
    quota_requests: Amounts  # the same with those: they may come true without another check
    limits: Amounts  # Kubernetes' PodLimits, likewise
    spec_requests: Amounts  # PodRequests by the specification alone, as Koordinator counts them
    spec_limits: Amounts  # PodLimits, likewise
    non_zero_requests: Amounts  # cpu and memory with the scoring defaults of 100m and 200Mi
    non_zero_container_requests: Amounts  # the same without what the pod itself names
    effective_limits: Amounts  # LimitAware's view: the greater of limit and request per container
    effective_limits_non_zero: Amounts  # the same with 100m and 200Mi for containers without either
    container_limits: Amounts  # limits of the app containers alone (KEP-217's existing pods)
    # those, or an init container's, and overhead (KEP-217's incoming pod, and every pod of
    # Trimaran's)
    peak_limits: Amounts
    peak_requests: Amounts  # the same of requests
    bare_requests: Amounts  # the same without overhead (`status.used` of an ElasticQuota)
    # request and limit of each app container in millicores, None for none
    container_cpu: tuple[tuple[int | None, int | None], ...]
    overhead_cpu: int  # of the pod itself, millicores
    cpu_request: int  # as the kubelet and Peaks count it, millicores
    qos_class: str  # Guaranteed, Burstable or BestEffort
    priority_class: PriorityClass  # Koordinator's priority class
    # the pod's own estimation factors in percent, None when it has none
    scaling_factors: tuple[tuple[str, int], ...] | None
    # the pod's own estimation window after PodScheduled, if valid
    seconds_after_scheduled: int | None
    # the pod's own estimation window after Initialized, if valid
    seconds_after_initialized: int | None
    reserve_pod: bool  # whether it only reserves resources (Koordinator), and so carries no load
    workload: Workload | None  # its workload in an AppGroup, if it is in any
    throughput: Throughput | None  # the disk bandwidth it needs, None for none
    quota_name: str  # the ElasticQuota of Koordinator that the pod's label names, "" for none
    size: int = field(init=False)  # the bytes that it takes in memory, about

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _size_of(self))

    @property
    def is_prod(self) -> bool:
        """Whether Koordinator counts the pod as production."""
        return self.priority_class is PriorityClass.PROD


def _size_of(shape: PodShape) -> int:
    """Return the bytes that a shape takes, about: mostly amounts, of which many share a dict."""
    amounts = (
        shape.requests,
        shape.quota_requests,
        shape.limits,
        shape.spec_requests,
        shape.spec_limits,
        shape.non_zero_requests,
        shape.non_zero_container_requests,
        shape.effective_limits,
        shape.effective_limits_non_zero,
        shape.container_limits,
        shape.peak_limits,
        shape.peak_requests,
        shape.bare_requests,
    )
    different = {id(each): each for each in amounts}.values()
    factors = shape.scaling_factors or ()
    size = _BARE_SHAPE + sum(map(getsizeof, (*different, *(shape.workload or ()))))
    # Joined: a large pod names thousands of resources, and no thread runs while each is asked.
    for names in (*different, dict(factors)):
        size += getsizeof("".join(names)) + (_TEXT + _AMOUNT) * len(names)
    return size + _PAIR * (len(shape.container_cpu) + len(factors))


_CACHED_RESULTS: Final = 1024  # of one function: the templates that arrive together
_LARGEST_SHAPE: Final = 8_192  # bytes; a pod of 20 containers with requests and limits takes 7,300

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


def cached_by_shape(
    function: Callable[[PodShape, Unpack[_Args]], _Result],
) -> Callable[[PodShape, Unpack[_Args]], _Result]:
    """Cache the results of a function of a shape; those for large shapes are computed each time.

    A cache keeps the shapes that are its keys, which anyone can make large: so it holds some 8 MiB
    of them at most.
    """
    cached: Callable[[PodShape, Unpack[_Args]], _Result]
    cached = lru_cache(maxsize=_CACHED_RESULTS)(function)  # type: ignore[assignment]

    def result(shape: PodShape, *args: *_Args) -> _Result:
        compute = cached if shape.size <= _LARGEST_SHAPE else function
        return compute(shape, *args)

    return wraps(function)(result)


# Shapes of pods, computed from their wire forms, each once.
#
# Pods of one template share one shape object, so a cluster of 150,000 pods holds some ten thousand.


_SHAPE_CACHE_BYTES = 32 * 2**20  # some 18,000 shapes of everyday pods
_LONGEST_KEY = 4_096  # some 20 for each amount
_MOST_DETAILED_BYTES = 16_384  # some 500 amounts; no node runs a pod with more
_CONTAINER_BYTES = 3  # at least
_MOST_DIGITS = 18  # below 2**63

_BANDS = (
    (9000, 9999, PriorityClass.PROD),
    (7000, 7999, PriorityClass.MID),
    (5000, 5999, PriorityClass.BATCH),
    (3000, 3999, PriorityClass.FREE),
)
"""Inclusive bands of `spec.priority` (Koordinator, apis/extension/priority.go)."""

_KOORDINATOR_QOS = frozenset({"LSE", "LSR", "LS", "BE", "SYSTEM"})


class _ShapeKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All inputs of a shape."""

    containers: list[_ContainerKey]
    init_containers: list[_ContainerKey]
    actuated: ActuatedResources
    init_actuated: ActuatedResources
    overhead: api.ResourceList | None
    pod_level: api.ResourceRequirements | None
    pod_actuated: Actuated
    resize_is_infeasible: bool
    priority: int | None
    qos_class: str
    priority_class_label: str | None
    qos_class_label: str | None
    scaling_factors: str | None
    after_scheduled: str | None
    after_initialized: str | None
    reserve_pod: bool
    workload: Workload | None
    throughput: str | None
    quota_name: str
    kubernetes: KubernetesVersion


_ContainerKey: TypeAlias = tuple[api.ResourceRequirements | None, str | None]
"""Requests and limits of a container, and its restart policy."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_ShapeKey).decode


class ShapeCache:
    """Shapes by their encoded keys: looking up and holding those takes a quarter of the cost.

    Pods that exist keep their shapes alive, and their templates go on sharing them, whatever passes
    through the cache meanwhile.
    """

    def __init__(self, most_bytes: int) -> None:
        self.held: ByteLimitedCache[bytes, PodShape] = ByteLimitedCache(
            most_bytes, lambda key, shape: len(key) + shape.size
        )
        self._alive: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()

    def get(self, encoded: bytes) -> PodShape:
        shape = self.held.get(encoded)
        if shape is None:
            shape = self._alive.get(encoded)
            if shape is None:
                shape = self._alive[encoded] = _new_shape(_decode(encoded))
            self.held.put(encoded, shape)
        return shape


_shapes = ShapeCache(_SHAPE_CACHE_BYTES)


def shape_of(
    wire: api.Pod, cache: ShapeCache = _shapes, *, kubernetes: KubernetesVersion = ASSUMED
) -> PodShape:
    """Return the shape of a pod; equal inputs give the same object while it is cached.

    Shapes of extremely large pods are not cached.
    """
    key = _shape_key(wire, kubernetes)
    encoded = _encoded(key)
    if encoded is None or len(encoded) > _MOST_DETAILED_BYTES:
        return _condensed_shape(key)
    return cache.get(encoded) if len(encoded) <= _LONGEST_KEY else _new_shape(key)


def requests_of(wire: api.Pod, kubernetes: KubernetesVersion = ASSUMED) -> Amounts:
    """Return `quota_requests` of `shape_of`; for a large pod computes nothing else."""
    key = _shape_key(wire, kubernetes)
    encoded = _encoded(key)
    if encoded is not None and len(encoded) <= _LONGEST_KEY:
        return _shapes.get(encoded).quota_requests
    return _quota_requests(key)


def _encoded(key: _ShapeKey) -> bytes | None:
    """Return a key as bytes; None with a number beyond 64 bits, or with half a character.

    Also None where it would be too long anyway: no thread runs while 10,000 containers are encoded.
    """
    containers = len(key.containers) + len(key.init_containers)
    if containers * _CONTAINER_BYTES > _MOST_DETAILED_BYTES:
        return None
    try:
        return _encode(key)
    except (OverflowError, UnicodeEncodeError):
        return None


def _shape_key(wire: api.Pod, kubernetes: KubernetesVersion) -> _ShapeKey:
    spec, status = wire.spec, wire.status
    labels = wire.metadata.labels or {}
    annotations = wire.metadata.annotations or {}
    infeasible = is_infeasible(status)
    actuated = actuated_resources(
        spec.containers, status.container_statuses, kubernetes, infeasible=infeasible
    )
    init_actuated = actuated_resources(
        spec.init_containers, status.init_container_statuses, kubernetes, infeasible=infeasible
    )
    pod_actuated = actuated_pod_resources(spec.resources, status, kubernetes)
    is_resized = bool(actuated or init_actuated or pod_actuated)
    return _ShapeKey(
        _container_keys(spec.containers),
        _container_keys(spec.init_containers),
        actuated,
        init_actuated,
        spec.overhead,
        spec.resources,
        pod_actuated,
        infeasible and (is_resized or kubernetes >= GREATEST_SUM),
        spec.priority,
        status.qos_class,
        labels.get(PRIORITY_CLASS_LABEL),
        labels.get(QOS_CLASS_LABEL),
        annotations.get(SCALING_FACTORS_ANNOTATION),
        annotations.get(AFTER_SCHEDULED_ANNOTATION),
        annotations.get(AFTER_INITIALIZED_ANNOTATION),
        annotations.get(RESERVE_POD_ANNOTATION) == "true",
        workload_of(labels),
        annotations.get(THROUGHPUT_ANNOTATION),
        labels.get(NAME_LABEL, ""),
        kubernetes,
    )


def _container_keys(containers: list[api.Container] | None) -> list[_ContainerKey]:
    return [(c.resources, c.restart_policy) for c in containers] if containers else []


def _wire_of(key: _ShapeKey) -> api.Pod:
    """Return a pod with all that its amounts depend on."""
    first_init = len(key.containers)  # app and init containers share one set of names
    return api.Pod(
        spec=api.PodSpec(
            containers=_containers(key.containers),
            init_containers=_containers(key.init_containers, first_init),
            overhead=key.overhead,
            resources=key.pod_level,
        ),
        status=pod_status_of(
            key.pod_actuated,
            statuses_of(key.actuated),
            statuses_of(key.init_actuated, first_init),
            infeasible=key.resize_is_infeasible,
        ),
    )


def _quota_requests(key: _ShapeKey) -> Amounts:
    """Return what a pod requests with all that it is resized to, feasible or not."""
    wire = _wire_of(replace(key, resize_is_infeasible=False))
    return resources.pod_requests(wire, resources.as_the_scheduler(key.kubernetes))


def _new_shape(key: _ShapeKey) -> PodShape:
    wire, counting = _wire_of(key), resources.as_the_scheduler(key.kubernetes)
    qos_class = resources.qos_class(wire, key.kubernetes)
    unique: dict[tuple[tuple[str, int], ...], Amounts] = {}

    def shared(amounts: Amounts) -> Amounts:
        """Return an equal dict of this shape if there is one: most are equal, at 200 bytes each."""
        return unique.setdefault(tuple(amounts.items()), amounts)

    requests = shared(resources.pod_requests(wire, counting))
    return PodShape(
        requests=requests,
        quota_requests=shared(_quota_requests(key)) if key.resize_is_infeasible else requests,
        limits=shared(resources.pod_limits(wire, counting)),
        spec_requests=shared(resources.pod_requests(wire)),
        spec_limits=shared(resources.pod_limits(wire)),
        non_zero_requests=shared(resources.non_zero_requests(wire, key.kubernetes)),
        non_zero_container_requests=shared(
            resources.non_zero_container_requests(wire, key.kubernetes)
        ),
        effective_limits=shared(resources.effective_limits(wire, non_zero=False)),
        effective_limits_non_zero=shared(resources.effective_limits(wire, non_zero=True)),
        container_limits=shared(resources.container_limits(wire)),
        peak_limits=shared(resources.peak_limits(wire)),
        peak_requests=shared(resources.peak_requests(wire)),
        bare_requests=shared(resources.requests_without_overhead(wire)),
        container_cpu=resources.container_cpu(wire),
        overhead_cpu=resources.amounts(wire.spec.overhead).get(CPU, 0),
        cpu_request=resources.cpu_request(wire),
        qos_class=qos_class,
        priority_class=_priority_class(key, qos_class),
        scaling_factors=_scaling_factors(key.scaling_factors),
        seconds_after_scheduled=_seconds(key.after_scheduled),
        seconds_after_initialized=_seconds(key.after_initialized),
        reserve_pod=key.reserve_pod,
        workload=key.workload,
        throughput=throughput_of(key.throughput),
        quota_name=key.quota_name,
    )


def _condensed_shape(key: _ShapeKey) -> PodShape:
    """Return the shape of a large pod by a quarter of the work: see `PodShape`."""
    wire, counting = _wire_of(key), resources.as_the_scheduler(key.kubernetes)
    requests = resources.pod_requests(wire, counting)
    limits = resources.pod_limits(wire, counting)
    greater = resources.greater(requests, limits)
    qos_class = "Burstable" if greater else "BestEffort"
    return PodShape(
        requests=requests,
        quota_requests=_quota_requests(key) if key.resize_is_infeasible else requests,
        limits=limits,
        spec_requests=requests,
        spec_limits=limits,
        non_zero_requests=requests,
        non_zero_container_requests=requests,
        effective_limits=greater,
        effective_limits_non_zero=greater,
        container_limits=limits,
        peak_limits=limits,
        peak_requests=requests,
        bare_requests=resources.requests_without_overhead(wire),
        container_cpu=(),
        overhead_cpu=resources.amounts(wire.spec.overhead).get(CPU, 0),
        cpu_request=requests.get(CPU, 0),
        qos_class=qos_class,
        priority_class=_priority_class(key, qos_class),
        scaling_factors=_scaling_factors(key.scaling_factors),
        seconds_after_scheduled=_seconds(key.after_scheduled),
        seconds_after_initialized=_seconds(key.after_initialized),
        reserve_pod=key.reserve_pod,
        workload=key.workload,
        throughput=throughput_of(key.throughput),
        quota_name=key.quota_name,
    )


def _containers(keys: Sequence[_ContainerKey], first: int = 0) -> list[api.Container]:
    """Return containers that are named by their positions, counted from `first`."""
    return [
        api.Container(name=str(position), resources=requirements, restart_policy=restart_policy)
        for position, (requirements, restart_policy) in enumerate(keys, first)
    ]


def _priority_class(key: _ShapeKey, computed_qos: str) -> PriorityClass:
    """Return Koordinator's priority class (apis/extension/priority_utils.go).

    The label comes first, even with a value that names no class, then the bands of
    `spec.priority`, then the QoS class: best effort is batch, the rest prod.
    """
    named = _named_priority_class(key)
    if named is not None:
        return named
    if key.qos_class_label in _KOORDINATOR_QOS:
        best_effort = key.qos_class_label == "BE"
    else:
        best_effort = (key.qos_class or computed_qos) == "BestEffort"
    return PriorityClass.BATCH if best_effort else PriorityClass.PROD


def _named_priority_class(key: _ShapeKey) -> PriorityClass | None:
    if key.priority_class_label is not None:
        try:
            return PriorityClass(key.priority_class_label)
        except ValueError:
            return None
    if key.priority is not None:
        for low, high, named in _BANDS:
            if low <= key.priority <= high:
                return named
    return None


_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


def _scaling_factors(text: str | None) -> tuple[tuple[str, int], ...] | None:
    """Return a pod's estimation factors; a malformed or empty text counts as none."""
    if not text:
        return None
    try:
        factors = msgspec.json.decode(text, type=dict[str, _Int64 | None])
    except (msgspec.DecodeError, RecursionError):
        return None
    return tuple((name, factor or 0) for name, factor in factors.items()) or None


def _seconds(text: str | None) -> int | None:
    """Return a base-10 integer of at least 0 and at most 18 digits, else None."""
    digits = text.removeprefix("+") if text else ""
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    return int(digits)


# Decoding of large pods in parts: nothing holds the interpreter for long.
#
# A decoder holds it until it is done, in whichever thread: some 20 ms for each MiB of containers.


class _Spec(api.PodSpec, frozen=True):
    """A specification whose containers are not decoded."""

    containers: list[msgspec.Raw] | None = None  # type: ignore[assignment]
    init_containers: list[msgspec.Raw] | None = None  # type: ignore[assignment]


class _Pod(api.Pod, frozen=True):
    spec: _Spec = _Spec()


_pod: Final = msgspec.json.Decoder(_Pod).decode
_container: Final = msgspec.json.Decoder(api.Container).decode


def decode_large_pod(raw: bytes | msgspec.Raw) -> api.Pod:
    """Return a pod as `msgspec` decodes an `api.Pod`, with turns for other threads meanwhile."""
    pod = _pod(raw)
    spec = asdict(pod.spec)
    for name in ("containers", "init_containers"):
        spec[name] = _decoded(spec[name])
    return api.Pod(metadata=pod.metadata, spec=api.PodSpec(**spec), status=pod.status)


def _decoded(containers: Sequence[msgspec.Raw] | None) -> list[api.Container] | None:
    return None if containers is None else [_container(each) for each in containers]
