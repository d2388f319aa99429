"""Plans to take back what quotas borrow, for a pod within the `min` of its own or by their runtime.

Belongs here: who may be evicted, the choice of victims and of a node, the guards that keep reclaim
from going in circles, all as pure functions of data and a moment. Never: evictions, nominations,
and who plans when.
"""

from engine.reclaim.borrowers import (
    Accounts,
    Borrower,
    Takings,
    importance,
    less,
    within_budgets,
)
from engine.reclaim.budgets import Budgets, PodBudget
from engine.reclaim.candidates import Candidate, RunningPod, running_pod_of
from engine.reclaim.cross_node import CrossNodeSearch
from engine.reclaim.fewest import BoundedTest, TooManySetsError, fewest_enough
from engine.reclaim.groups import MOST_VICTIMS, Groups, group, members_of, sizes_of_gangs
from engine.reclaim.guards import (
    DEFAULT_IN_FLIGHT_PERCENT,
    GuardState,
    is_backed_off,
    is_paused,
    most_in_flight,
    with_eviction,
    with_outcome,
)
from engine.reclaim.node_fit import NodeFit
from engine.reclaim.node_search import NodeSearch, best_rows
from engine.reclaim.overuse import OveruseSituation, Revocation, overusing, plan_revocations
from engine.reclaim.plan import (
    NoPlan,
    NoPlanReason,
    Plan,
    QuotaAccount,
    Situation,
    Victim,
    guards_allow,
    requests_by_quota,
    victims_of,
)
from engine.reclaim.planner import plan_reclaim, plan_reclaim_in_steps, refusal_of
from engine.reclaim.preemptor import Preemptor
from engine.reclaim.search import Search
from engine.reclaim.standing import QuotaStanding, quota_standing
from engine.reclaim.steps import Steps, completed, emptied, parts_of
from engine.reclaim.toleration import is_tolerating

__all__ = [
    "DEFAULT_IN_FLIGHT_PERCENT",
    "MOST_VICTIMS",
    "Accounts",
    "Borrower",
    "BoundedTest",
    "Budgets",
    "Candidate",
    "CrossNodeSearch",
    "Groups",
    "GuardState",
    "NoPlan",
    "NoPlanReason",
    "NodeFit",
    "NodeSearch",
    "OveruseSituation",
    "Plan",
    "PodBudget",
    "Preemptor",
    "QuotaAccount",
    "QuotaStanding",
    "Revocation",
    "RunningPod",
    "Search",
    "Situation",
    "Steps",
    "Takings",
    "TooManySetsError",
    "Victim",
    "best_rows",
    "completed",
    "emptied",
    "fewest_enough",
    "group",
    "guards_allow",
    "importance",
    "is_backed_off",
    "is_paused",
    "is_tolerating",
    "less",
    "members_of",
    "most_in_flight",
    "overusing",
    "parts_of",
    "plan_reclaim",
    "plan_reclaim_in_steps",
    "plan_revocations",
    "quota_standing",
    "refusal_of",
    "requests_by_quota",
    "running_pod_of",
    "sizes_of_gangs",
    "victims_of",
    "with_eviction",
    "with_outcome",
    "within_budgets",
]
