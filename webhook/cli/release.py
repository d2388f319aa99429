"""`stowplan release`: remove our scheduling gate from pods, with nothing else of ours running."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.prompt import Confirm

from engine.errors import StowplanError, counted
from engine.model import api
from engine.model.hold import (
    HOLD_GATE,
    RELEASE_BY_ANNOTATION,
    RELEASING_ANNOTATION,
    is_held_for_gang,
    is_queued,
)
from engine.model.pod import Pod
from engine.model.pod_shape import shape_of
from engine.model.time import SECOND, Micros, date, micros
from engine.release import HeldPod, WriteFailure
from webhook.cli import console
from webhook.cli.console import namespace_and_name
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Context, Kubeconfig, Lease, Namespace, described
from webhook.cli.render import show
from webhook.cluster.client.connection import (
    NO_CONTACT,
    ApiError,
    Connection,
    Query,
    connected,
    find_as,
)
from webhook.cluster.client.lists import list_kind
from webhook.cluster.objects import UNREADABLE, readable_part
from webhook.controllers.leader_election import LeaseTimes, steady_clock
from webhook.controllers.release.pod_writer import PodWriter, WriteError
from webhook.doctor import objects
from webhook.pages import ui
from webhook.placement.held_pods import DEFAULT_HOLD_SECONDS

_UNBOUND: Final[Query] = (("fieldSelector", "spec.nodeName="),)
"""A held pod has no node, and most pods have one."""

_NO_SHAPE: Final = shape_of(api.Pod())


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    annotations: dict[str, str] | None = None


class _Gate(msgspec.Struct, gc=False):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel", gc=False):
    scheduling_gates: list[_Gate] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode: Final = msgspec.json.Decoder(_Pod).decode


async def list_holds(
    connection: Connection, *, namespace: str, hold_seconds: int, now: Micros
) -> dict[str, HeldPod]:
    """Return the pods with our gate, maybe among others, by uid.

    Of many there is no more in memory than a release needs: who they are, and as `raw` their uid
    and gates.
    """
    decode = partial(_hold_in, hold_seconds=hold_seconds, now=now)
    holds = await list_kind(connection, "Pod", namespace, query=_UNBOUND, decode=decode)
    return {hold.pod.uid: hold for hold in holds or ()}


def release_by_of(
    annotations: dict[str, str] | None, created: datetime, hold_seconds: int
) -> Micros:
    """Return the moment by which a held pod is to be released.

    Its annotation is the pod's own, and whoever may patch the pod may write it: it counts up to the
    bound of a hold, and one that is missing or cannot be read does not count.
    """
    bound = Micros(micros(created) + hold_seconds * SECOND)
    try:
        noted = micros(datetime.fromisoformat((annotations or {})[RELEASE_BY_ANNOTATION]))
    except (KeyError, ValueError, OverflowError):
        return bound
    return min(noted, bound)


def _hold_in(raw: msgspec.Raw, hold_seconds: int, now: Micros) -> HeldPod | None:
    """Return a pod of a list, None if it does not have our gate."""
    try:
        wire = _decode(raw)
    except UNREADABLE:
        wire = readable_part(raw, _Pod)
    gates = [gate.name for gate in wire.spec.scheduling_gates or ()]
    if HOLD_GATE not in gates:
        return None
    meta = wire.metadata
    created = meta.creation_timestamp or date(now)
    waits_for_quota = is_queued(gates, meta.annotations or {})
    kept = {"metadata": {"uid": meta.uid}, "spec": {"schedulingGates": wire.spec.scheduling_gates}}
    return HeldPod(
        pod=Pod(namespace=meta.namespace, name=meta.name, uid=meta.uid, shape=_NO_SHAPE),
        version=api.version_number(meta.resource_version),
        raw=msgspec.json.encode(kept),
        release_by=release_by_of(meta.annotations, created, hold_seconds),
        seen_at=now,
        is_queued=waits_for_quota,
        is_held_for_gang=is_held_for_gang(gates, meta.annotations or {}),
    )


_WORKERS: Final = 50
_MOST_ATTEMPTS: Final = 5
_DONE: Final = frozenset({WriteFailure.GONE, WriteFailure.CHANGED})
"""Failures of a pod that somebody else has deleted or released."""


async def release_holds(
    writer: PodWriter,
    holds: Iterable[HeldPod],
    *,
    progress: Callable[[], None] = lambda: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, str]:
    """Remove our gate from pods; return why it could not be, by uid.

    One that fails does not keep the others waiting.
    """
    failures: dict[str, str] = {}
    waiting = iter(holds)
    async with asyncio.TaskGroup() as workers:
        for _ in range(_WORKERS):
            workers.create_task(_release_waiting(writer, waiting, failures, progress, sleep))
    return failures


async def _release_waiting(
    writer: PodWriter,
    waiting: Iterator[HeldPod],
    failures: dict[str, str],
    progress: Callable[[], None],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    for hold in waiting:
        failure = await _release_pod(writer, hold, sleep)
        if failure:
            failures[hold.pod.uid] = failure
        progress()


async def _release_pod(
    writer: PodWriter, hold: HeldPod, sleep: Callable[[float], Awaitable[None]]
) -> str:
    """Release a pod; return why it could not be, "" if it is."""
    attempts = 0
    while True:
        attempts += 1
        try:
            await writer.release(hold)
        except WriteError as error:
            if error.failure in _DONE:
                return ""
            if error.failure is WriteFailure.REFUSED or attempts == _MOST_ATTEMPTS:
                return error.message
            await sleep(writer.pause_seconds)
        else:
            return ""


STALE_SECONDS: Final = 60.0
"""A leader that has not renewed its Lease for so long releases nothing any more."""

_POLL_SECONDS: Final = 2.0
_TERM_SECONDS: Final = float(LeaseTimes().duration_seconds)


async def releasing_holder(
    connection: Connection,
    namespace: str,
    name: str,
    *,
    clock: Callable[[], float] = steady_clock,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Return the holder of a Lease who renews it and releases pods, "" if nobody does.

    A renewal that is seen counts, whatever any clock says, which takes seconds. That there is none
    is known after a minute without one; or after a term of the Lease without one, if the last was
    a minute ago by our clock. So it takes a minute at most.
    """
    last = await _read_lease(connection, namespace, name)
    started = clock()
    while last is not None:
        renewed_at = last.spec.renew_time
        is_old = renewed_at is None or (now() - renewed_at).total_seconds() >= STALE_SECONDS
        if clock() - started >= (_TERM_SECONDS if is_old else STALE_SECONDS):
            break
        await sleep(_POLL_SECONDS)
        before, last = last, await _read_lease(connection, namespace, name)
        if last is not None and last != before and _is_releasing(last):
            return last.spec.holder_identity or ""
    return ""


async def _read_lease(connection: Connection, namespace: str, name: str) -> objects.Lease | None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    try:
        return await find_as(connection, path, objects.Lease)
    except msgspec.DecodeError as error:
        raise ApiError(NO_CONTACT, "", f"the Lease cannot be read: {error}") from error


def _is_releasing(lease: objects.Lease) -> bool:
    is_releasing = lease.metadata.annotations.get(RELEASING_ANNOTATION) == "true"
    return is_releasing and bool(lease.spec.holder_identity)


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
