"""Decisions and patches on a terminal: the verdict first, then the nodes, then the errors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.markup import escape
from rich.table import Table

from engine.model.decision import Verdict
from engine.model.quantity import EPHEMERAL_STORAGE, MEMORY
from engine.report import DecisionReport, NodeNames, PodName
from webhook.cli.console import plain_table

_VERDICT_STYLE = {
    Verdict.PLACE: "bold green",
    Verdict.ABSTAIN: "bold yellow",
    Verdict.DENY: "bold red",
}
_IN_BYTES = (MEMORY, EPHEMERAL_STORAGE)
_MEBIBYTE = 1 << 20


def show_decision(console: Console, report: DecisionReport, names: NodeNames) -> None:
    """Print a decision."""
    console.print(verdict_line(report.verdict, report.pod, names.in_text(report.message)))
    show_reasons(console, report, names)


def verdict_line(verdict: Verdict, pod: PodName, message: str) -> str:
    """Return the verdict on a pod, and the reason for it, in one line."""
    return f"[{_VERDICT_STYLE[verdict]}]{verdict}[/] {escape(str(pod))}: {escape(message)}"


def show_reasons(console: Console, report: DecisionReport, names: NodeNames) -> None:
    """Print a decision without its verdict."""
    _show_circumstances(console, report)
    if names.note and (report.ranking or report.rejected):
        console.print(f"[dim]{names.note}[/]")
    if report.ranking:
        console.print(f"\n[bold]{report.candidates} of {report.nodes} nodes fit[/], best first")
        console.print(_ranking(report, names))
        if report.ranking[0].scores:
            console.print("[dim]points from 0 to 100 x weight, and (the raw score)[/]")
    for abstention in report.abstained:
        console.print(f"{escape(abstention.rule)} has no effect: {escape(abstention.reason)}")
    if report.rejected:
        total = sum(count.nodes for count in report.rejected_by)
        console.print(f"\n[bold]{total} left out[/]")
        console.print(_rejected(report, total, names))
    if report.inputs:
        console.print("\n[bold]Inputs of the rules[/]")
        console.print(_inputs(report, names))
    if report.audit:
        console.print("\n[bold]Not applied: what policies in Audit mode would have done[/]")
        show_decision(console, report.audit, names)


def _show_circumstances(console: Console, report: DecisionReport) -> None:
    """Print what a decision was made by, when it is made, and what went wrong."""
    if report.policies:
        console.print(f"policies: {escape(', '.join(report.policies))}")
    if report.held:
        console.print(
            "the pod is held before the scheduler sees it, where `stowplan serve --hold` is on"
        )
    if report.estimate:
        console.print(f"expected usage: {escape(', '.join(_amounts(report.estimate)))}")
    for error in report.errors:
        console.print(f"[yellow]could not be evaluated:[/] {escape(error)}")


def show_patch(console: Console, operations: Sequence[Mapping[str, Any]]) -> None:
    """Print a JSON patch, as it can be given to `kubectl patch --type=json`."""
    if not operations:
        console.print("no patch: the pod passes as it is")
        return
    text = JSONHighlighter()(_folded(operations, min(console.width, 100)))
    console.print(text, soft_wrap=True)  # no line break inside a string: it can be copied


def _ranking(report: DecisionReport, names: NodeNames) -> Table:
    """Return the candidates, best first: their points by rule, and the sum."""
    table = plain_table("node", "total")
    several = len(report.policies) > 1
    for score in report.ranking[0].scores:
        rule = score.rule
        if several or not score.policy:
            rule = f"{score.policy or 'scheduler'}\n{score.rule}"
        table.add_column(f"{escape(rule)} x {score.weight}", overflow="fold")
    for ranked in report.ranking:
        points = (f"{score.weighted} [dim]({_raw(score.raw)})[/]" for score in ranked.scores)
        table.add_row(escape(names.short(ranked.node)), f"[bold]{ranked.total}[/]", *points)
    _note_the_rest(table, report.candidates - len(report.ranking))
    return table


def _rejected(report: DecisionReport, total: int, names: NodeNames) -> Table:
    """Return the rejected nodes, each with every rule that rejected it."""
    table = plain_table("node", "policy", "filter", "reason")
    for node, rejections in report.rejected.items():
        for i, by in enumerate(rejections):
            name = "" if i else names.short(node)
            reason = names.in_text(by.reason)
            table.add_row(*map(escape, (name, by.policy, by.rule, reason)))
    _note_the_rest(table, total - len(report.rejected))
    return table


def _inputs(report: DecisionReport, names: NodeNames) -> Table:
    """Return the inputs of rules for the first nodes."""
    several = len(report.policies) > 1
    table = plain_table("node", *(["policy"] if several else []), "rule", "inputs")
    for node, rules in (report.inputs or {}).items():
        counts = Counter((rule.policy, rule.rule) for rule in rules)
        for i, rule in enumerate(rules):
            inputs = "\n".join(f"{value.name}: {value.describe()}" for value in rule.inputs)
            policy = [rule.policy] if several else []
            is_twice = counts[rule.policy, rule.rule] > 1
            name = f"{rule.rule} ({rule.kind})" if is_twice else rule.rule
            cells = ("" if i else names.short(node), *policy, name, names.in_text(inputs))
            table.add_row(*map(escape, cells))
    return table


def _note_the_rest(table: Table, count: int) -> None:
    if count > 0:
        table.add_row(f"... and {count} more", style="dim")


def _raw(score: float) -> str:
    return str(score) if isinstance(score, int) else f"{score:.4g}"


def _amounts(estimate: Mapping[str, str]) -> Iterable[str]:
    """Yield amounts; an estimate in bytes is rounded to MiB."""
    for name, amount in estimate.items():
        bytes_ = int(amount) if name in _IN_BYTES and amount.isdigit() else 0
        yield f"{name} {f'{bytes_ // _MEBIBYTE}Mi' if bytes_ >= _MEBIBYTE else amount}"


def _folded(value: object, width: int, indent: int = 0) -> str:
    """Return JSON with every value that fits on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if indent + len(flat) <= width or not isinstance(value, dict | list | tuple) or not value:
        return flat
    inner, pad = indent + 2, " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_folded(item, width, inner)}" for key, item in value.items()]
        opening, closing = "{}"
    else:
        parts = [_folded(item, width, inner) for item in value]
        opening, closing = "[]"
    body = f",\n{pad}".join(parts)
    return f"{opening}\n{pad}{body}\n{' ' * indent}{closing}"
