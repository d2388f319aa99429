"""Cases that are known to be wrong, each with the reason. They run, and must keep failing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAME_QUOTA = "reclaim takes back what other quotas borrow; within a quota priority evicts nobody"
_NO_QUOTA = "a pod without a quota has no `min` to take anything back for; the scheduler preempts"

EXPECTED_FAILURES: Mapping[tuple[str, str], str] = {
    ("capacityscheduling", "capacityscheduling/preempt/g4-03"): _NO_QUOTA,
    ("capacityscheduling", "capacityscheduling/preempt/g5-01"): _SAME_QUOTA,
    ("capacityscheduling", "capacityscheduling/preempt/g6-06"): _NO_QUOTA,
    ("capacityscheduling", "capacityscheduling/preempt/g6-07"): (
        "victims may be on several nodes where the cohort has no room, so that a plan is found"
    ),
    ("capacityscheduling", "capacityscheduling/preempt/g6-09"): (
        "no pod is evicted that its PodDisruptionBudget protects"
    ),
    ("capacityscheduling", "capacityscheduling/e2e/g15-02"): _SAME_QUOTA,
    ("coscheduling", "coscheduling/postfilter/g5-08"): (
        "no part of a gang has room reserved that waits for the rest: all members fit, or none"
    ),
}
"""(name of the file without `.json`, id or else name of the case) to the reason."""
