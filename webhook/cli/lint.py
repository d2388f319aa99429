"""`stowplan lint`: are policies right, and what do they come to?"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.policy import load_policies
from webhook.cli.exit_codes import Exit


def lint(paths: list[Path], /) -> int:
    """Check policy files; every mistake is shown with its place and a hint.

    Args:
        paths: policy files, or folders of them.
    """
    console = Console()
    policies = load_policies(paths)
    table = Table("policy", "mode", "priority", "rule", "does")
    for policy in policies:
        rules = [(rule.name, "filter") for rule in policy.filters]
        rules += [(rule.name, f"score, weight {rule.weight}") for rule in policy.scores]
        head = (escape(policy.name), policy.mode.value, str(policy.priority))
        for i, (name, does) in enumerate(rules):
            table.add_row(*(head if i == 0 else ("", "", "")), escape(name), does)
        table.add_section()
    console.print(table)
    console.print(f"{len(policies)} policies, no mistakes", highlight=False)
    return Exit.OK
