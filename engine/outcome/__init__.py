"""What became of decisions: where pods were bound, as the policies see it that had a say.

What belongs here: what a decision at a binding says of the node, and of the scheduler's; whether
advice was followed; the figures of policies in a window of time; and whether a policy makes things
worse. What never does: how bindings are seen, where figures are stored, what follows from them.
"""

from engine.outcome.figures import OutcomeCounts
from engine.outcome.landing import (
    LandingJudgement,
    PolicyLanding,
    advised_landings,
    binding_landings,
)
from engine.outcome.verdict import WorseRules, may_be_audited, why_worse
from engine.outcome.window import OutcomeWindow, WindowState

__all__ = [
    "LandingJudgement",
    "OutcomeCounts",
    "OutcomeWindow",
    "PolicyLanding",
    "WindowState",
    "WorseRules",
    "advised_landings",
    "binding_landings",
    "may_be_audited",
    "why_worse",
]
