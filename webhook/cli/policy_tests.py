"""`stowplan test`: run the cases beside policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from engine.errors import Diagnostic, InvalidFileError
from engine.policy import CASES_FILE
from engine.policy_tests import CaseResult, CaseRun, run_cases
from engine.report import decision_report
from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.render import show_decision


def run_policy_tests(
    path: Path, /, *, verbose: Annotated[bool, Parameter(name=("--verbose", "-v"))] = False
) -> int:
    """Run the cases of policies.

    What is wrong in one file does not stop the others.

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
    run = run_cases(path)
    for result in run.results:
        _show(result, output, verbose=verbose)
    failed = sum(bool(result.failures) for result in run.results)
    for name in run.untested:
        output.print(f"[yellow]no case[/] applies policy {escape(name)}")
    output.print(_summary(run, failed))
    if run.problems:
        raise InvalidFileError(run.problems)
    return Exit.DENIED if failed else Exit.OK


def _show(result: CaseResult, output: Console, *, verbose: bool) -> None:
    mark = "[bold red]FAIL[/]" if result.failures else "[green]ok[/]  "
    output.print(f"{mark} {escape(result.file)}: {escape(result.name)}")
    for failure in result.failures:
        output.print(f"       {escape(failure)}")
    for cause in result.causes:
        output.print(f"       cause: {escape(cause)}")
    if result.failures and verbose:
        show_decision(output, decision_report(result.decision))


def _summary(run: CaseRun, failed: int) -> str:
    parts = [f"{len(run.results) - failed} passed, {failed} failed"]
    if run.untested:
        count = len(run.untested)
        parts.append(f"{count} {'policies' if count > 1 else 'policy'} without a case")
    if run.problems:
        parts.append("some could not be run")
    return "; ".join(parts)
