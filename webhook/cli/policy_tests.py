"""`stowplan test`: run the cases beside policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Final
from xml.etree.ElementTree import Element, ElementTree, SubElement

from rich.console import Console
from rich.markup import escape

from engine.errors import Diagnostic, InvalidFileError, StowplanError, counted
from engine.policy import CASES_FILE
from engine.policy_tests import (
    CaseResult,
    CaseRun,
    CrossCheck,
    Difference,
    can_cross_check,
    run_cases,
)
from engine.report import NodeNames, decision_report
from webhook.cli import console
from webhook.cli.console import run_on_changes
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Verbose, Watch, described
from webhook.cli.policy_loading import located_policy
from webhook.cli.render import show
from webhook.pages import decision_blocks


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


_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no document of XML 1.0 may have, however they are written."""


def junit_xml(run: CaseRun) -> ElementTree[Element]:
    """Return a run as XML: a suite for each file of cases, with a test for each case.

    A case that could not be run is an error, as is any other mistake in a file; a policy that no
    case applies is a test that was skipped.
    """
    root = Element("testsuites", name="stowplan test")
    for file, results in groupby(run.results, key=attrgetter("file")):
        _add_suite(root, file, map(_case, results))
    for file, problems in groupby(run.problems, key=attrgetter("file")):
        tests = (
            _test(f"line {found.line}", "error", found.message, str(found)) for found in problems
        )
        _add_suite(root, file, tests)
    if run.untested:
        message = "no case applies this policy"
        _add_suite(root, "policies", (_test(name, "skipped", message) for name in run.untested))
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    return ElementTree(root)


def _add_suite(root: Element, name: str, tests: Iterator[Element]) -> None:
    suite = SubElement(root, "testsuite", name=_text(name))
    for test in tests:
        test.set("classname", _text(name))
        suite.append(test)
    suite.set("tests", str(len(suite)))
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(len(suite.findall(f"testcase/{tag}"))))


def _case(result: CaseResult) -> Element:
    if not result.failures:
        return _test(result.name)
    causes = (f"cause: {cause}" for cause in result.causes)
    return _test(result.name, "failure", result.failures[0], "\n".join((*result.failures, *causes)))


def _test(name: str, outcome: str = "", message: str = "", text: str = "") -> Element:
    """Return a test; with an outcome, one that did not pass."""
    test = Element("testcase", name=_text(name))
    if outcome:
        SubElement(test, outcome, message=_text(message)).text = _text(text)
    return test


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def run_policy_tests(
    path: Annotated[Path, described("Folder of policies, or its `cases.yaml`.")],
    /,
    *,
    verbose: Verbose = False,
    junit: Annotated[Path | None, described("Write results to this file, as JUnit XML.")] = None,
    watch: Watch = False,
    cross_check: Annotated[
        bool, described("Evaluate each expression by cel-python as well, and compare.")
    ] = False,
) -> int:
    """Run the cases of policies.

    What is wrong in one file does not stop the others.
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
    output = console.output()
    check = CrossCheck() if cross_check else None
    run = run_cases(path, examine=check.examine if check else None)
    if junit is not None:
        junit_xml(run).write(junit, encoding="utf-8", xml_declaration=True)
    for result in run.results:
        _show_results(result, output, verbose=verbose)
    failed = sum(bool(result.failures) for result in run.results)
    for name in run.untested:
        output.print(f"[yellow]no case[/] applies policy {escape(name)}")
    output.print(_summary(run, failed))
    if check is not None:
        show_cross_check(check, output)
    if run.problems:
        raise InvalidFileError(run.problems)
    return Exit.DENIED if failed or (check and check.differences) else Exit.OK


def _show_results(result: CaseResult, output: Console, *, verbose: bool) -> None:
    mark = "[bold red]FAIL[/]" if result.failures else "[green]ok[/]  "
    output.print(f"{mark} {escape(result.file)}: {escape(result.name)}")
    for failure in result.failures:
        output.print(f"       {escape(failure)}")
    for cause in result.causes:
        output.print(f"       cause: {escape(cause)}")
    if result.failures and verbose:
        show(decision_blocks(decision_report(result.decision), NodeNames()), output)


def _summary(run: CaseRun, failed: int) -> str:
    parts = [f"{len(run.results) - failed} passed, {failed} failed"]
    if run.untested:
        parts.append(f"{counted(len(run.untested), 'policy', 'policies')} without a case")
    if run.problems:
        parts.append("some could not be run")
    return "; ".join(parts)
