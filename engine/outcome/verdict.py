"""Whether a policy makes things worse than the scheduler alone would."""

from __future__ import annotations

import msgspec

from engine.model.count_text import counted
from engine.model.placement_options import WhenNoneFits
from engine.policy import CompiledPolicy
from engine.report import OutcomeFigures


class WorseRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a policy makes things worse.

    Attributes:
        least_pods: that must have been decided at their binding and compared; fewer say nothing.
        margin: points by its own scores that its pods have less, or percent of its pods that are
            more on hot nodes, than with the stock scheduler.
    """

    least_pods: int
    margin: int


def why_worse(figures: OutcomeFigures, rules: WorseRules) -> str:
    """Return why a policy makes things worse, "" if it does not.

    Args:
        figures: of its pods in Enforce mode.
        rules: when it does.
    """
    gained, more = figures.mean_gained, figures.hot_percent_more
    if figures.compared >= rules.least_pods and gained is not None and gained <= -rules.margin:
        return (
            f"its pods landed on nodes with {-gained:.1f} points less by its own scores than those"
            f" of the stock scheduler, over {counted(figures.compared, 'pod')}"
        )
    if figures.measured >= rules.least_pods and more is not None and more >= rules.margin:
        return (
            f"{more:.1f} % more of its pods landed on hot nodes than with the stock scheduler, over"
            f" {counted(figures.measured, 'pod')}"
        )
    return ""


def may_be_audited(policy: CompiledPolicy) -> bool:
    """Return whether nothing is lost but preferences if a policy stops acting.

    A filter on node labels is a promise, and so is a denial: who may lift it is not ours to say.
    """
    denies = policy.placement.when_none_fits is WhenNoneFits.DENY
    return not denies and all(rule.dynamic for rule in policy.filters)
