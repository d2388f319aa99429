"""Settings of held pods: how many and how long, their order, and who is evicted for them."""

from __future__ import annotations

from pydantic import BaseModel, Field

from engine.eviction import DEFAULT_IN_FLIGHT_PERCENT
from engine.release import QueueOrder, QueueSortName
from webhook.placement.held_pods import DEFAULT_HOLD_MAX, DEFAULT_HOLD_SECONDS
from webhook.settings.values import Names


class ReleaseSettings(BaseModel):
    """Holding pods, and releasing them."""

    hold: bool = Field(
        default=False,
        description="Hold pods with a scheduling gate while they wait for quota or their gang,"
        " and those of policies with `placement: { releaseInOrder: true }` or"
        " `preemption`. Without it, and while nobody releases pods, such pods wait for"
        " nothing.",
    )
    hold_max: int = Field(
        default=DEFAULT_HOLD_MAX,
        ge=0,
        description="Approximate maximum number of held pods; 0: none. One namespace may hold"
        " half of it, the next one half of the rest, and so on.",
    )
    hold_seconds: int = Field(
        default=DEFAULT_HOLD_SECONDS,
        ge=10,
        le=3_600,
        description="Longest time for which a pod is held, except for quota or its gang. Then it"
        " is overdue, and half a minute later no further pods are held.",
    )
    queue_sort: QueueSortName = Field(
        default="PrioritySort",
        description="Order in which held pods are released: a queue sort of kube-scheduler"
        " (PrioritySort) or scheduler-plugins; then by creation and uid.",
    )
    queue_sort_namespaces: Names = Field(
        default=("default",),
        description="Namespaces in which TopologicalSort searches AppGroups, in order; separated"
        " by commas in the environment.",
    )
    reclaim_after_seconds: int = Field(
        default=60,
        ge=0,
        le=3_600,
        description="Time after which pods of quotas above their min are evicted for a pod that"
        " waits within the min of its quota, if its quota has the annotation"
        " `stowplan.dev/reclaim`: On. With DryRun, the default, this is only reported.",
    )
    evictions_in_flight_percent: int = Field(
        default=DEFAULT_IN_FLIGHT_PERCENT,
        ge=0,
        le=100,
        description="Percentage of the running pods of a namespace that may be evicted for others"
        " at a time, but at least 10 pods.",
    )
    preemption: bool = Field(
        default=False,
        description="Evict pods of lower priority for held pods that no node takes, where their"
        " policy has `placement: { preemption: On }`. With DryRun there, it is only reported.",
    )
    recreate_gangs: bool = Field(
        default=False,
        description="Evict the members of a gang of which too few were bound in time, where it has"
        " the annotation `stowplan.dev/on-gang-failure`: Recreate, so that their owners create them"
        " again, held. Without it they are kept.",
    )

    @property
    def preempts(self) -> bool:
        """Whether pods of lower priority may be evicted, as far as policies say so."""
        return self.hold and self.preemption

    def queue_order(self) -> QueueOrder:
        """Order of held pods."""
        return QueueOrder(sort=self.queue_sort, app_group_namespaces=self.queue_sort_namespaces)
