"""`stowplan test`: run the cases beside policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape

from engine.errors import Diagnostic, InvalidFileError
from engine.policy import CASES_FILE
from engine.policy_tests import run_cases
from engine.report import decision_report
from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.render import show_decision


def run_policy_tests(
    path: Path, /, *, verbose: Annotated[bool, Parameter(name=("--verbose", "-v"))] = False
) -> int:
    """Run the cases of policies.

    Args:
        path: a folder of policies, or one `cases.yaml`.
        verbose: also show the whole decision of each case that failed.
    """
    if not path.is_dir() and path.name != CASES_FILE:
        hint = f"give a folder of policies, or its `{CASES_FILE}`"
        problem = Diagnostic(
            file=str(path), message=f"not a folder, nor a `{CASES_FILE}`", hint=hint
        )
        raise InvalidFileError([problem])
    output = console.output()
    results = run_cases(path)
    failed = [result for result in results if result.failures]
    for result in results:
        mark = "[bold red]FAIL[/]" if result.failures else "[green]ok[/]  "
        output.print(f"{mark} {escape(result.file)}: {escape(result.name)}")
        for failure in result.failures:
            output.print(f"       {escape(failure)}")
        if result.failures and verbose:
            show_decision(output, decision_report(result.decision))
    output.print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return Exit.DENIED if failed else Exit.OK
