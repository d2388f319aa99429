"""ElasticQuota at admission: bounds, verdicts and reservations.

What belongs here: the arithmetic of a quota, the wording of its denial, what reservations are and
when they are over. What never does: where they are stored, and how an answer travels.
"""

from engine.quota.batch import BatchResult, QuotaRequest, draw, expect, judge_batch
from engine.quota.bounds import (
    CohortUsage,
    cohort_usage,
    effective_max,
    effective_min,
    limited,
    over_max,
    over_min,
    sum_of,
)
from engine.quota.local_allowance import AllowanceConfig, LocalAllowance
from engine.quota.reservations import Allowance, Reservation, Reservations
from engine.quota.reservations import decode as decode_reservations
from engine.quota.rules import (
    CAPACITY_SCHEDULING_RULES,
    RESOURCE_QUOTA_RULES,
    Borrowing,
    PodAccounting,
    QuotaMode,
    QuotaRules,
    UnlistedResources,
    mode_of,
    quotas_of,
    used_by_namespace,
)
from engine.quota.state import (
    DEFAULT_RESERVATION_SECONDS,
    PendingWrite,
    QuotaState,
    ReservationTimeouts,
)
from engine.quota.status import StatusCounts, status_used
from engine.quota.verdict import QuotaVerdict, judge, judge_borrowing

__all__ = [
    "CAPACITY_SCHEDULING_RULES",
    "DEFAULT_RESERVATION_SECONDS",
    "RESOURCE_QUOTA_RULES",
    "Allowance",
    "AllowanceConfig",
    "BatchResult",
    "Borrowing",
    "CohortUsage",
    "LocalAllowance",
    "PendingWrite",
    "PodAccounting",
    "QuotaMode",
    "QuotaRequest",
    "QuotaRules",
    "QuotaState",
    "QuotaVerdict",
    "Reservation",
    "ReservationTimeouts",
    "Reservations",
    "StatusCounts",
    "UnlistedResources",
    "cohort_usage",
    "decode_reservations",
    "draw",
    "effective_max",
    "effective_min",
    "expect",
    "judge",
    "judge_batch",
    "judge_borrowing",
    "limited",
    "mode_of",
    "over_max",
    "over_min",
    "quotas_of",
    "status_used",
    "sum_of",
    "used_by_namespace",
]
