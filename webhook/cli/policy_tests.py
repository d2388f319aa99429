"""`stowplan test`: the cases that stand beside policies."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from engine.cases import run_cases
from engine.explain import explanation
from webhook.cli.exit_codes import Exit
from webhook.cli.render import show_decision


def run_policy_tests(path: Path, /, *, verbose: bool = False) -> int:
    """Run the cases of policies: `cases.yaml` beside each policy, in a folder and below.

    A case is a small cluster, a pod, and what must come of it.

    Args:
        path: a folder of policies, or one `cases.yaml`.
        verbose: also show the whole decision of each case that failed.
    """
    console = Console()
    results = run_cases(path)
    failed = [result for result in results if result.failures]
    for result in results:
        mark = "[bold red]FAIL[/]" if result.failures else "[green]ok[/]  "
        console.print(f"{mark} {escape(result.file)}: {escape(result.name)}", highlight=False)
        for failure in result.failures:
            console.print(f"       {escape(failure)}", highlight=False)
        if result.failures and verbose:
            show_decision(console, explanation(result.decision))
    console.print(f"{len(results) - len(failed)} passed, {len(failed)} failed", highlight=False)
    return Exit.DENIED if failed else Exit.OK
