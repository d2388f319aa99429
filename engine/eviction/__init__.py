"""Who is evicted for whom: one search for victims, with its strategies.

Belongs here: running pods that may be evicted and what protects them, quotas as plans count them,
the search for a node and its victims, for one pod or a gang, by reclaim or by preemption, and
revocation of what a quota uses above its runtime. All are pure functions of data and a moment.
Never: evictions, nominations, and when plans are made.
"""

from engine.eviction.candidates import Candidate, RunningPod, running_pod_of
from engine.eviction.gang_search import NeedyGang, plan_for_gang
from engine.eviction.guards import (
    DEFAULT_IN_FLIGHT_PERCENT,
    GuardState,
    most_in_flight,
    with_eviction,
    with_outcome,
)
from engine.eviction.nodes import NodeFit
from engine.eviction.overuse import OveruseSituation, Revocation, overusing, plan_revocations
from engine.eviction.plan import (
    NoPlan,
    NoPlanReason,
    Plan,
    QuotaAccount,
    QuotaStanding,
    Situation,
    Victim,
    quota_standing,
)
from engine.eviction.search import plan_for_pod
from engine.eviction.steps import Steps, completed, parts_of
from engine.eviction.strategies import Preemption, Reclaim, Strategy
from engine.eviction.workloads import DEPLOYMENT, WorkloadKey, most_unavailable

__all__ = [
    "DEFAULT_IN_FLIGHT_PERCENT",
    "DEPLOYMENT",
    "Candidate",
    "GuardState",
    "NeedyGang",
    "NoPlan",
    "NoPlanReason",
    "NodeFit",
    "OveruseSituation",
    "Plan",
    "Preemption",
    "QuotaAccount",
    "QuotaStanding",
    "Reclaim",
    "Revocation",
    "RunningPod",
    "Situation",
    "Steps",
    "Strategy",
    "Victim",
    "WorkloadKey",
    "completed",
    "most_in_flight",
    "most_unavailable",
    "overusing",
    "parts_of",
    "plan_for_gang",
    "plan_for_pod",
    "plan_revocations",
    "quota_standing",
    "running_pod_of",
    "with_eviction",
    "with_outcome",
]
