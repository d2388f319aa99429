"""`stowplan outcome`: where the pods of policies were bound, and how good that was."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final

from engine.errors import StowplanError
from engine.report import OutcomeReport
from webhook.cli import console
from webhook.cli.console import namespace_and_name
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Context, Json, Kubeconfig, Lease, Namespace, described
from webhook.cli.render import show, show_json
from webhook.cluster.client.connection import ApiError, Connection, connected
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.controllers.policy_outcome import AUDITED_KEY, OutcomeRecord
from webhook.pages import outcome_blocks

_NOTHING_COUNTED: Final = (
    "nothing is counted yet\nhint: figures are stored a minute after the first pod of a policy is"
    " bound; `outcome.enabled` of the chart switches that on"
)


def outcome(
    *,
    namespace: Namespace = "",
    policy: Annotated[str, described("The one policy to show.")] = "",
    enforce: Annotated[str, described("Policy in Audit to put in force again.")] = "",
    lease: Lease = "stowplan-system/stowplan",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> int:
    """Show where the pods of policies were bound in the last hour, and how good that was."""
    if enforce:
        asyncio.run(_enforce(kubeconfig, context, lease, enforce))
        console.output().print(
            f"policy `{enforce}` is in force again within seconds", markup=False, highlight=False
        )
        return Exit.OK
    report = asyncio.run(_read(kubeconfig, context, lease))
    if as_json:
        show_json(report)
    else:
        show(outcome_blocks(report, namespace, policy))
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


def _reason(error: ApiError, name: str) -> str:
    if error.status == HTTPStatus.CONFLICT:
        return f"ConfigMap `{name}` was changed meanwhile\nhint: try again"
    forbidden = f"we lack the permission to read or change ConfigMap `{name}`"
    return error.explained(f"ConfigMap `{name}` cannot be read or changed", forbidden=forbidden)
