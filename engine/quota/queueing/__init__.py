"""Queues of quotas: which of the pods that wait for quota may be released now, and why others wait.

Belongs here: the cohort and its room, weighted shares, the choice among all quotas, and the reason
of each wait, as data. Never: which node a pod goes to, when a cycle runs, and how a release is
written. All of it is exact, pure, and the same on every replica.
"""

from engine.quota.queueing.cohort import (
    Bound,
    Cohort,
    NodeSelection,
    QueuedPod,
    QueueQuota,
    QuotaCohort,
    cohort_of_nodes,
    is_within_min,
    queue_quota,
    sum_of_min,
    weighted_share,
)
from engine.quota.queueing.namespace_queues import (
    CohortLending,
    NamespaceQueue,
    NamespaceQueues,
    PodUnderWay,
    QueueRules,
    QueueSituation,
)
from engine.quota.queueing.queue import (
    AGED_MICROS,
    BorrowingQuota,
    Lack,
    QueueCycle,
    QueueDecision,
    QuotaRelease,
    QuotaWait,
    QuotaWaits,
    next_releases,
)

__all__ = [
    "AGED_MICROS",
    "BorrowingQuota",
    "Bound",
    "Cohort",
    "CohortLending",
    "Lack",
    "NamespaceQueue",
    "NamespaceQueues",
    "NodeSelection",
    "PodUnderWay",
    "QueueCycle",
    "QueueDecision",
    "QueueQuota",
    "QueueRules",
    "QueueSituation",
    "QueuedPod",
    "QuotaCohort",
    "QuotaRelease",
    "QuotaWait",
    "QuotaWaits",
    "cohort_of_nodes",
    "is_within_min",
    "next_releases",
    "queue_quota",
    "sum_of_min",
    "weighted_share",
]
