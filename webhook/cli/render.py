"""Decisions as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_VERDICT_STYLE = {"Place": "bold green", "Abstain": "bold yellow", "Deny": "bold red"}


def show_decision(console: Console, told: Mapping[str, Any]) -> None:
    """Print what `engine.explain.explanation` tells: verdict first, then the nodes, then faults."""
    pod, verdict = told["pod"], told["verdict"]
    console.print(
        f"[{_VERDICT_STYLE[verdict]}]{verdict}[/] {escape(pod['namespace'])}/{escape(pod['name'])}:"
        f" {escape(told['message'])}"
    )
    if told["policies"]:
        console.print(f"policies: {escape(', '.join(told['policies']))}")
    if told["estimate"]:
        console.print(f"estimated usage: {_pairs(told['estimate'])}")
    if told["ranking"]:
        console.print(_ranking(told))
    if told["rejected"]:
        console.print(_rejected(told))
    for error in told["errors"]:
        console.print(f"[yellow]could not be evaluated:[/] {escape(error)}")
    if "audit" in told:
        console.print("[bold]in Audit mode, not applied:[/]")
        show_decision(console, told["audit"])


def _ranking(told: Mapping[str, Any]) -> Table:
    """Return the candidates, best first, each score as raw, normalised and weighted."""
    table = Table(title=f"{told['candidates']} of {told['nodes']} nodes fit", title_justify="left")
    table.add_column("node")
    table.add_column("total", justify="right", style="bold")
    for score in told["ranking"][0]["scores"]:
        table.add_column(f"{escape(score['rule'])}\nraw > 0..100 x {score['weight']}")
    for row in told["ranking"]:
        cells = (
            f"{score['raw']} > {score['normalized']} x {score['weight']} = {score['weighted']}"
            for score in row["scores"]
        )
        table.add_row(escape(row["node"]), str(row["total"]), *cells)
    _note_the_rest(table, told["candidates"] - len(told["ranking"]))
    return table


def _rejected(told: Mapping[str, Any]) -> Table:
    """Return the nodes left out, each with every rule that turned it away."""
    total = sum(count["nodes"] for count in told["rejectedBy"])
    table = Table(title=f"{total} left out", title_justify="left")
    for column in ("node", "policy", "filter", "reason"):
        table.add_column(column)
    for node, reasons in told["rejected"].items():
        for i, reason in enumerate(reasons):
            table.add_row(
                escape(node) if i == 0 else "",
                *(escape(reason[key]) for key in ("policy", "rule", "reason")),
            )
    _note_the_rest(table, total - len(told["rejected"]))
    return table


def show_patch(console: Console, operations: Iterable[Mapping[str, Any]]) -> None:
    """Print a JSON patch, one operation a line, values in full."""
    for operation in operations:
        console.print(f"[bold]{operation['op']}[/] {escape(operation['path'])}")
        console.print_json(data=operation["value"], indent=2)


def _note_the_rest(table: Table, count: int) -> None:
    if count > 0:
        table.add_row(f"... and {count} more", style="dim")


def _pairs(amounts: Mapping[str, str]) -> str:
    return escape(", ".join(f"{name} {amount}" for name, amount in amounts.items()))
