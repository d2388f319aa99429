"""`stowplan snapshot`: record a live cluster in a file, for the other commands."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from engine.errors import StowplanError
from webhook.cli import console
from webhook.cli.console import CannotWriteError, require_place_for
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Context, Kubeconfig, described
from webhook.cli.render import show
from webhook.cluster.client.connection import ApiError, Connection, connected
from webhook.cluster.object_file import object_file
from webhook.cluster.snapshot import Anonymizer, KindResult, SnapshotError, take_snapshot
from webhook.pages import ui

_OF_NODES = ("nodemetrics.slo.koordinator.sh", "nodes.metrics.k8s.io")
_IN_NAMESPACES = ("elasticquotas.", "pods")
_NOTHING_THERE = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)


def snapshot(
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="File to write.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    anonymize: Annotated[bool, described("Replace names, labels and images.")] = False,
    force: Annotated[bool, described("Replace the file.")] = False,
) -> int:
    """Record a live cluster in a file, for `--cluster` of the other commands."""
    _check(output, force=force)
    try:
        results = asyncio.run(
            _record(output, kubeconfig, context, Anonymizer() if anonymize else None)
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CannotWriteError(f"`{output}` cannot be written: {reason}") from error
    _show(output, results, kubeconfig, context)
    return Exit.OK


async def _record(
    output: Path, kubeconfig: Path | None, context: str | None, anonymizer: Anonymizer | None
) -> Sequence[KindResult]:
    with read_errors(kubeconfig, context):
        async with connected(kubeconfig, context, accept_encoding="gzip") as connection:
            return await record(connection, output, anonymizer)


@contextmanager
def read_errors(kubeconfig: Path | None, context: str | None) -> Iterator[None]:
    """Say of each refusal of the API server what was to be read, and how to be permitted."""
    try:
        yield
    except SnapshotError as error:
        why = error.error.explained(
            f"{error.kind} cannot be read",
            forbidden=f"we lack the permission to list {error.kind}",
            hint=_hint(error.kind, kubeconfig, context),
        )
        raise StowplanError(why) from error
    except ApiError as error:
        raise StowplanError(error.explained("the API server refuses it")) from error


async def record(
    connection: Connection, output: Path, anonymizer: Anonymizer | None = None
) -> Sequence[KindResult]:
    """Write a snapshot to a file, with a progress bar per kind; return the result for each."""
    notes = console.errors()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bars:
        tasks = {}

        def progress(kind: str, done: int, total: int | None) -> None:
            if kind not in tasks:
                tasks[kind] = bars.add_task(kind, total=None)
            bars.update(tasks[kind], completed=done, total=total)

        with object_file(output) as file:
            return await take_snapshot(connection, file, anonymizer=anonymizer, progress=progress)


def _check(output: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written or exists, before minutes of reading."""
    require_place_for(output)
    if output.exists() and not force:
        raise CannotWriteError(f"`{output}` exists\nhint: `--force` replaces it")


def _show(
    output: Path, results: Sequence[KindResult], kubeconfig: Path | None, context: str | None
) -> None:
    """Print the contents of the file, what is missing, and the next commands."""
    notes = console.errors()
    for kind in results:
        for problem in kind.problems:
            notes.print(str(problem), markup=False, soft_wrap=True)
    show(_blocks(output, results, kubeconfig, context))


def _blocks(
    output: Path, results: Sequence[KindResult], kubeconfig: Path | None, context: str | None
) -> Iterator[ui.Block]:
    size = decimal(output.stat().st_size)
    yield ui.Paragraph((ui.strong(output), f" holds the cluster, in {size}"))
    yield ui.Table(
        columns=ui.columns("kind", "objects", ""),
        rows=[
            (kind.name, "-" if kind.error else f"{kind.objects:,}", _remark(kind))
            for kind in results
        ],
    )
    for kind in results:
        if kind.error is not None and kind.error.status == HTTPStatus.FORBIDDEN:
            yield ui.Paragraph(f"hint: {_hint(kind.name, kubeconfig, context)}", "command")
    if not any(kind.objects for kind in results if kind.name in _OF_NODES):
        text = " nothing measures the usage of nodes here: rules that read it will have no effect"
        yield ui.Paragraph((ui.Span("warning:", ui.Style.DOUBT), text))
    yield ui.Paragraph("Next", "heading")
    yield ui.Paragraph(_what_next(output), "command")


def _remark(kind: KindResult) -> str:
    """Return the remark on a kind beside its number."""
    if kind.error is not None:
        return _missing(kind.error)
    remarks = []
    if kind.finished:
        remarks.append(f"{kind.finished:,} more have finished, and are left out")
    if kind.unreadable:
        remarks.append(f"{kind.unreadable:,} more cannot be read, and are left out")
    return "; ".join(remarks)


def _missing(error: ApiError) -> str:
    if error.status in _NOTHING_THERE:
        return "the cluster has no such API, or nothing serves it"
    if error.status == HTTPStatus.FORBIDDEN:
        return f"not permitted: {error.message}"
    return f"cannot be read: {error.message}"


def _hint(kind: str, kubeconfig: Path | None, context: str | None) -> str:
    return f"`{_can_i(kind, kubeconfig, context)}` tells when it is permitted"


def _can_i(kind: str, kubeconfig: Path | None, context: str | None) -> str:
    """Return the command that shows whether we may list a kind."""
    flags = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    flags += [f"--context={context}"] if context else []
    everywhere = ["--all-namespaces"] if kind.startswith(_IN_NAMESPACES) else []
    return shlex.join(["kubectl", *flags, "auth", "can-i", "list", kind, *everywhere])


def _what_next(output: Path) -> str:
    """Return the next commands to try, ready to be pasted."""
    file = shlex.quote(str(output))
    return f"""\
  # what would be decided for a pod, and why
  stowplan explain pod.yaml --cluster {file} --policies policies

  # a webhook that answers on it
  stowplan serve --cluster {file} --policies policies"""
