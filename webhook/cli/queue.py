"""`stowplan queue`: the held pods of a cluster in the order in which they are released."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.errors import StowplanError, counted
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros, micros
from engine.report import (
    QueuedPod,
    QueueReport,
    QuotaPlace,
    ReleaserReport,
    eta_text,
    place_text,
    queue_report,
)
from webhook.cli import console
from webhook.cli.api_errors import reason
from webhook.cli.console import namespace_and_name, plain_table
from webhook.cli.exit_codes import Exit
from webhook.cluster.client.connection import ApiError, connected
from webhook.doctor import HeldQueue, read_held_queue

_STALE_SECONDS: Final = 15.0  # then another replica takes the Lease over
_MOST_SHOWN: Final = 50
_MINUTE, _HOUR = 60, 3_600


@dataclass(frozen=True, slots=True)
class _Selection:
    """The pods to list: of a namespace, or one of them; "" for all."""

    namespace: str
    name: str

    def has(self, pod: Pod) -> bool:
        """Whether to list a pod."""
        return self.namespace in {"", pod.namespace} and self.name in {"", pod.name}


def queue(
    pod: str = "",
    /,
    *,
    namespace: Annotated[str, Parameter(name=("--namespace", "-n"))] = "",
    lease: str = "stowplan-system/stowplan",
    most: PositiveInt = _MOST_SHOWN,
    kubeconfig: Path | None = None,
    context: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show the held pods in the order in which they are released."""
    selection = _selection(pod, namespace)
    namespace_and_name("--lease", lease)
    try:
        found = asyncio.run(_read(kubeconfig, context, lease, selection))
    except ApiError as error:
        why = reason(
            error,
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
    output = console.output()
    if as_json:
        output.print_json(msgspec.json.encode(report).decode())
    else:
        for note in found.notes:
            console.errors().print(note, markup=False)
        _show(output, report, selection)
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


def _is_releasing(releaser: ReleaserReport) -> bool:
    age = releaser.renewed_seconds_ago
    return bool(releaser.holder) and releaser.releasing and age is not None and age < _STALE_SECONDS


def _is_well(report: QueueReport) -> bool:
    """Whether pods are released in time, as far as it is known."""
    releaser = report.releaser
    return not report.overdue and (not report.held or releaser is None or _is_releasing(releaser))


def _show(output: Console, report: QueueReport, selection: _Selection) -> None:
    output.print(_summary(report))
    for table in (
        _table([pod for pod in report.pods if pod.quota is None]),
        _quota_table([(pod, pod.quota) for pod in report.pods if pod.quota is not None]),
    ):
        if table.row_count:
            output.print()
            output.print(table)
    rest = report.held - len(report.pods)
    if rest and not (selection.namespace or selection.name):
        output.print(f"[dim]... and {rest} more: `--most`[/]")
    if not _is_well(report):
        output.print(
            "\nhint: `stowplan release --overdue` releases what is overdue, `stowplan doctor` says"
            " what is wrong",
            markup=False,
        )


def _summary(report: QueueReport) -> str:
    """Return how many pods are held, in which order, and who releases them."""
    if not report.held:
        return "no pod is held"
    parts = [f"[bold]{counted(report.held, 'pod is', 'pods are')} held[/]"]
    if report.overdue:
        parts.append(f"[bold red]{report.overdue} overdue[/]")
    parts += (f"order: {report.queue_sort}", _releaser_text(report.releaser))
    return "; ".join(parts)


def _releaser_text(releaser: ReleaserReport | None) -> str:
    if releaser is None:
        return "it is unknown who releases them"
    age = releaser.renewed_seconds_ago
    if not releaser.holder or age is None:
        return "[red]nobody releases them[/]: no replica leads"
    holder = escape(releaser.holder)
    if age >= _STALE_SECONDS:
        return f"[red]nobody releases them[/]: {holder} led until {_duration(int(age))} ago"
    if not releaser.releasing:
        return f"[red]nobody releases them[/]: {holder} leads, and releases no pods"
    return f"{holder} releases them"


def _table(pods: Sequence[QueuedPod]) -> Table:
    """Return the pods that wait for no quota."""
    names_gangs = _names_gangs(pods)
    table = plain_table(
        *_who_columns(names_gangs=names_gangs), "priority", "held for", "reason", ""
    )
    for pod in pods:
        table.add_row(
            *_who(pod, names_gangs=names_gangs),
            f"{pod.priority}",
            _duration(pod.held_seconds),
            escape(pod.reason),
            "; ".join([escape(pod.message), *_notes(pod)]),
        )
    return table


def _quota_table(pods: Sequence[tuple[QueuedPod, QuotaPlace]]) -> Table:
    """Return the pods that wait for their quotas."""
    names_gangs = _names_gangs([pod for pod, _ in pods])
    who = _who_columns(names_gangs=names_gangs)
    table = plain_table(
        *who,
        *("held for", "reason", "quota", "needs", "free", "blocked by", "released in"),
    )
    for pod, place in pods:
        eta = place.eta_seconds
        wait = "?" if eta is None else eta_text(Micros(eta * SECOND))
        table.add_row(
            *_who(pod, names_gangs=names_gangs),
            _duration(pod.held_seconds),
            escape(pod.reason),
            escape(f"{place_text(place.position, place.of)} in {place.quota}"),
            escape(_amounts(place.needs)),
            escape(_amounts(place.free)),
            escape(", ".join(place.blocked_by)),
            "; ".join([wait, *_notes(pod)]),
        )
    return table


def _names_gangs(pods: Sequence[QueuedPod]) -> bool:
    return any(pod.gang for pod in pods)


def _who_columns(*, names_gangs: bool) -> tuple[str, ...]:
    return ("place", "pod", "gang") if names_gangs else ("place", "pod")


def _who(pod: QueuedPod, *, names_gangs: bool) -> list[str]:
    place = f"{pod.place}" if pod.place else "-"
    gang = pod.gang.rpartition("/")[2] or "-"  # of the pod's namespace
    return [place, escape(str(pod.pod)), *([escape(gang)] if names_gangs else [])]


def _notes(pod: QueuedPod) -> list[str]:
    notes = []
    if pod.nominated_node:
        notes.append(f"about to go to {escape(pod.nominated_node)}")
    if pod.overdue_seconds:
        notes.append(f"[red]overdue by {_duration(pod.overdue_seconds)}[/]")
    return notes


def _amounts(quantities: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {quantity}" for name, quantity in quantities.items())


def _duration(seconds: int) -> str:
    """Return a time in its largest unit and the next, such as `3 min 12 s`."""
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min {seconds % _MINUTE} s"
    return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"
