"""Koordinator's tree of ElasticQuotas: runtime quotas, guarantees, checks, and whose pod is whose.

Belongs here: everything that follows from the labels and annotations of Koordinator's quotas, as
pure functions of the quotas and of the requests of their pods. Never: the quotas of other groups,
which pod of a queue goes first, and how an object is written.
"""

from engine.quota.tree.bounds import TreeBounds, UsageByQuota, tree_bounds
from engine.quota.tree.counting import bounds_in, tree_in, usage_in
from engine.quota.tree.membership import known_quota_name, quota_name
from engine.quota.tree.path import QuotaPaths
from engine.quota.tree.prefilter import TreeUsage, check_pod_fits
from engine.quota.tree.requests import QuotaRequests, sum_requests, sum_usage
from engine.quota.tree.revoke import RevocablePod, overused, pods_to_revoke
from engine.quota.tree.runtime import Claim, RuntimeQuota, redistribute, runtime_quotas
from engine.quota.tree.scaled_min import ChildMin, scaled_mins
from engine.quota.tree.tree import QuotaTree

__all__ = [
    "ChildMin",
    "Claim",
    "QuotaPaths",
    "QuotaRequests",
    "QuotaTree",
    "RevocablePod",
    "RuntimeQuota",
    "TreeBounds",
    "TreeUsage",
    "UsageByQuota",
    "bounds_in",
    "check_pod_fits",
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
