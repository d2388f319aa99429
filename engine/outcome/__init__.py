"""What became of decisions: where pods were bound, judged by the policies that decided for them.

What belongs here: the judgement of a pod that was bound, against the cluster as it was without it;
the figures of policies in a window of time; and whether a policy makes things worse. What never
does: how bindings are seen, where figures are stored, what follows from them.
"""

from engine.outcome.figures import OutcomeCounts
from engine.outcome.landing import BoundPod, Judge, PolicyLanding, StockChoice, meant_nodes
from engine.outcome.verdict import WorseRules, may_be_audited, why_worse
from engine.outcome.window import OutcomeWindow, WindowState

__all__ = [
    "BoundPod",
    "Judge",
    "OutcomeCounts",
    "OutcomeWindow",
    "PolicyLanding",
    "StockChoice",
    "WindowState",
    "WorseRules",
    "may_be_audited",
    "meant_nodes",
    "why_worse",
]
