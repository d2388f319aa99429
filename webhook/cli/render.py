"""Decisions and patches on a terminal: the verdict first, then the nodes, then what went wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.markup import escape
from rich.table import Table

from engine.model.resource_names import EPHEMERAL_STORAGE, MEMORY
from engine.model.rule_input import RuleInputs

_VERDICT_STYLE = {"Place": "bold green", "Abstain": "bold yellow", "Deny": "bold red"}
_IN_BYTES = (MEMORY, EPHEMERAL_STORAGE)
_MEBIBYTE = 1 << 20


def show_decision(console: Console, told: Mapping[str, Any]) -> None:
    """Print what `engine.report.explanation` tells."""
    console.print(verdict_line(told["verdict"], told["pod"], told["message"]))
    show_reasons(console, told)


def verdict_line(verdict: str, pod: Mapping[str, str], message: str) -> str:
    """Return what becomes of a pod, and why, in one line."""
    name = f"{pod['namespace']}/{pod['name']}"
    return f"[{_VERDICT_STYLE[verdict]}]{verdict}[/] {escape(name)}: {escape(message)}"


def show_reasons(console: Console, told: Mapping[str, Any]) -> None:
    """Print all that an explanation tells beside the verdict."""
    if told["policies"]:
        console.print(f"policies: {escape(', '.join(told['policies']))}")
    if told["estimate"]:
        console.print(f"expected usage: {escape(', '.join(_amounts(told['estimate'])))}")
    for error in told["errors"]:
        console.print(f"[yellow]could not be evaluated:[/] {escape(error)}")
    if told["ranking"]:
        console.print(f"\n[bold]{told['candidates']} of {told['nodes']} nodes fit[/], best first")
        console.print(_ranking(told))
        if told["ranking"][0]["scores"]:
            console.print("[dim]points from 0 to 100 x weight, and (the raw score)[/]")
    for score in told["abstained"]:
        console.print(f"{escape(score['rule'])} has no say: {escape(score['reason'])}")
    if told["rejected"]:
        total = sum(count["nodes"] for count in told["rejectedBy"])
        console.print(f"\n[bold]{total} left out[/]")
        console.print(_rejected(told, total))
    if told.get("inputs"):
        console.print("\n[bold]What the rules were given[/]")
        console.print(_inputs(told))
    if "audit" in told:
        console.print("\n[bold]Not applied: what policies in Audit mode would have done[/]")
        show_decision(console, told["audit"])


def show_patch(console: Console, operations: Sequence[Mapping[str, Any]]) -> None:
    """Print a JSON patch, as it can be given to `kubectl patch --type=json`."""
    if not operations:
        console.print("no patch: the pod passes as it is")
        return
    text = JSONHighlighter()(_folded(operations, min(console.width, 100)))
    console.print(text, soft_wrap=True)  # never broken inside a text, so that it can be copied


def plain_table(*columns: str) -> Table:
    """Return a table without a frame, where what is too long for its column goes on below."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _ranking(told: Mapping[str, Any]) -> Table:
    """Return the candidates, best first: their points by rule, and the sum."""
    table = plain_table("node", "total")
    several = len(told["policies"]) > 1
    for score in told["ranking"][0]["scores"]:
        rule = f"{score['policy']}\n{score['rule']}" if several else score["rule"]
        table.add_column(f"{escape(rule)} x {score['weight']}", overflow="fold")
    for row in told["ranking"]:
        points = (
            f"{score['normalized']} [dim]({_raw(score['raw'])})[/]" for score in row["scores"]
        )
        table.add_row(escape(row["node"]), f"[bold]{row['total']}[/]", *points)
    _note_the_rest(table, told["candidates"] - len(told["ranking"]))
    return table


def _rejected(told: Mapping[str, Any], total: int) -> Table:
    """Return the nodes left out, each with every rule that turned it away."""
    table = plain_table("node", "policy", "filter", "reason")
    for node, reasons in told["rejected"].items():
        for i, reason in enumerate(reasons):
            told_before = escape(node) if i == 0 else ""
            table.add_row(
                told_before, *(escape(reason[key]) for key in ("policy", "rule", "reason"))
            )
    _note_the_rest(table, total - len(told["rejected"]))
    return table


def _inputs(told: Mapping[str, Any]) -> Table:
    """Return what the first nodes were judged by, rule by rule."""
    several = len(told["policies"]) > 1
    table = plain_table("node", *(["policy"] if several else []), "rule", "inputs")
    for node, rules in told["inputs"].items():
        for i, rule in enumerate(rules):
            inputs = "\n".join(
                f"{value.name}: {value.describe()}"
                for value in msgspec.convert(rule["inputs"], RuleInputs)
            )
            told_before = [escape(node) if i == 0 else ""]
            names = [rule["policy"], rule["rule"]] if several else [rule["rule"]]
            table.add_row(*told_before, *map(escape, (*names, inputs)))
    return table


def _note_the_rest(table: Table, count: int) -> None:
    if count > 0:
        table.add_row(f"... and {count} more", style="dim")


def _raw(score: float) -> str:
    return str(score) if isinstance(score, int) else f"{score:.4g}"


def _amounts(estimate: Mapping[str, str]) -> Iterable[str]:
    """Return amounts as people write them: an estimate in bytes is rounded."""
    for name, amount in estimate.items():
        bytes_ = int(amount) if name in _IN_BYTES and amount.isdigit() else 0
        yield f"{name} {f'{bytes_ // _MEBIBYTE}Mi' if bytes_ >= _MEBIBYTE else amount}"


def _folded(value: object, width: int, indent: int = 0) -> str:
    """Return JSON in which whatever fits on a line stands on one."""
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
