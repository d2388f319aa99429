"""What a policy costs the decision for one pod, estimated before it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from engine.cel import Program
from engine.cel.vector import evaluated_calls, evaluation_cost
from engine.policy.expressions import NodeExpression
from engine.policy.rules import FilterRule, ScoreRule

MOST_COST_OF_A_NAMESPACE: Final = 5_000
"""Of all policies for one namespace together, 5 ms: those of others wait meanwhile."""

TOO_COSTLY_HINT: Final = "drop or join rules; `stowplan lint` shows what each costs"

_ROWS: Final = 5_000
_COST_OF_RULE: Final = 30  # beside its expression
_COST_OF_PLUGIN: Final = 150
_COST_OF_CALL: Final = 6  # such as `string(now)`
_REFRESHES: Final = 10  # of decisions, one finds all nodes changed


def cost_of(rules: Iterable[FilterRule | ScoreRule], programs: Iterable[Program]) -> int:
    """Return the microseconds of the processor that a policy takes for one pod and 5,000 nodes.

    They are right in order of magnitude. A microsecond is a step of the budget.

    Args:
        rules: its filters and scores.
        programs: those of its variables and match conditions.
    """
    cost = sum(_cost_of_values(program) for program in programs)
    for rule in rules:
        cost += _COST_OF_RULE
        if isinstance(rule.evaluator, NodeExpression):
            plan = rule.evaluator.plan
            # Twice what all nodes share: for the key of a remembered column, and for the column.
            cost += 2 * _cost_of_values(rule.evaluator.program)
            cost += plan.steps(_ROWS) + plan.refresh_cost / _REFRESHES
        else:
            cost += _COST_OF_PLUGIN
    return math.ceil(cost)


def _cost_of_values(program: Program) -> float:
    """Return the microseconds of one evaluation: functions may make texts, or read them."""
    root = program.root
    return evaluation_cost(root) + evaluated_calls(root) * _COST_OF_CALL


def too_costly(cost: int, others: int = 0) -> str:
    """Return the message for a policy of a namespace that costs too much.

    Args:
        cost: its own.
        others: that of the policies of its namespace that are in force.
    """
    whole = f", with the others of its namespace {_millis(cost + others)}" if others else ""
    return (
        f"it takes some {_millis(cost)} for each pod and 5,000 nodes{whole}:"
        f" more than the {_millis(MOST_COST_OF_A_NAMESPACE)} that policies of a namespace may"
    )


def _millis(cost: int) -> str:
    return f"{cost / 1000:.2f} ms"
