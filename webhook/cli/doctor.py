"""`stowplan doctor`: check a live installation, with advice on every finding."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from engine.errors import StowplanError
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Context, Json, Kubeconfig, described
from webhook.cli.render import show, show_json
from webhook.cluster.client.connection import ApiError, connected
from webhook.doctor import Finding, Installation, Level, run_checks
from webhook.pages import ui

_STYLES = {
    Level.OK: ui.Style.GOOD,
    Level.NOTE: ui.Style.STRONG,
    Level.WARNING: ui.Style.DOUBT,
    Level.PROBLEM: ui.Style.BAD,
}
_Findings = Mapping[str, Sequence[Finding]]


def doctor(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[str, described("Namespace of the installation.")] = "stowplan-system",
    release: Annotated[str, described("Name of its Helm release.")] = "stowplan",
    pod_namespace: Annotated[
        str, described("Namespace in which a pod is created, as a dry run.")
    ] = "default",
    as_json: Json = False,
) -> int:
    """Check a live installation, and advise on every finding."""
    try:
        findings = asyncio.run(_run_checks(kubeconfig, context, namespace, release, pod_namespace))
    except ApiError as error:
        raise StowplanError(error.explained("the API server does not answer")) from error
    if as_json:
        rows = [
            {"check": check, **asdict(finding)}
            for check, found in findings.items()
            for finding in found
        ]
        show_json(rows)
    else:
        show(_document(findings))
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


def _document(by_check: _Findings) -> Iterator[ui.Block]:
    yield ui.Table(
        columns=ui.columns("check", "", "finding"),
        rows=[
            (
                None if place else check,
                ui.Span(finding.level.value, _STYLES[finding.level]),
                (finding.message, ui.quiet(f"\n-> {finding.advice}") if finding.advice else ""),
            )
            for check, findings in by_check.items()
            for place, finding in enumerate(findings)
        ],
    )
    bad = sum(not finding.is_well for findings in by_check.values() for finding in findings)
    all_well = ui.Span("all well", ui.Style.GOOD)
    yield ui.Paragraph(f"findings that need action: {bad}" if bad else all_well)
