"""The groups of scheduling: PriorityClasses, and ElasticQuotas of either group."""

from __future__ import annotations

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


class PriorityClass(WireStruct, frozen=True):
    """A `scheduling.k8s.io/v1` PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str | None = None
