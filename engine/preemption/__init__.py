"""Preemption for held pods: who is evicted for a pod or a gang of higher priority.

Belongs here: who is exempt, the search for victims that make room for one pod, on one node or
several, or for all pods of a gang, and its bounds, as pure functions. So is reclaim for a gang.
Never: reclaim for one pod (`engine.reclaim`), evictions, and who plans when.
"""

from engine.preemption.gang_planner import plan_gang_preemption, plan_gang_preemption_in_steps
from engine.preemption.gang_reclaim import plan_gang_reclaim, plan_gang_reclaim_in_steps
from engine.preemption.gang_search import NeedyGang
from engine.preemption.planner import plan_preemption, plan_preemption_in_steps
from engine.preemption.toleration import is_exempt, is_preempting

__all__ = [
    "NeedyGang",
    "is_exempt",
    "is_preempting",
    "plan_gang_preemption",
    "plan_gang_preemption_in_steps",
    "plan_gang_reclaim",
    "plan_gang_reclaim_in_steps",
    "plan_preemption",
    "plan_preemption_in_steps",
]
