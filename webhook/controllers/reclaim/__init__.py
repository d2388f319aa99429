"""Reclaim: others are evicted for pods that wait, such as those within `min` of their quota.

What belongs here: the controller of the leader that carries out plans step by step whatever their
source, its evictions, and what it tells. What never does: who is evicted for whom
(`engine.reclaim`), and releases.
"""

from webhook.controllers.reclaim.controller import ReclaimController
from webhook.controllers.reclaim.events import EvictionEvents
from webhook.controllers.reclaim.eviction_writer import EvictionResult, EvictionWriter
from webhook.controllers.reclaim.guard_record import GuardRecord
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.metrics import ReclaimMetrics
from webhook.controllers.reclaim.overuse import OveruseParts, OveruseRevocation
from webhook.controllers.reclaim.plan_inputs import PlanInputs
from webhook.controllers.reclaim.plan_parts import PlanParts, QuotasOfMoment
from webhook.controllers.reclaim.plan_source import EventReasons, PlanSource
from webhook.controllers.reclaim.planned_victims import PlannedVictims
from webhook.controllers.reclaim.preemption_source import PreemptionSource
from webhook.controllers.reclaim.quota_source import QuotaSource, WaitingForQuota
from webhook.controllers.reclaim.reclaim import ReclaimParts
from webhook.controllers.reclaim.running_pods import RunningPods

__all__ = [
    "EventReasons",
    "EvictionEvents",
    "EvictionResult",
    "EvictionWriter",
    "GuardRecord",
    "Guards",
    "OveruseParts",
    "OveruseRevocation",
    "PlanInputs",
    "PlanParts",
    "PlanSource",
    "PlannedVictims",
    "PreemptionSource",
    "QuotaSource",
    "QuotasOfMoment",
    "ReclaimController",
    "ReclaimMetrics",
    "ReclaimParts",
    "RunningPods",
    "WaitingForQuota",
]
