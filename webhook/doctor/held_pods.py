"""Held pods: whether they are released in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias

from engine.model.count_text import counted
from engine.model.time import SECOND, Micros, micros
from engine.report import HeldStatus, QueueReport, StatusReport, queue_report
from webhook.doctor.finding import Finding, Level
from webhook.doctor.held_queue import HeldQueue, read_held_queue
from webhook.doctor.installation import Installation, statuses

_Running: TypeAlias = Sequence[tuple[str, StatusReport]]

_STALE_SECONDS: Final = 15.0
_LONG_WAIT_SECONDS: Final = 600  # for somebody else's gate
_MOST_NAMED: Final = 3
_NOT_HOLDING: Final = {
    "no_leader": "nobody renews the Lease",
    "not_releasing": "the leader has not released pods that are due",
    "overdue": "a pod is held for too long",
    "full": "as many pods are held as may be",
}


async def held_pods(installation: Installation) -> AsyncIterator[Finding]:
    """Check the queue of held pods, and what replicas say of them."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    spec = deployment.spec.template.spec
    lease = spec.setting("STOWPLAN_LEASE") or installation.release
    now = micros(installation.now())
    queue = await read_held_queue(installation.connection, f"{installation.namespace}/{lease}", now)
    report = queue_report(
        queue.entries, now, queue_sort=queue.order.sort, releaser=queue.releaser, most=0
    )
    running = statuses(await installation.replicas())
    if spec.setting("STOWPLAN_HOLD") == "true":
        found: Iterator[Finding] = chain(
            _queue(report),
            _gates_of_others(queue, now),
            *(_replica(name, status.held) for name, status in running if status.held is not None),
        )
    else:
        found = _switched_off(report, running)
    for finding in found:
        yield finding


def _switched_off(report: QueueReport, running: _Running) -> Iterator[Finding]:
    """Yield what waits for holds while none are made."""
    if report.held:
        message = f"{_pods(report.held)} held, and `hold.enabled` is off: nobody releases them"
        yield Finding(Level.PROBLEM, message, "`stowplan release --all` releases them")
    names = [name for _, status in running[:1] for name in status.policies.holding]
    if names:
        yield Finding(
            Level.WARNING,
            f"policies have pods held, and `hold.enabled` is off: {_some(names)}",
            "no pod waits for its turn, or has others evicted; set `hold.enabled`, or drop"
            " `releaseInOrder` and `preemption`",
        )


def _queue(report: QueueReport) -> Iterator[Finding]:
    """Yield whether somebody releases pods, and whether any is overdue."""
    releaser = report.releaser
    if releaser is None:
        advice = "the Lease is in the namespace of the release; you may lack the right to read it"
        yield Finding(Level.WARNING, "it is unknown who releases pods", advice)
    elif not releaser.holder:
        advice = "see the replicas above"
        yield Finding(Level.PROBLEM, "no replica leads, so no pod is held", advice)
    elif releaser.renewed_seconds_ago is None or releaser.renewed_seconds_ago >= _STALE_SECONDS:
        seconds = releaser.renewed_seconds_ago
        age = "never" if seconds is None else f"{seconds:.0f} s ago"
        message = f"{releaser.holder} renewed the Lease {age}, so no pod is held"
        yield Finding(Level.PROBLEM, message, "see its log, and the replicas above")
    elif not releaser.releasing:
        yield Finding(
            Level.WARNING,
            f"{releaser.holder} leads and releases no pods, so none is held",
            "its log has the reason; right after its start it is normal",
        )
    if report.overdue:
        yield Finding(
            Level.PROBLEM,
            f"{report.overdue} of {_pods(report.held)} held for longer than they may be",
            "`stowplan queue` shows why; `stowplan release --overdue` releases them",
        )
    elif report.held:
        yield Finding(Level.OK, f"{_pods(report.held)} held, none of them overdue")
    else:
        yield Finding(Level.OK, "no pod is held now")


def _gates_of_others(queue: HeldQueue, now: Micros) -> Iterator[Finding]:
    """Yield pods that have had a gate of somebody else for long."""
    long_ago = now - _LONG_WAIT_SECONDS * SECOND
    waiting = [
        entry.pod.key
        for entry in queue.entries
        if not entry.pod.is_held_by_us_alone
        and entry.pod.created is not None
        and micros(entry.pod.created) < long_ago
    ]
    if waiting:
        yield Finding(
            Level.NOTE,
            f"{counted(len(waiting), 'held pod has', 'held pods have')} waited for gates of others"
            f" for more than {_LONG_WAIT_SECONDS // 60} minutes: {_some(waiting)}",
            "`stowplan queue` names the gates; we release such a pod when ours is the last",
        )


def _replica(name: str, held: HeldStatus) -> Iterator[Finding]:
    """Yield why a replica holds no pods."""
    if held.not_holding:
        why = _NOT_HOLDING.get(held.not_holding, held.not_holding)
        yield Finding(
            Level.WARNING,
            f"{name} holds no pods: {why}",
            "see StowplanNotHolding in the runbook",
        )


def _pods(count: int) -> str:
    return counted(count, "pod is", "pods are")


def _some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
