"""`stowplan doctor`: is a live installation well, and if not, what is to be done?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from engine.errors import StowplanError
from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.render import plain_table
from webhook.cluster.client.connection import NO_CONTACT, ApiError, connected
from webhook.doctor import Finding, Installation, Level, examine

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
    """Check a live installation, and say what to do about what is found.

    Args:
        kubeconfig: how to reach the cluster; `$KUBECONFIG` or the default one, if not given, or in
            a pod its service account.
        context: of the kubeconfig; its current one, if not given.
        namespace: where stowplan is installed.
        release: name of its Deployment and of both webhook configurations.
        pod_namespace: where a pod is tried, as a dry run.
        as_json: print JSON.
    """
    try:
        found = asyncio.run(_examined(kubeconfig, context, namespace, release, pod_namespace))
    except ApiError as error:
        if error.status == NO_CONTACT:
            raise StowplanError(f"no contact with the API server: {error.message}") from error
        raise StowplanError(f"the API server does not talk to us: {error.message}") from error
    output = console.output()
    if as_json:
        output.print(json.dumps(_plain(found), indent=2), markup=False, soft_wrap=True)
    else:
        _show(output, found)
    is_well = all(finding.is_well for findings in found.values() for finding in findings)
    return Exit.OK if is_well else Exit.DENIED


async def _examined(
    kubeconfig: Path | None, context: str | None, namespace: str, release: str, pod_namespace: str
) -> _Findings:
    async with connected(kubeconfig, context) as connection:
        return await examine(
            Installation(
                connection=connection,
                namespace=namespace,
                release=release,
                pod_namespace=pod_namespace,
                now=lambda: datetime.now(UTC),
            )
        )


def _plain(found: _Findings) -> list[dict[str, str]]:
    return [
        {
            "check": check,
            "level": finding.level.value,
            "message": finding.message,
            "advice": finding.advice,
        }
        for check, findings in found.items()
        for finding in findings
    ]


def _show(output: Console, found: _Findings) -> None:
    table = plain_table("check", "", "finding")
    for check, findings in found.items():
        for number, finding in enumerate(findings):
            level = f"[{_STYLES[finding.level]}]{finding.level.value}[/]"
            advice = f"\n[dim]-> {escape(finding.advice)}[/]" if finding.advice else ""
            table.add_row("" if number else check, level, escape(finding.message) + advice)
    output.print(table)
    bad = [one for findings in found.values() for one in findings if not one.is_well]
    output.print(f"\n{len(bad)} to look after" if bad else "\n[green]all well[/]")
