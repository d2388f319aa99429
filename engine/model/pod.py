"""The model of a pod: identity, needs and constraints.

`pod_of` builds a `Pod` once from its wire form. Everything that sums over the pods of a node depend
on is in its `PodShape`; pods of one template share one shape object, so a cluster of 150,000 pods
holds some ten thousand of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from sys import getsizeof
from typing import Annotated, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from engine.model import api, resources
from engine.model.byte_limited_cache import ByteLimitedCache
from engine.model.disk_io import THROUGHPUT_ANNOTATION, Throughput, throughput_of
from engine.model.network import Workload, workload_of
from engine.model.quantity import INT64_MAX, INT64_MIN
from engine.model.resize import (
    Actuated,
    ActuatedResources,
    actuated_pod_resources,
    actuated_resources,
    pod_status_of,
    statuses_of,
)
from engine.model.resource_names import CPU
from engine.model.resources import Amounts
from engine.model.time import Micros, micros

PRIORITY_CLASS_LABEL = "koordinator.sh/priority-class"
QOS_CLASS_LABEL = "koordinator.sh/qosClass"
RESERVE_POD_ANNOTATION = "scheduling.koordinator.sh/reserve-pod"
SCALING_FACTORS_ANNOTATION = "scheduling.koordinator.sh/load-estimated-scaling-factors"
AFTER_SCHEDULED_ANNOTATION = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED_ANNOTATION = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
_SHAPE_CACHE_BYTES = 32 * 2**20  # some 18,000 shapes of everyday pods
_LONGEST_KEY = 4_096  # some 20 for each amount
_BARE_SHAPE = 512  # bytes of a shape without amounts, in a cache
_AMOUNT = 32  # bytes of an int
_PAIR = 128  # bytes of a tuple of two ints in a tuple
_MOST_DETAILED_BYTES = 16_384  # some 500 amounts; no node runs a pod with more
_MOST_DIGITS = 18  # below 2**63


class PriorityClass(StrEnum):
    """Koordinator's priority class of a pod, after the fall-back to its QoS class."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


_BANDS = (
    (9000, 9999, PriorityClass.PROD),
    (7000, 7999, PriorityClass.MID),
    (5000, 5999, PriorityClass.BATCH),
    (3000, 3999, PriorityClass.FREE),
)
"""Inclusive bands of `spec.priority` (Koordinator, apis/extension/priority.go)."""

_KOORDINATOR_QOS = frozenset({"LSE", "LSR", "LS", "BE", "SYSTEM"})


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodShape:
    """The part of a pod that sums over pods depend on; compared by identity, shared between pods.

    All amounts are sparse and in base units (millicores for cpu, whole units for the rest).

    Of a pod with many hundreds of containers or resources, which no node runs, `requests`, `limits`
    and `bare_requests` are exact, as quota counts them, and the rest is made of them.

    Attributes:
        requests: Kubernetes' PodRequests; of a pod that is being resized, the greater of its
            requests and its actuated resources.
        limits: Kubernetes' PodLimits, likewise.
        spec_requests: PodRequests by the specification alone, as Koordinator counts them.
        spec_limits: PodLimits, likewise.
        non_zero_requests: cpu and memory with the scoring defaults of 100m and 200Mi.
        effective_limits: LimitAware's view: the greater of limit and request per container.
        effective_limits_non_zero: the same with 100m and 200Mi for containers without either.
        container_limits: limits of the app containers alone (KEP-217's existing pods).
        peak_limits: those, or an init container's, and overhead (KEP-217's incoming pod, and every
            pod of Trimaran's).
        peak_requests: the same of requests.
        bare_requests: the same without overhead (`status.used` of an ElasticQuota).
        container_cpu: request and limit of each app container in millicores, None for none.
        overhead_cpu: of the pod itself, millicores.
        cpu_request: as the kubelet and Peaks count it, millicores.
        qos_class: Guaranteed, Burstable or BestEffort.
        priority_class: Koordinator's priority class.
        scaling_factors: the pod's own estimation factors in percent, None when it has none.
        seconds_after_scheduled: the pod's own estimation window after PodScheduled, if valid.
        seconds_after_initialized: the pod's own estimation window after Initialized, if valid.
        reserve_pod: whether it only reserves resources (Koordinator), and so carries no load.
        workload: its workload in an AppGroup, if it is in any.
        throughput: the disk bandwidth it needs, None for none.
        size: the bytes that it takes in memory, about.
    """

    requests: Amounts
    limits: Amounts
    spec_requests: Amounts
    spec_limits: Amounts
    non_zero_requests: Amounts
    effective_limits: Amounts
    effective_limits_non_zero: Amounts
    container_limits: Amounts
    peak_limits: Amounts
    peak_requests: Amounts
    bare_requests: Amounts
    container_cpu: tuple[tuple[int | None, int | None], ...]
    overhead_cpu: int
    cpu_request: int
    qos_class: str
    priority_class: PriorityClass
    scaling_factors: tuple[tuple[str, int], ...] | None
    seconds_after_scheduled: int | None
    seconds_after_initialized: int | None
    reserve_pod: bool
    workload: Workload | None
    throughput: Throughput | None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _size_of(self))

    @property
    def is_prod(self) -> bool:
        """Whether Koordinator counts the pod as production."""
        return self.priority_class is PriorityClass.PROD


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod: identity, shape and constraints.

    Attributes:
        name: empty while only `generate_name` is known.
        owner_kinds: the kinds of its owners, such as `DaemonSet`.
        containers: as they were sent.
        init_containers: as they were sent.
        images: of containers and init containers, one each, as written.
        affinity: its node affinity, None if it has none.
        gated: whether scheduling gates keep the scheduler from considering it.
        nominated_node_name: the node on which the scheduler preempts pods for it, "" for none.
        created: by the API server's clock, None while it is not stored; not converted, as it is
            seldom read.
        scheduled_at: the moment since which condition PodScheduled is True, if it has one.
        initialized_at: the moment since which condition Initialized is True, if it has one.
    """

    namespace: str
    name: str = ""
    generate_name: str = ""
    uid: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    owner_kinds: tuple[str, ...] = ()
    containers: Sequence[api.Container] = ()
    init_containers: Sequence[api.Container] = ()
    images: tuple[str, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    affinity: api.NodeAffinity | None = None
    tolerations: tuple[api.Toleration, ...] = ()
    gated: bool = False
    nominated_node_name: str = ""
    phase: str = ""
    deleting: bool = False
    created: datetime | None = None
    scheduled_at: Micros | None = None
    initialized_at: Micros | None = None
    shape: PodShape

    @property
    def key(self) -> str:
        """`namespace/name`, unique among stored pods."""
        return f"{self.namespace}/{self.name}"

    @property
    def display_name(self) -> str:
        """The name, or the prefix of the generated name with a star."""
        return self.name or (f"{self.generate_name}*" if self.generate_name else "(unnamed)")

    @property
    def is_daemon_set(self) -> bool:
        """Whether any owner is a DaemonSet (Koordinator ignores controller flag and group)."""
        return "DaemonSet" in self.owner_kinds

    @property
    def is_mirror(self) -> bool:
        """Whether it mirrors a static pod of a kubelet."""
        return MIRROR_ANNOTATION in self.annotations

    @property
    def is_terminal(self) -> bool:
        """Whether it has finished and so holds no resources."""
        return self.phase in TERMINAL_PHASES


def pod_of(wire: api.Pod, *, namespace: str = "") -> Pod:
    """Return the model of a Pod.

    Args:
        wire: the decoded object.
        namespace: that of the request, used where the object has none yet.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    meta, spec, status = wire.metadata, wire.spec, wire.status
    labels = meta.labels or {}
    annotations = meta.annotations or {}
    scheduled_at, initialized_at = _condition_times(status.conditions or ())
    return Pod(
        namespace=meta.namespace or namespace,
        name=meta.name,
        generate_name=meta.generate_name,
        uid=meta.uid,
        labels=labels,
        annotations=annotations,
        owner_kinds=tuple([owner.kind for owner in meta.owner_references or ()]),
        containers=spec.containers or (),
        init_containers=spec.init_containers or (),
        images=_images(spec),
        node_name=spec.node_name,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority or 0,
        priority_class_name=spec.priority_class_name,
        node_selector=spec.node_selector or {},
        affinity=spec.affinity.node_affinity if spec.affinity else None,
        tolerations=tuple(spec.tolerations or ()),
        gated=bool(spec.scheduling_gates),
        nominated_node_name=status.nominated_node_name,
        phase=status.phase,
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
        scheduled_at=scheduled_at,
        initialized_at=initialized_at,
        shape=shape_of(wire),
    )


def _images(spec: api.PodSpec) -> tuple[str, ...]:
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return tuple([container.image for container in containers])


def _condition_times(
    conditions: tuple[api.PodCondition, ...] | list[api.PodCondition],
) -> tuple[Micros | None, Micros | None]:
    """Return the moments since which PodScheduled and Initialized are True."""
    scheduled = initialized = None
    for condition in conditions:
        kind = condition.type
        if kind == "PodScheduled" or kind == "Initialized":  # noqa: PLR1714 (twice as fast)
            since = condition.last_transition_time
            if condition.status != "True" or since is None:
                continue
            if kind == "PodScheduled":
                scheduled = micros(since)
            else:
                initialized = micros(since)
    return scheduled, initialized


class _ShapeKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All inputs of a shape."""

    containers: list[_ContainerKey]
    init_containers: list[_ContainerKey]
    actuated: ActuatedResources
    init_actuated: ActuatedResources
    overhead: api.ResourceList | None
    pod_level: api.ResourceRequirements | None
    pod_actuated: Actuated
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


_ContainerKey: TypeAlias = tuple[api.ResourceRequirements | None, str | None]
"""Requests and limits of a container, and its restart policy."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_ShapeKey).decode


class ShapeCache:
    """Shapes by their encoded keys: looking up and holding those takes a quarter of the cost.

    Pods that exist keep their shapes alive, and their templates go on sharing them, whatever passes
    through the cache meanwhile.

    Args:
        most_bytes: of the shapes that are held here.
    """

    def __init__(self, most_bytes: int) -> None:
        self.held: ByteLimitedCache[bytes, PodShape] = ByteLimitedCache(
            most_bytes, lambda key, shape: len(key) + shape.size
        )
        self._alive: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()

    def get(self, encoded: bytes) -> PodShape:
        """Return the shape of a key."""
        shape = self.held.get(encoded)
        if shape is None:
            shape = self._alive.get(encoded)
            if shape is None:
                shape = self._alive[encoded] = _new_shape(_decode(encoded))
            self.held.put(encoded, shape)
        return shape


_shapes = ShapeCache(_SHAPE_CACHE_BYTES)


def shape_of(wire: api.Pod, cache: ShapeCache = _shapes) -> PodShape:
    """Return the shape of a pod; equal inputs give the same object while it is cached.

    Shapes of extremely large pods are not cached.

    Args:
        wire: the decoded object.
        cache: shared by all pods.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    key = _shape_key(wire)
    encoded = _encoded(key)
    if encoded is None or len(encoded) > _MOST_DETAILED_BYTES:
        return _condensed_shape(key)
    return cache.get(encoded) if len(encoded) <= _LONGEST_KEY else _new_shape(key)


def requests_of(wire: api.Pod) -> Amounts:
    """Return `shape_of(wire).requests`; for a large pod computes nothing else.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    key = _shape_key(wire)
    encoded = _encoded(key)
    if encoded is not None and len(encoded) <= _LONGEST_KEY:
        return _shapes.get(encoded).requests
    return resources.pod_requests(_wire_of(key), resources.AS_THE_SCHEDULER)


def _encoded(key: _ShapeKey) -> bytes | None:
    """Return a key as bytes; None with a number beyond 64 bits, or with half a character."""
    try:
        return _encode(key)
    except (OverflowError, UnicodeEncodeError):
        return None


def _shape_key(wire: api.Pod) -> _ShapeKey:
    spec, status = wire.spec, wire.status
    labels = wire.metadata.labels or {}
    annotations = wire.metadata.annotations or {}
    return _ShapeKey(
        _container_keys(spec.containers),
        _container_keys(spec.init_containers),
        actuated_resources(spec.containers, status.container_statuses),
        actuated_resources(spec.init_containers, status.init_container_statuses),
        spec.overhead,
        spec.resources,
        actuated_pod_resources(spec.resources, status),
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
        ),
    )


def _new_shape(key: _ShapeKey) -> PodShape:
    wire = _wire_of(key)
    qos_class = resources.qos_class(wire)
    unique: dict[tuple[tuple[str, int], ...], Amounts] = {}

    def shared(amounts: Amounts) -> Amounts:
        """Return an equal dict of this shape if there is one: most are equal, at 200 bytes each."""
        return unique.setdefault(tuple(amounts.items()), amounts)

    return PodShape(
        requests=shared(resources.pod_requests(wire, resources.AS_THE_SCHEDULER)),
        limits=shared(resources.pod_limits(wire, resources.AS_THE_SCHEDULER)),
        spec_requests=shared(resources.pod_requests(wire)),
        spec_limits=shared(resources.pod_limits(wire)),
        non_zero_requests=shared(resources.non_zero_requests(wire)),
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
    )


def _size_of(shape: PodShape) -> int:
    """Return the bytes that a shape takes, about: mostly amounts, of which many share a dict."""
    amounts = (
        shape.requests,
        shape.limits,
        shape.spec_requests,
        shape.spec_limits,
        shape.non_zero_requests,
        shape.effective_limits,
        shape.effective_limits_non_zero,
        shape.container_limits,
        shape.peak_limits,
        shape.peak_requests,
        shape.bare_requests,
    )
    different = {id(each): each for each in amounts}.values()
    factors = shape.scaling_factors or ()
    names = [name for each in (*different, dict(factors)) for name in each]
    return (
        _BARE_SHAPE
        + sum(map(getsizeof, (*different, *names, *(shape.workload or ()))))
        + _AMOUNT * len(names)
        + _PAIR * (len(shape.container_cpu) + len(factors))
    )


def _condensed_shape(key: _ShapeKey) -> PodShape:
    """Return the shape of a large pod by a quarter of the work: see `PodShape`."""
    wire = _wire_of(key)
    requests = resources.pod_requests(wire, resources.AS_THE_SCHEDULER)
    limits = resources.pod_limits(wire, resources.AS_THE_SCHEDULER)
    greater = resources.greater(requests, limits)
    qos_class = "Burstable" if greater else "BestEffort"
    return PodShape(
        requests=requests,
        limits=limits,
        spec_requests=requests,
        spec_limits=limits,
        non_zero_requests=requests,
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
