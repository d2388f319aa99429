"""`stowplan test`: run the cases beside policies."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from engine.errors import Diagnostic, InvalidFileError, StowplanError
from engine.model.count_text import counted
from engine.policy import CASES_FILE
from engine.policy_tests import CaseResult, CaseRun, CrossCheck, can_cross_check, run_cases
from engine.report import NodeNames, decision_report
from webhook.cli import console
from webhook.cli.cross_check import show_cross_check
from webhook.cli.exit_codes import Exit
from webhook.cli.junit import junit_xml
from webhook.cli.render import show_decision
from webhook.cli.shipped_files import located_policy
from webhook.cli.watching import run_on_changes


def run_policy_tests(
    path: Path,
    /,
    *,
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"))] = False,
    junit: Path | None = None,
    watch: bool = False,
    cross_check: bool = False,
) -> int:
    """Run the cases of policies.

    What is wrong in one file does not stop the others.

    Args:
        path: a folder of policies, one `cases.yaml`, or the name of a policy to start from.
        verbose: also show the whole decision of each case that failed.
        junit: also write the results to this file, as JUnit XML.
        watch: do it again whenever a file changes, until Ctrl-C.
        cross_check: also evaluate every expression of the policies with cel-python, for every case
            and node, and show where it comes to something else; needs `stowplan[cross-check]`.
    """
    if cross_check and not can_cross_check():
        raise StowplanError(
            "`--cross-check` needs cel-python\nhint: pip install 'stowplan[cross-check]'"
        )
    path = located_policy(path)
    if not path.is_dir() and path.name != CASES_FILE:
        hint = f"give a folder of policies, or its `{CASES_FILE}`"
        problem = Diagnostic(
            file=str(path), message=f"not a folder, nor a `{CASES_FILE}`", hint=hint
        )
        raise InvalidFileError([problem])
    run = partial(_run, path, verbose=verbose, junit=junit, cross_check=cross_check)
    if watch:
        watched = path if path.is_dir() else path.parent
        run_on_changes([watched], run, written=junit)
    return run()


def _run(path: Path, *, verbose: bool, junit: Path | None, cross_check: bool) -> int:
    """Run the cases, and print the results.

    Raises:
        InvalidFileError: some could not be run; the results of the others are printed by then.
    """
    output = console.output()
    check = CrossCheck() if cross_check else None
    run = run_cases(path, examine=check.examine if check else None)
    if junit is not None:
        junit_xml(run).write(junit, encoding="utf-8", xml_declaration=True)
    for result in run.results:
        _show(result, output, verbose=verbose)
    failed = sum(bool(result.failures) for result in run.results)
    for name in run.untested:
        output.print(f"[yellow]no case[/] applies policy {escape(name)}")
    output.print(_summary(run, failed))
    if check is not None:
        show_cross_check(check, output)
    if run.problems:
        raise InvalidFileError(run.problems)
    return Exit.DENIED if failed or (check and check.differences) else Exit.OK


def _show(result: CaseResult, output: Console, *, verbose: bool) -> None:
    mark = "[bold red]FAIL[/]" if result.failures else "[green]ok[/]  "
    output.print(f"{mark} {escape(result.file)}: {escape(result.name)}")
    for failure in result.failures:
        output.print(f"       {escape(failure)}")
    for cause in result.causes:
        output.print(f"       cause: {escape(cause)}")
    if result.failures and verbose:
        show_decision(output, decision_report(result.decision), NodeNames())


def _summary(run: CaseRun, failed: int) -> str:
    parts = [f"{len(run.results) - failed} passed, {failed} failed"]
    if run.untested:
        parts.append(f"{counted(len(run.untested), 'policy', 'policies')} without a case")
    if run.problems:
        parts.append("some could not be run")
    return "; ".join(parts)
