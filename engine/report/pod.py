"""A pod and the decisions for it: why it is where it is, and where it would go now."""

from __future__ import annotations

import msgspec

from engine.report.decision import BindingReport, DecisionReport, PodName


class PodReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod.

    Attributes:
        node: that it is bound to, "" for none.
        expected_node: that it counts on without being bound: advised or nominated; "" for none.
        is_held: whether our gate keeps it from the scheduler.
        binding: what became of it at its binding; None where nothing was decided then.
        noted: the reason that its decision wrote on it, in one line; "" for none.
        recorded: the decision that was made for it; None where it is not remembered.
        now: the decision if it were created now and were nowhere yet; None where there is none.
        problem: why there is no decision now, "" where there is one.
    """

    pod: PodName
    node: str = ""
    expected_node: str = ""
    is_held: bool = False
    binding: BindingReport | None = None
    noted: str = ""
    recorded: DecisionReport | None = None
    now: DecisionReport | None = None
    problem: str = ""
