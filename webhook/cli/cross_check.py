"""A cross-check on a terminal: what differs, then a summary."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from engine.policy_tests import CrossCheck, Difference


def show_cross_check(check: CrossCheck, output: Console) -> None:
    """Print the differences, and what was compared."""
    for found in check.differences:
        _show(found, output)
    for text in sorted(check.unreadable):
        output.print(f"[yellow]not compared[/], cel-python cannot read it: {escape(text)}")
    for what, count in check.known.items():
        output.print(f"known difference, {escape(what)}: {count} values")
    differ = f"{len(check.differences)} differ" if check.differences else "no difference"
    expressions = f"{len(check.expressions)} expressions, {check.compared} values"
    output.print(f"cross-check with cel-python: {expressions}, {differ}")


def _show(found: Difference, output: Console) -> None:
    node = f", node {found.node}" if found.node else ""
    output.print(f"[bold red]DIFF[/] {escape(f'{found.file}: {found.case}')}")
    output.print(f"       {escape(f'{found.policy}: {found.part}{node}: {found.expression}')}")
    output.print(f"       {escape(f'{found.ours}; in cel-python {found.theirs}')}")
