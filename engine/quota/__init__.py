"""ElasticQuota at admission: bounds, verdicts, reservations and allowances.

Belongs here: the arithmetic of a quota, the wording of its denial, the state of one quota on one
replica (`QuotaState`), the validation of quotas, their figures. Never: where reservations are
stored, how a request waits, and how an answer travels.
"""

from engine.quota.batch import (
    BatchResult,
    Lends,
    QuotaRequest,
    draw,
    end_surges,
    judge_batch,
    record_demand,
)
from engine.quota.bounds import (
    CAPACITY_SCHEDULING_RULES,
    RESOURCE_QUOTA_RULES,
    Borrowing,
    CohortUsage,
    PodAccounting,
    QuotaMode,
    QuotaRules,
    Reach,
    UnlistedResources,
    cohort_usage,
    limited,
    mode_of,
    queues_pods,
    quotas_of,
    reach_of,
    used_by_namespace,
)
from engine.quota.figures import (
    QuotaFigures,
    QuotaUsage,
    Sharing,
    quota_figures,
    quota_usages,
    reserved_amounts,
    sharing,
)
from engine.quota.reservations import (
    DEFAULT_RESERVATION_SECONDS,
    Allowance,
    AllowanceConfig,
    Reservation,
    Reservations,
    ReservationTimeouts,
)
from engine.quota.reservations import decode as decode_reservations
from engine.quota.state import PendingWrite, QuotaState, StatusCounts, status_used
from engine.quota.validation import Findings, check_deletion, check_quota, quota_defaults
from engine.quota.verdict import (
    CountedPods,
    QuotaVerdict,
    ReplacedPods,
    is_exceeded,
    judge,
    judge_queued,
    no_replaced_pods,
)

__all__ = [
    "CAPACITY_SCHEDULING_RULES",
    "DEFAULT_RESERVATION_SECONDS",
    "RESOURCE_QUOTA_RULES",
    "Allowance",
    "AllowanceConfig",
    "BatchResult",
    "Borrowing",
    "CohortUsage",
    "CountedPods",
    "Findings",
    "Lends",
    "PendingWrite",
    "PodAccounting",
    "QuotaFigures",
    "QuotaMode",
    "QuotaRequest",
    "QuotaRules",
    "QuotaState",
    "QuotaUsage",
    "QuotaVerdict",
    "Reach",
    "ReplacedPods",
    "Reservation",
    "ReservationTimeouts",
    "Reservations",
    "Sharing",
    "StatusCounts",
    "UnlistedResources",
    "check_deletion",
    "check_quota",
    "cohort_usage",
    "decode_reservations",
    "draw",
    "end_surges",
    "is_exceeded",
    "judge",
    "judge_batch",
    "judge_queued",
    "limited",
    "mode_of",
    "no_replaced_pods",
    "queues_pods",
    "quota_defaults",
    "quota_figures",
    "quota_usages",
    "quotas_of",
    "reach_of",
    "record_demand",
    "reserved_amounts",
    "sharing",
    "status_used",
    "used_by_namespace",
]
