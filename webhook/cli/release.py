"""`stowplan release`: remove our scheduling gate from pods, with nothing else of ours running."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.prompt import Confirm

from engine.errors import StowplanError, counted
from engine.model.hold import HOLD_GATE
from engine.model.time import Micros, micros
from engine.release import HeldPod
from webhook.cli import console
from webhook.cli.console import namespace_and_name
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Context, Kubeconfig, Lease, Namespace, described
from webhook.cli.render import show
from webhook.cluster.client.connection import ApiError, Connection, connected
from webhook.controllers.release.bulk_release import list_holds, release_holds
from webhook.controllers.release.pod_writer import PodWriter
from webhook.controllers.release.release_health import releasing_holder
from webhook.pages import ui
from webhook.placement.held_pods import DEFAULT_HOLD_SECONDS

_Holds = Mapping[str, HeldPod]

_MOST_PASSES: Final = 10  # pods may be held meanwhile
_MOST_SHOWN: Final = 20
_WITHOUT_GATE: Final = {"spec": {"schedulingGates": [{"$patch": "delete", "name": HOLD_GATE}]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    overdue: bool  # those past their time alone
    queued: bool  # of those, also the ones that wait for quota or for their gang
    namespace: str  # "" for all
    hold_seconds: int  # the bound of a hold

    async def read(self, connection: Connection) -> _Holds:
        """Return the pods of it that are held now, by uid."""
        now = micros(datetime.now(UTC))
        try:
            holds = await list_holds(
                connection, namespace=self.namespace, hold_seconds=self.hold_seconds, now=now
            )
        except ApiError as error:
            raise StowplanError(error.explained("pods cannot be listed")) from error
        return {
            uid: hold for uid, hold in holds.items() if not self.overdue or self._is_due(hold, now)
        }

    def _is_due(self, hold: HeldPod, now: Micros) -> bool:
        return hold.release_by < now and (self.queued or not hold.is_unbounded)

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{'overdue' if self.overdue else 'held'}{where}"


def release(
    *,
    overdue: Annotated[bool, described("Pods that are held for longer than they may be.")] = False,
    queued: Annotated[bool, described("With `--overdue`: also those that wait for quota.")] = False,
    every: Annotated[bool, Parameter(name="--all", help="All held pods.")] = False,
    namespace: Namespace = "",
    dry_run: Annotated[bool, described("Show the pods, and release none.")] = False,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask.")] = False,
    force: Annotated[bool, described("With `--overdue`: also while a leader works.")] = False,
    lease: Lease = "stowplan-system/stowplan",
    hold_seconds: Annotated[
        PositiveInt, described("How long a pod may be held, where it does not say so itself.")
    ] = DEFAULT_HOLD_SECONDS,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Remove our scheduling gate from held pods, and nothing else."""
    if overdue == every:
        raise StowplanError("give either `--overdue` or `--all`")
    if queued and not overdue:
        raise StowplanError("`--queued` goes with `--overdue`; `--all` releases those pods anyway")
    lease_namespace, lease_name = namespace_and_name("--lease", lease)
    selection = _Selection(
        overdue=overdue, queued=queued, namespace=namespace, hold_seconds=hold_seconds
    )

    async def run() -> int:
        async with connected(kubeconfig, context, accept_encoding="gzip") as connection:
            holds = await selection.read(connection)
            if not holds:
                console.output().print(f"no pod is {selection}", markup=False)
                return Exit.OK
            if overdue and not force:
                holder = await _releasing_holder(connection, lease_namespace, lease_name)
                if holder:
                    _show_holder(len(holds), holder)
                    return Exit.OK
            if dry_run:
                _show_selected(holds)
                return Exit.OK
            if not yes and not _is_confirmed(holds):
                return Exit.FAILED
            return await _release(connection, selection, holds)

    return asyncio.run(run())


async def _releasing_holder(connection: Connection, namespace: str, name: str) -> str:
    try:
        return await releasing_holder(connection, namespace, name)
    except ApiError as error:
        why = error.explained(f"the Lease {namespace}/{name} cannot be read")
        hint = "hint: `--lease` names another one, `--force` releases without looking at it"
        raise StowplanError(f"{why}\n{hint}") from error


async def _release(connection: Connection, selection: _Selection, holds: _Holds) -> int:
    """Release pods until none of the selection is held but those that cannot be released."""
    writer = PodWriter(connection, may_write=lambda: True)
    failures: dict[str, str] = {}
    tried: set[str] = set()
    left = holds
    for _ in range(_MOST_PASSES):
        waiting = [hold for uid, hold in left.items() if uid not in tried]
        if not waiting:
            break
        with console.progress("releasing", len(waiting)) as advance:
            failures |= await release_holds(writer, waiting, progress=advance)
        tried |= {hold.pod.uid for hold in waiting}
        left = await selection.read(connection)
    output = console.output()
    output.print(f"released {counted(len(tried - left.keys()), 'pod')}", markup=False)
    if not left:
        return Exit.OK
    _show_left(left, failures)
    return Exit.DENIED


def _is_confirmed(holds: _Holds) -> bool:
    if not sys.stdin.isatty():
        raise StowplanError(
            f"{counted(len(holds), 'pod')} would be released, and nobody is there to confirm it"
            "\nhint: `--yes` does not ask, `--dry-run` shows which"
        )
    namespaces = len({hold.pod.namespace for hold in holds.values()})
    question = f"release {counted(len(holds), 'pod')} of {counted(namespaces, 'namespace')}?"
    return Confirm.ask(question, console=console.errors(), default=False)


def _show_selected(holds: _Holds) -> None:
    counts = Counter(hold.pod.namespace for hold in holds.values())
    rows = [(namespace, f"{count:,}") for namespace, count in sorted(counts.items())]
    table = ui.Table(columns=ui.columns("namespace", "pods"), rows=rows)
    show([table, ui.Paragraph(f"would release {counted(len(holds), 'pod')}")])


def _show_holder(count: int, holder: str) -> None:
    pods = counted(count, "pod")
    text = f"{pods} overdue: left to {holder}, which renews its Lease and releases pods"
    console.output().print(f"{text}\nhint: `--force` releases them", markup=False, soft_wrap=True)


def _show_left(left: _Holds, failures: Mapping[str, str]) -> None:
    """Print the pods that still have our gate, each with the reason, and what removes it."""
    notes = console.errors()
    shown = list(left.items())[:_MOST_SHOWN]
    for uid, hold in shown:
        why = failures.get(uid, "it was held meanwhile")
        notes.print(f"{hold.pod.key}: {why}", markup=False, soft_wrap=True)
    if len(left) > len(shown):
        notes.print(f"and {len(left) - len(shown):,} more")
    first = shown[0][1].pod
    command = (
        f"kubectl patch pod {first.name} --namespace {first.namespace} --type strategic"
        f" --patch '{json.dumps(_WITHOUT_GATE, separators=(',', ':'))}'"
    )
    hint = (
        f"{counted(len(left), 'pod')} still held\n"
        f"hint: whoever refuses must let it pass; one pod is released by\n  {command}\n"
        'all of them by the command in the runbook, "Release every held pod"'
    )
    notes.print(hint, markup=False, soft_wrap=True)
