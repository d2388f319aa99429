"""`stowplan queue`: the held pods of a cluster in the order in which they are released."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

from cyclopts.types import PositiveInt

from engine.errors import StowplanError
from engine.model.pod import Pod
from engine.model.time import Micros, micros
from engine.report import QueueReport, queue_report
from webhook.cli import console
from webhook.cli.console import namespace_and_name
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Context, Json, Kubeconfig, Lease, Namespace, described
from webhook.cli.render import show, show_json
from webhook.cluster.client.connection import ApiError, connected
from webhook.doctor import HeldQueue, read_held_queue
from webhook.pages import is_releasing, queue_blocks

_MOST_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class _Selection:
    """The pods to list: of a namespace, or one of them; "" for all."""

    namespace: str
    name: str

    def has(self, pod: Pod) -> bool:
        return self.namespace in {"", pod.namespace} and self.name in {"", pod.name}


def queue(
    pod: Annotated[str, described("The one pod to show, as `NAMESPACE/NAME` or its name.")] = "",
    /,
    *,
    namespace: Namespace = "",
    lease: Lease = "stowplan-system/stowplan",
    most: Annotated[PositiveInt, described("Most pods that are shown.")] = _MOST_SHOWN,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> int:
    """Show the held pods in the order in which they are released."""
    selection = _selection(pod, namespace)
    namespace_and_name("--lease", lease)
    try:
        found = asyncio.run(_read(kubeconfig, context, lease, selection))
    except ApiError as error:
        why = error.explained(
            "pods cannot be read",
            forbidden="we lack the permission to list pods",
            hint="with `--namespace` those of one namespace are enough",
        )
        raise StowplanError(why) from error
    now = micros(datetime.now(UTC))
    report = _report(found, selection, most, now)
    if selection.name and not report.pods:
        raise StowplanError(
            f"no pod `{selection.namespace}/{selection.name}` is held\nhint: `kubectl describe pod"
            f" {selection.name} --namespace {selection.namespace}` says what became of it"
        )
    if as_json:
        show_json(report)
    else:
        for note in found.notes:
            console.errors().print(note, markup=False)
        _show(report, selection)
    return Exit.OK if _is_well(report) else Exit.DENIED


def _selection(pod: str, namespace: str) -> _Selection:
    before, name = namespace_and_name("POD", pod) if "/" in pod else ("", pod)
    if before and namespace not in {"", before}:
        raise StowplanError(f"`{pod}` is not in namespace `{namespace}`")
    if not pod:
        return _Selection(namespace, "")
    return _Selection(before or namespace or "default", name)


async def _read(
    kubeconfig: Path | None, context: str | None, lease: str, selection: _Selection
) -> HeldQueue:
    async with connected(kubeconfig, context, accept_encoding="gzip") as connection:
        now = micros(datetime.now(UTC))
        return await read_held_queue(connection, lease, now, namespace=selection.namespace)


def _report(found: HeldQueue, selection: _Selection, most: int, now: Micros) -> QueueReport:
    return queue_report(
        found.entries,
        now,
        queue_sort=found.order.sort,
        releaser=found.releaser,
        lists=selection.has,
        most=most,
    )


def _is_well(report: QueueReport) -> bool:
    """Whether pods are released in time, as far as it is known."""
    releaser = report.releaser
    return not report.overdue and (not report.held or releaser is None or is_releasing(releaser))


def _show(report: QueueReport, selection: _Selection) -> None:
    output = console.output()
    show(queue_blocks(report), output)
    rest = report.held - len(report.pods)
    if rest and not (selection.namespace or selection.name):
        output.print(f"[dim]... and {rest} more: `--most`[/]")
    if not _is_well(report):
        output.print(
            "\nhint: `stowplan release --overdue` releases what is overdue, `stowplan doctor` says"
            " what is wrong",
            markup=False,
        )
