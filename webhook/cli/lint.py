"""`stowplan lint`: check policies, and show how their rules take effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.cel.vector import Plan
from engine.errors import StowplanError
from engine.model.decision import DynamicFilters
from engine.model.label_condition import Exactness
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, PolicySet, ScoreRule
from engine.policy_lint import lint_policy
from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.policy_loading import STANDARD_INPUT, load_policy_set
from webhook.cli.render import plain_table

_MICROS_PER_MILLI = 1000
_NAMES_NODES = (
    "`dynamicFilters: Required` writes node names, and Karpenter adds no node for such a pod"
)

_NOT_MARKED = "`dynamicFilters: Marked` has no effect on it: it depends on the pod"


def lint(
    paths: Annotated[list[Path], Parameter(allow_leading_hyphen=True)],
    /,
    *,
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"))] = False,
) -> int:
    """Check policy files, and show how their rules take effect.

    Every mistake is shown with its place and a hint. Plugins and their args are listed in
    `docs/plugins.md`.

    Args:
        paths: policy files, or folders of them; `-` for standard input.
        verbose: also show how each part of an expression is evaluated.
    """
    _refuse_options(paths)
    policies = load_policy_set(paths)
    output = console.output()
    output.print(_rules(policies))
    for policy in policies:
        for warning in _warnings(policy):
            output.print(f"[yellow]warning:[/] {escape(policy.name)}: {escape(warning)}")
    if verbose:
        for policy in policies:
            for rule in policy.rules:
                _show_plan(policy, rule, output)
    output.print(f"\n{len(policies)} {'policies' if len(policies) > 1 else 'policy'}, no mistakes")
    return Exit.OK


def _refuse_options(paths: list[Path]) -> None:
    """Refuse an option that is unknown: `-` is the only path that begins so."""
    for path in paths:
        if str(path).startswith("-") and path != STANDARD_INPUT:
            raise StowplanError(f"unknown option: `{path}`\nhint: see `stowplan lint --help`")


def _rules(policies: PolicySet) -> Table:
    """Return the rules of each policy, with their effect and cost."""
    table = plain_table("policy and rules", "does", "enforced by", "cost at 5,000 nodes")
    for policy in policies:
        priority = f", priority {policy.priority}" if policy.priority else ""
        table.add_row(f"[bold]{escape(policy.name)}[/]", f"{policy.mode.value}{priority}")
        for rule in policy.rules:
            if isinstance(rule, ScoreRule):
                does, enforced_by = f"score x {rule.weight}", "advice only"
            else:
                does, enforced_by = "filter", _enforced_by(policy, rule)
            plan = _plan(rule)
            cost = "plugin" if plan is None else _cost(plan)
            table.add_row(f"  {escape(rule.name)}", does, enforced_by, cost)
    return table


def _enforced_by(policy: CompiledPolicy, rule: FilterRule) -> str:
    """Return how a filter is written on a pod."""
    labels = rule.labels.summary
    how = policy.placement.dynamic_filters
    if labels.exactness is Exactness.EXACT:
        return labels.summary
    beyond_labels = ""
    if how is DynamicFilters.REQUIRED:
        beyond_labels = "node names"
    elif how is DynamicFilters.MARKED and rule.node_filter is not None:
        beyond_labels = "marks on nodes"
    if not beyond_labels:
        return labels.summary
    if labels.exactness is Exactness.NONE:
        return beyond_labels
    return f"{labels.summary}, {beyond_labels}"


def _warnings(policy: CompiledPolicy) -> Iterator[str]:
    """Yield warnings for the author of a policy."""
    if policy.placement.dynamic_filters is DynamicFilters.REQUIRED:
        yield _NAMES_NODES
    if policy.placement.dynamic_filters is DynamicFilters.MARKED:
        for rule in policy.filters:
            if rule.dynamic and rule.node_filter is None:
                yield f"{rule.name}: {_NOT_MARKED}"
    for rule in policy.filters:
        for warning in rule.labels.summary.warnings:
            yield f"{rule.name}: {warning}"
    yield from policy.warnings
    yield from lint_policy(policy)
    for part in policy.slow_parts:
        yield f"slow: {part}"


def _plan(rule: FilterRule | ScoreRule) -> Plan | None:
    """Return how the expression of a rule is evaluated, None for a plugin."""
    return rule.evaluator.plan if isinstance(rule.evaluator, NodeExpression) else None


def _show_plan(policy: CompiledPolicy, rule: FilterRule | ScoreRule, output: Console) -> None:
    """Print how an expression is evaluated, and why labels alone cannot express it."""
    plan = _plan(rule)
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
