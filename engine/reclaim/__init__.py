"""Plans to take back what quotas borrow, for a pod within the `min` of its own.

Belongs here: who may be evicted, the choice of victims and of a node, the guards that keep reclaim
from going in circles, all as pure functions of data and a moment. Never: evictions, nominations,
and who plans when.
"""

from engine.reclaim.candidates import Candidate, RunningPod, running_pod_of
from engine.reclaim.guards import GuardState
from engine.reclaim.plan import NoPlan, NoPlanReason, Plan, QuotaAccount, Situation, Victim
from engine.reclaim.planner import plan_reclaim

__all__ = [
    "Candidate",
    "GuardState",
    "NoPlan",
    "NoPlanReason",
    "Plan",
    "QuotaAccount",
    "RunningPod",
    "Situation",
    "Victim",
    "plan_reclaim",
    "running_pod_of",
]
