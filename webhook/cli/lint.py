"""`stowplan lint`: check policies, and show how their rules take effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from engine.errors import InvalidFileError, StowplanError
from engine.model.count_text import counted
from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.lint_report import LintRun, lint_report
from webhook.cli.policy_loading import STANDARD_INPUT, load_policy_set
from webhook.cli.rule_tables import rules_table, show_plan
from webhook.cli.sarif import sarif_log
from webhook.cli.watching import run_on_changes


def lint(
    paths: Annotated[list[Path], Parameter(allow_leading_hyphen=True)],
    /,
    *,
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"))] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    sarif: Path | None = None,
    cluster: list[Path] | None = None,
    watch: bool = False,
) -> int:
    """Check policy files, and show how their rules take effect.

    Every mistake is shown with its place and a hint. Plugins and their args are listed in
    `docs/plugins.md`.

    Args:
        paths: policy files, or folders of them; names of policies to start from, such as
            `balanced`; `-` for standard input.
        verbose: also show how each part of an expression is evaluated.
        json: print mistakes, warnings and rules as JSON, and nothing else.
        sarif: also write mistakes and warnings to this file, as SARIF 2.1.0.
        cluster: a recorded cluster, as `stowplan snapshot` writes it: also warn of labels, taints,
            namespaces, resources, images and priority classes that nothing there has, of rules that
            keep or reject every node there, and of policies that apply to no pod there.
        watch: do it again whenever a file changes, until Ctrl-C.
    """
    _refuse_options(paths)

    def run() -> int:
        return _lint(paths, verbose=verbose, as_json=json, sarif=sarif, cluster=cluster or ())

    if watch and STANDARD_INPUT in paths:
        raise StowplanError("`--watch` needs files: standard input does not change")
    if watch:
        run_on_changes(paths, run, written=sarif)
    return run()


def _lint(
    paths: list[Path],
    *,
    verbose: bool,
    as_json: bool,
    sarif: Path | None,
    cluster: Sequence[Path],
) -> int:
    """Print what is found.

    Raises:
        InvalidFileError: there are mistakes, and they were not printed as JSON.
    """
    run = _checked(paths, cluster)
    if sarif is not None:
        sarif.write_bytes(msgspec.json.format(msgspec.json.encode(sarif_log(run, root=Path.cwd()))))
    if as_json:
        console.output().print_json(msgspec.json.encode(lint_report(run)).decode())
        return Exit.INVALID if run.mistakes else Exit.OK
    if run.mistakes:
        raise InvalidFileError(run.mistakes)
    _show(run, verbose=verbose)
    return Exit.OK


def _checked(paths: list[Path], cluster: Sequence[Path]) -> LintRun:
    try:
        policies = load_policy_set(paths)
    except InvalidFileError as error:
        return LintRun.failed(error)
    if not cluster:
        return LintRun.of(policies)
    from webhook.cli.known_cluster import known_cluster  # noqa: PLC0415 - few need a simulation

    return LintRun.of(policies, known_cluster(cluster, policies))


def _refuse_options(paths: list[Path]) -> None:
    """Refuse an option that is unknown: `-` is the only path that begins so."""
    for path in paths:
        if str(path).startswith("-") and path != STANDARD_INPUT:
            raise StowplanError(f"unknown option: `{path}`\nhint: see `stowplan lint --help`")


def _show(run: LintRun, *, verbose: bool) -> None:
    output = console.output()
    output.print(rules_table(run.policies))
    for warning in run.warnings:
        found = warning.diagnostic
        text = str(replace(found, message=f"warning: {found.message}"))
        output.print(text, markup=False, soft_wrap=True)
    if verbose:
        for policy in run.policies:
            for rule in policy.rules:
                show_plan(policy, rule, output)
    output.print(f"\n{counted(len(run.policies), 'policy', 'policies')}, no mistakes")
