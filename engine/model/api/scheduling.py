"""The groups of scheduling: PriorityClasses; ElasticQuotas and PodGroups of either group."""

from __future__ import annotations

from datetime import datetime

from engine.model.api.meta import ObjectMeta, ResourceList, WireStruct


class ElasticQuotaSpec(WireStruct, frozen=True):
    """The guaranteed and the greatest amounts of a namespace."""

    min: ResourceList | None = None
    max: ResourceList | None = None


class ElasticQuotaStatus(WireStruct, frozen=True):
    """The last count of the quota's controller."""

    used: ResourceList | None = None


class ElasticQuota(WireStruct, frozen=True):
    """An ElasticQuota of either API group."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()


class PodGroupSpec(WireStruct, frozen=True):
    """How many pods must run, and what they need."""

    min_member: int = 0
    min_resources: ResourceList | None = None
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(WireStruct, frozen=True):
    """What its controller has written."""

    phase: str = ""
    occupied_by: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: datetime | None = None


class PodGroup(WireStruct, frozen=True):
    """A `scheduling.x-k8s.io/v1alpha1` PodGroup."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class KoordinatorPodGroup(PodGroup, frozen=True):
    """A `scheduling.sigs.k8s.io/v1alpha1` PodGroup, another object than one of the same name."""


class PriorityClass(WireStruct, frozen=True):
    """A `scheduling.k8s.io/v1` PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
