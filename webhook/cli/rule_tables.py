"""The rules of policies as tables: what each does, how it is enforced and evaluated."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.cel.vector import Plan
from engine.model.label_condition import Exactness
from engine.model.placement_options import DynamicFilters, PlacementAt
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, PolicySet, ScoreRule
from webhook.cli.tables import plain_table

_AT_BINDING = "binding"
_MICROS_PER_MILLI = 1000


def rules_table(policies: PolicySet) -> Table:
    """Return the rules of each policy, with their effect and cost."""
    table = plain_table("policy and rules", "does", "enforced by", "cost at 5,000 nodes")
    for policy in policies:
        priority = f", priority {policy.priority}" if policy.priority else ""
        table.add_row(f"[bold]{escape(policy.name)}[/]", f"{policy.mode.value}{priority}")
        for rule in policy.rules:
            does = f"score x {rule.weight}" if isinstance(rule, ScoreRule) else "filter"
            plan = _plan_of(rule)
            cost = "plugin" if plan is None else _cost(plan)
            table.add_row(f"  {escape(rule.name)}", does, enforced_by(policy, rule), cost)
    return table


def enforced_by(policy: CompiledPolicy, rule: FilterRule | ScoreRule) -> str:
    """Return what sees to it that a rule holds."""
    placement = policy.placement
    is_at_binding = placement.at is PlacementAt.BINDING
    if isinstance(rule, ScoreRule):
        return _AT_BINDING if is_at_binding else "advice only"
    labels = rule.labels.summary
    names_nodes = placement.dynamic_filters is DynamicFilters.REQUIRED
    if labels.exactness is Exactness.EXACT or not (is_at_binding or names_nodes):
        return labels.summary
    rest = _AT_BINDING if is_at_binding else "node names"
    return rest if labels.exactness is Exactness.NONE else f"{labels.summary}, {rest}"


def cost_millis(rule: FilterRule | ScoreRule) -> float | None:
    """Return what an expression is estimated to take at 5,000 nodes, None for a plugin."""
    plan = _plan_of(rule)
    return None if plan is None else plan.cost / _MICROS_PER_MILLI


def _plan_of(rule: FilterRule | ScoreRule) -> Plan | None:
    """Return how the expression of a rule is evaluated, None for a plugin."""
    return rule.evaluator.plan if isinstance(rule.evaluator, NodeExpression) else None


def show_plan(policy: CompiledPolicy, rule: FilterRule | ScoreRule, output: Console) -> None:
    """Print how an expression is evaluated, and why labels alone cannot express it."""
    plan = _plan_of(rule)
    if plan is None:
        return
    output.print(f"\n[bold]{escape(policy.name)}: {escape(rule.name)}[/]")
    output.print(plan.describe(), markup=False, soft_wrap=True)
    if isinstance(rule, FilterRule):
        for reason in sorted(rule.labels.summary.reasons):
            output.print(f"not by labels alone: {escape(reason)}")


def _cost(plan: Plan) -> str:
    """Return the estimated cost of an expression, and the strategy of its costliest part."""
    costliest = max(plan.parts, key=lambda part: part.cost)
    return f"{plan.cost / _MICROS_PER_MILLI:.2f} ms, {costliest.strategy.value}"
