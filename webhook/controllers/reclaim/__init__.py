"""Reclaim: pods within `min` take back what other quotas borrow, by evictions.

What belongs here: the controller of the leader that carries out plans step by step, its evictions,
and what it tells. What never does: who is evicted for whom (`engine.reclaim`), and releases.
"""

from webhook.controllers.reclaim.controller import ReclaimController
from webhook.controllers.reclaim.events import ReclaimEvents
from webhook.controllers.reclaim.eviction_writer import EvictionWriter
from webhook.controllers.reclaim.guard_record import GuardRecord
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.metrics import ReclaimMetrics
from webhook.controllers.reclaim.planning import PlanParts, QuotaStanding, ReclaimPlanner
from webhook.controllers.reclaim.reclaim import ReclaimParts
from webhook.controllers.reclaim.running_pods import RunningPods

__all__ = [
    "EvictionWriter",
    "GuardRecord",
    "Guards",
    "PlanParts",
    "QuotaStanding",
    "ReclaimController",
    "ReclaimEvents",
    "ReclaimMetrics",
    "ReclaimParts",
    "ReclaimPlanner",
    "RunningPods",
]
