"""A cross-check on a terminal: what differs, then a summary."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from engine.model.count_text import counted
from engine.policy_tests import CrossCheck, Difference


def show_cross_check(check: CrossCheck, output: Console) -> None:
    """Print the differences, and what was compared."""
    for found in check.differences:
        _show(found, output)
    for text in sorted(check.unreadable):
        output.print(f"[yellow]not compared[/], cel-python cannot read it: {escape(text)}")
    for what, count in check.known.items():
        output.print(f"known difference, {escape(what)}: {counted(count, 'value')}")
    differ = f"{len(check.differences)} differ" if check.differences else "no difference"
    expressions = counted(len(check.expressions), "expression")
    values = counted(check.compared, "value")
    output.print(f"cross-check with cel-python: {expressions}, {values}, {differ}")


def _show(found: Difference, output: Console) -> None:
    node = f", node {found.node}" if found.node else ""
    output.print(f"[bold red]DIFF[/] {escape(f'{found.file}: {found.case}')}")
    output.print(f"       {escape(f'{found.policy}: {found.part}{node}: {found.expression}')}")
    output.print(f"       {escape(f'{found.ours}; in cel-python {found.theirs}')}")
