"""`stowplan outcome`: where the pods of policies were bound, and how good that was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.errors import StowplanError
from engine.report import OutcomeFigures, OutcomeReport, PolicyOutcome
from webhook.cli import console
from webhook.cli.api_errors import reason
from webhook.cli.console import namespace_and_name, plain_table
from webhook.cli.exit_codes import Exit
from webhook.cluster.client.connection import ApiError, Connection, connected
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.controllers.outcome import AUDITED_KEY, OutcomeRecord

_ENFORCE: Final = "Enforce"
_NOTHING_COUNTED: Final = (
    "nothing is counted yet\nhint: figures are stored a minute after the first pod of a policy is"
    " bound; `outcome.enabled` of the chart switches that on"
)


def outcome(
    *,
    namespace: Annotated[str, Parameter(name=("--namespace", "-n"))] = "",
    policy: str = "",
    enforce: str = "",
    lease: str = "stowplan-system/stowplan",
    kubeconfig: Path | None = None,
    context: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show where the pods of policies were bound in the last hour, and how good that was."""
    if enforce:
        asyncio.run(_enforce(kubeconfig, context, lease, enforce))
        console.output().print(
            f"policy `{enforce}` is in force again within seconds", markup=False, highlight=False
        )
        return Exit.OK
    report = asyncio.run(_read(kubeconfig, context, lease))
    output = console.output()
    if as_json:
        output.print_json(msgspec.json.encode(report).decode())
    else:
        _show(output, report, namespace, policy)
    is_well = not report.audited and not any(each.worse for each in report.policies)
    return Exit.OK if is_well else Exit.DENIED


async def _read(kubeconfig: Path | None, context: str | None, lease: str) -> OutcomeReport:
    async with connected(kubeconfig, context, accept_encoding="gzip") as connection:
        record = _record(connection, lease)
        try:
            recorded = await record.read()
        except ApiError as error:
            raise StowplanError(_reason(error, record.config_map.name)) from error
    if recorded.report is None:
        raise StowplanError(_NOTHING_COUNTED)
    return recorded.report


async def _enforce(kubeconfig: Path | None, context: str | None, lease: str, name: str) -> None:
    async with connected(kubeconfig, context) as connection:
        record = _record(connection, lease)
        try:
            recorded = await record.read()
            if name not in recorded.audited:
                known = ", ".join(sorted(recorded.audited)) or "none"
                raise StowplanError(
                    f"policy `{name}` is not in Audit mode for what it did\nhint: those that are:"
                    f" {known}"
                )
            left = {key: each for key, each in recorded.audited.items() if key != name}
            await record.write({AUDITED_KEY: left}, recorded.version)
        except ApiError as error:
            raise StowplanError(_reason(error, record.config_map.name)) from error


def _record(connection: Connection, lease: str) -> OutcomeRecord:
    namespace, name = namespace_and_name("--lease", lease)
    config_map = ConfigMapStore(
        connection,
        namespace=namespace,
        name=f"{name}-outcome",
        may_write=lambda: True,
    )
    return OutcomeRecord(config_map)


def _show(output: Console, report: OutcomeReport, namespace: str, policy: str) -> None:
    since, until = report.since or "-", report.until or "-"
    output.print(f"pods bound from {since} to {until}", markup=False, highlight=False)
    chosen = [each for each in report.policies if policy in {"", each.policy}]
    acting = [each for each in chosen if each.mode == _ENFORCE]
    audited = [each for each in chosen if each.mode != _ENFORCE]
    if acting:
        output.print("", _acting(acting, namespace, by_namespace=bool(policy)), sep="\n")
    if audited:
        output.print("\n[bold]in Audit mode[/]: what would have changed\n")
        output.print(_audited(audited, namespace, by_namespace=bool(policy)))
    for line in _notes(report):
        output.print(f"\n{line}", markup=False, highlight=False)


def _acting(policies: Sequence[PolicyOutcome], namespace: str, *, by_namespace: bool) -> Table:
    """Return where pods landed of policies that act."""
    table = plain_table(
        "policy",
        "namespace",
        "pods",
        "as meant",
        "at binding",
        "moved",
        "ranked first",
        "mean rank",
        "rejected",
        "points",
        "lost",
        "against stock",
        "hot, stock",
    )
    for each in policies:
        for name, figures in _rows(each, namespace, by_namespace=by_namespace):
            table.add_row(
                escape(each.policy),
                escape(name),
                f"{figures.pods}",
                _percent(figures.landed, figures.pods),
                f"{figures.decided}",
                _percent(figures.moved, figures.decided),
                _percent(figures.ranks[0], figures.decided),
                _number(figures.mean_rank),
                f"{figures.rejected}" if figures.decided else "-",
                _number(figures.mean_points),
                _number(figures.mean_lost),
                _signed(figures.mean_gained),
                f"{figures.hot}, {figures.stock_hot}" if figures.measured else "-",
            )
    return table


def _audited(policies: Sequence[PolicyOutcome], namespace: str, *, by_namespace: bool) -> Table:
    """Return what policies in Audit mode would have changed."""
    table = plain_table(
        "policy",
        "namespace",
        "pods",
        "elsewhere",
        "rejected",
        "waiting",
        "points",
        "gained",
        "hot, stock",
        "rules",
    )
    for each in policies:
        rules = ", ".join(f"{rule.rule} {rule.pods}" for rule in each.rules)
        for name, figures in _rows(each, namespace, by_namespace=by_namespace):
            table.add_row(
                escape(each.policy),
                escape(name),
                f"{figures.pods}",
                f"{figures.pods - figures.landed - figures.denied}",
                f"{figures.rejected}",
                f"{figures.denied}",
                _number(figures.mean_points),
                _signed(figures.mean_gained),
                f"{figures.hot}, {figures.stock_hot}" if figures.measured else "-",
                escape(rules),
            )
    return table


def _rows(
    outcome: PolicyOutcome, namespace: str, *, by_namespace: bool
) -> Iterator[tuple[str, OutcomeFigures]]:
    """Yield the namespace, "all" for their total, and the figures of each row."""
    if not namespace and not by_namespace:
        yield "all", outcome.total
        return
    for each in outcome.namespaces:
        if namespace in {"", each.namespace}:
            yield each.namespace or "others", each.figures


def _notes(report: OutcomeReport) -> Iterator[str]:
    for each in report.policies:
        if each.worse:
            yield f"policy `{each.policy}` makes things worse: {each.worse}"
    for name, audited in sorted(report.audited.items()):
        yield (
            f"policy `{name}` is in Audit mode since {audited.since}: {audited.reason}\n"
            f"hint: change it, or take it back: `stowplan outcome --enforce {name}`"
        )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


def _reason(error: ApiError, name: str) -> str:
    if error.status == HTTPStatus.CONFLICT:
        return f"ConfigMap `{name}` was changed meanwhile\nhint: try again"
    forbidden = f"we lack the permission to read or change ConfigMap `{name}`"
    return reason(error, f"ConfigMap `{name}` cannot be read or changed", forbidden=forbidden)
