"""`stowplan doctor`: check a live installation, with advice on every finding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from engine.errors import StowplanError
from webhook.cli import console
from webhook.cli.api_errors import reason
from webhook.cli.console import plain_table
from webhook.cli.exit_codes import Exit
from webhook.cluster.client.connection import ApiError, connected
from webhook.doctor import Finding, Installation, Level, run_checks

_STYLES = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARNING: "yellow",
    Level.PROBLEM: "bold red",
}
_Findings = Mapping[str, Sequence[Finding]]


def doctor(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    namespace: str = "stowplan-system",
    release: str = "stowplan",
    pod_namespace: str = "default",
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Check a live installation, and advise on every finding."""
    try:
        findings = asyncio.run(_run_checks(kubeconfig, context, namespace, release, pod_namespace))
    except ApiError as error:
        raise StowplanError(reason(error, "the API server does not answer")) from error
    output = console.output()
    if as_json:
        rows = [
            {"check": check, **asdict(finding)}
            for check, found in findings.items()
            for finding in found
        ]
        output.print(json.dumps(rows, indent=2), markup=False, soft_wrap=True)
    else:
        _show(output, findings)
    is_well = all(finding.is_well for check in findings.values() for finding in check)
    return Exit.OK if is_well else Exit.DENIED


async def _run_checks(
    kubeconfig: Path | None, context: str | None, namespace: str, release: str, pod_namespace: str
) -> _Findings:
    async with connected(kubeconfig, context) as connection:
        return await run_checks(
            Installation(
                connection=connection,
                namespace=namespace,
                release=release,
                pod_namespace=pod_namespace,
                now=lambda: datetime.now(UTC),
            )
        )


def _show(output: Console, by_check: _Findings) -> None:
    table = plain_table("check", "", "finding")
    for check, findings in by_check.items():
        for number, finding in enumerate(findings):
            level = f"[{_STYLES[finding.level]}]{finding.level.value}[/]"
            advice = f"\n[dim]-> {escape(finding.advice)}[/]" if finding.advice else ""
            table.add_row("" if number else check, level, escape(finding.message) + advice)
    output.print(table)
    bad = sum(not finding.is_well for findings in by_check.values() for finding in findings)
    output.print(f"\nfindings that need action: {bad}" if bad else "\n[green]all well[/]")
