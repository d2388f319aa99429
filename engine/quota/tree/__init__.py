"""Koordinator's tree of ElasticQuotas: runtime quotas, guarantees, checks, and whose pod is whose.

Belongs here: everything that follows from the labels and annotations of Koordinator's quotas, as
pure functions of the quotas and of the requests of their pods. Never: the quotas of other groups,
which pod of a queue goes first, and how an object is written.
"""

from engine.quota.tree.path import (
    QuotaPaths,
    TreeBounds,
    UsageByQuota,
    bounds_in,
    known_quota_name,
    quota_name,
    tree_bounds,
    tree_in,
    usage_in,
)
from engine.quota.tree.tree import (
    ChildMin,
    Claim,
    QuotaRequests,
    QuotaTree,
    RevocablePod,
    RuntimeQuota,
    overused,
    pods_to_revoke,
    redistribute,
    runtime_quotas,
    scaled_mins,
    sum_requests,
    sum_usage,
)

__all__ = [
    "ChildMin",
    "Claim",
    "QuotaPaths",
    "QuotaRequests",
    "QuotaTree",
    "RevocablePod",
    "RuntimeQuota",
    "TreeBounds",
    "UsageByQuota",
    "bounds_in",
    "known_quota_name",
    "overused",
    "pods_to_revoke",
    "quota_name",
    "redistribute",
    "runtime_quotas",
    "scaled_mins",
    "sum_requests",
    "sum_usage",
    "tree_bounds",
    "tree_in",
    "usage_in",
]
