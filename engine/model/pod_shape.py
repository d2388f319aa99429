"""Amounts of a pod: all that sums over the pods of a node depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from sys import getsizeof

from engine.model.disk_io import Throughput
from engine.model.network import Workload
from engine.model.resources import Amounts

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

    Attributes:
        requests: Kubernetes' PodRequests; of a pod that is being resized, the greater of its
            requests and its actuated resources, without requests that its node can never provide.
        quota_requests: the same with those: they may come true without another check.
        limits: Kubernetes' PodLimits, likewise.
        spec_requests: PodRequests by the specification alone, as Koordinator counts them.
        spec_limits: PodLimits, likewise.
        non_zero_requests: cpu and memory with the scoring defaults of 100m and 200Mi.
        non_zero_container_requests: the same without what the pod itself names.
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
        quota_name: the ElasticQuota of Koordinator that the pod's label names, "" for none.
        size: the bytes that it takes in memory, about.
    """

    requests: Amounts
    quota_requests: Amounts
    limits: Amounts
    spec_requests: Amounts
    spec_limits: Amounts
    non_zero_requests: Amounts
    non_zero_container_requests: Amounts
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
    quota_name: str
    size: int = field(init=False)

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
