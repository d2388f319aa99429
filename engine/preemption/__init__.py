"""Preemption for held pods: who is evicted for a pod of higher priority, on one node or several.

Belongs here: who is exempt, the search for victims that make room for one pod, and its bounds, as
pure functions. Never: what others borrow (`engine.reclaim`), evictions, and who plans when.
"""

from engine.preemption.planner import plan_preemption, plan_preemption_in_steps
from engine.preemption.toleration import is_exempt, is_preempting

__all__ = [
    "is_exempt",
    "is_preempting",
    "plan_preemption",
    "plan_preemption_in_steps",
]
