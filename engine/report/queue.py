"""The held pods in order: what `stowplan queue --json` and /debug/queue show."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import msgspec

from engine.gang import gang_key_of
from engine.model.elastic_quota import (
    ElasticQuota,
    QuotaKey,
    blocking_quotas,
    free_amounts,
    release_interval,
)
from engine.model.hold import HOLD_GATE, QueuedReason, queued_condition_in
from engine.model.pod import Pod
from engine.model.quantity import PODS, amount_text
from engine.model.time import SECOND, Micros, micros
from engine.release import WaitFacts, wait_reason
from engine.report.decision import PodName

_WINDOW: Final = 600 * SECOND
_LEAST_SAMPLES: Final = 5
_MOST_SAMPLES: Final = 100
"""Kept of a quota: of one that releases many, the latest say more than those of ten minutes."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class _Releases:
    """The latest releases of one quota.

    Attributes:
        since: when the first pod waited for it, or was released.
        moments: of releases, the oldest first.
    """

    __slots__ = ("moments", "since")

    def __init__(self, since: Micros) -> None:
        self.since = since
        self.moments: deque[Micros] = deque(maxlen=_MOST_SAMPLES)


class ReleaseRates:
    """How often each quota releases a pod that had to wait for it.

    Pods that find room at once do not count: they say how many came, not how soon a pod leaves that
    makes room for the next one.
    """

    def __init__(self) -> None:
        self._quotas: dict[Hashable, _Releases] = {}

    def waits(self, quota: Hashable, now: Micros) -> None:
        """Note that a pod waits for a quota; repeated while one does."""
        self._recent(quota, now)

    def released(self, quota: Hashable, now: Micros) -> None:
        """Note that a pod is released which has waited for a quota."""
        self._recent(quota, now).moments.append(now)

    def interval(self, quota: Hashable, now: Micros) -> Micros | None:
        """Return the mean time between two releases of the last ten minutes, in microseconds.

        Of the latest 100, where there were more. None where there were fewer than five.
        """
        found = self._quotas.get(quota)
        if found is None:
            return None
        began = max(found.since, now - _WINDOW)
        if len(found.moments) == _MOST_SAMPLES:
            began = max(began, found.moments[0])
        count = sum(moment > began for moment in found.moments)
        return Micros((now - began) // count) if count >= _LEAST_SAMPLES else None

    def retain(self, now: Micros, waiting: Container[Hashable]) -> None:
        """Forget quotas which no pod waits for, and which released none in ten minutes."""
        before = now - _WINDOW
        for quota, found in list(self._quotas.items()):
            newest = found.moments[-1] if found.moments else found.since
            if quota not in waiting and newest <= before:
                del self._quotas[quota]

    def _recent(self, quota: Hashable, now: Micros) -> _Releases:
        return self._quotas.setdefault(quota, _Releases(now))


def expected_wait(position: int, interval: Micros) -> Micros:
    """Return how long the pod at a position, from 1, waits for that many releases."""
    return Micros(position * interval)


def eta_text(wait: Micros) -> str:
    """Return a wait in the precision of a guess, rounded up: `about 3 min`."""
    seconds = -(-wait // SECOND)
    if seconds <= _HOUR:
        return f"about {max(1, -(-seconds // _MINUTE))} min"
    if seconds <= _DAY:
        return f"about {-(-seconds // _HOUR)} h"
    return "more than a day"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A held pod.

    Attributes:
        pod: with our scheduling gate.
        release_by: the moment by which it is to be released, None if that is unknown.
        raw: the pod as JSON, for its condition; empty where it is not known.
        quota: that it waits for; None where it waits for none, or that is unknown.
    """

    pod: Pod
    release_by: Micros | None
    raw: bytes | msgspec.Raw
    quota: ElasticQuota | None = None


class ReleaserReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who releases pods.

    Attributes:
        holder: of the Lease; "" for nobody.
        renewed_seconds_ago: None if that is unknown.
        releasing: whether the holder says that it releases pods.
    """

    holder: str = ""
    renewed_seconds_ago: float | None = None
    releasing: bool = False


class QuotaPlace(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The place of a pod among those that wait for a quota, as the leader last noted it there.

    Attributes:
        quota: `namespace/name`.
        position: from 1.
        of: how many wait for the quota.
        needs: of the pod's requests those of which the first one lacks some; as quantities.
        free: what is left of these.
        blocked_by: the quotas that borrow it.
        eta_seconds: how long it is going to wait, None if nobody knows.
    """

    quota: str
    position: int
    of: int
    needs: Mapping[str, str] = {}
    free: Mapping[str, str] = {}
    blocked_by: tuple[str, ...] = ()
    eta_seconds: int | None = None


class QueuedPodReport(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A held pod in its place.

    Attributes:
        place: 1 for the next to be released; 0 while it waits for gates of others.
        held_seconds: since its creation.
        reason: why it is held.
        nominated_node: where it is about to go; "" for nowhere yet.
        overdue_seconds: since it should have been released; 0 if it is in time.
        quota: its place in its quota; None where it waits for none.
        gang: `namespace/name` of the gang that it names, "" if it names none.
    """

    pod: PodName
    place: int
    priority: int
    qos_class: str
    held_seconds: int
    reason: str
    message: str
    nominated_node: str = ""
    overdue_seconds: int = 0
    quota: QuotaPlace | None = None
    gang: str = ""


class QueueReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queue at one moment.

    Attributes:
        queue_sort: the sort that its order is built on.
        held: how many pods are held; `pods` may be fewer.
        overdue: how many of them should have been released.
        releaser: who releases them; None if that is unknown.
        pods: in order, those that wait for gates of others last.
    """

    queue_sort: str
    held: int
    overdue: int
    releaser: ReleaserReport | None
    pods: tuple[QueuedPodReport, ...]


def queue_report(
    queue: Sequence[QueueEntry],
    now: Micros,
    *,
    queue_sort: str,
    releaser: ReleaserReport | None,
    lists: Callable[[Pod], bool] = lambda _: True,
    most: int | None = None,
) -> QueueReport:
    """Return the report on held pods.

    Args:
        queue: all of them, in order.
        now: the time of day.
        queue_sort: that the order is built on.
        releaser: who releases them; None if that is unknown.
        lists: whether to list a pod; all of them have places.
        most: number of pods to list, None for all.
    """
    # Pods that wait for others have no place: nobody knows when they will be in line.
    in_line = [entry for entry in queue if entry.pod.is_held_by_us_alone]
    others = (entry for entry in queue if not entry.pod.is_held_by_us_alone)
    places = chain(enumerate(in_line, 1), ((0, entry) for entry in others))
    in_quotas = _positions(in_line)
    listed = ((place, entry) for place, entry in places if lists(entry.pod))
    return QueueReport(
        queue_sort=queue_sort,
        held=len(queue),
        overdue=sum(overdue_seconds(entry, now) > 0 for entry in in_line),
        releaser=releaser,
        pods=tuple(
            _queued_pod(entry, place, len(in_line), in_quotas.get(entry.pod.key), now)
            for place, entry in islice(listed, most)
        ),
    )


def overdue_seconds(entry: QueueEntry, now: Micros) -> int:
    """Return the whole seconds since a pod should have been released; 0 if it is in time.

    One that waits for gates of others is never overdue: nobody waits for us.
    """
    if entry.release_by is None or not entry.pod.is_held_by_us_alone:
        return 0
    return max(0, now - entry.release_by) // SECOND


def place_text(place: int, total: int) -> str:
    """Return a place in a queue, such as `4th of 17`."""
    is_teen = 10 <= place % 100 <= 20  # noqa: PLR2004 - eleventh to twentieth
    suffix = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix} of {total}"


def _positions(in_line: Sequence[QueueEntry]) -> dict[str, tuple[int, int]]:
    """Return of each pod that waits for a quota its position there, from 1, and how many wait."""
    queues: dict[QuotaKey, list[str]] = {}
    for entry in in_line:
        if entry.quota is not None:
            queues.setdefault(entry.quota.key, []).append(entry.pod.key)
    return {
        key: (position, len(queue))
        for queue in queues.values()
        for position, key in enumerate(queue, 1)
    }


def _queued_pod(
    entry: QueueEntry, place: int, total: int, in_quota: tuple[int, int] | None, now: Micros
) -> QueuedPodReport:
    pod = entry.pod
    quota = None
    if entry.quota is not None and in_quota is not None:
        quota = _quota_place(pod, entry.quota, *in_quota)
    reason, message = _reason(entry, place, total, quota)
    gang = gang_key_of(pod)
    created = now if pod.created is None else micros(pod.created)
    return QueuedPodReport(
        pod=PodName(pod.namespace, pod.name),
        place=place,
        priority=pod.priority,
        qos_class=pod.shape.qos_class,
        held_seconds=max(0, now - created) // SECOND,
        reason=reason,
        message=message,
        nominated_node=pod.nominated_node_name,
        overdue_seconds=overdue_seconds(entry, now),
        quota=quota,
        gang="" if gang is None else str(gang),
    )


def _quota_place(pod: Pod, quota: ElasticQuota, position: int, of: int) -> QuotaPlace:
    free, interval = free_amounts(quota.figures), release_interval(quota.figures)
    requests = {**pod.shape.quota_requests, PODS: 1}
    return QuotaPlace(
        quota=f"{quota.namespace}/{quota.name}",
        position=position,
        of=of,
        needs={name: amount_text(name, requests[name]) for name in free if requests.get(name)},
        free=free,
        blocked_by=blocking_quotas(quota.figures),
        eta_seconds=None if interval is None else expected_wait(position, interval) // SECOND,
    )


def _reason(entry: QueueEntry, place: int, total: int, quota: QuotaPlace | None) -> tuple[str, str]:
    """Return why a pod is held, as far as it can be told from the pod and its quota."""
    condition = queued_condition_in(entry.raw) if place else None
    noted = condition.reason if condition is not None and condition.is_true else ""
    reason = wait_reason(
        WaitFacts(
            has_other_gates=not place,
            noted=noted,
            quota="" if quota is None else QueuedReason.WAITING_FOR_QUOTA,
        )
    )
    if not place:
        gates = ", ".join(gate for gate in entry.pod.scheduling_gates if gate != HOLD_GATE)
        return reason, f"waits for others to remove {gates}"
    if quota is not None and reason == QueuedReason.WAITING_FOR_QUOTA:
        return reason, _quota_text(quota)
    if condition is None or not noted:
        return reason, place_text(place, total)
    # The place in the condition is that of when it was written.
    detail = condition.message.partition("; ")[2]
    where = place_text(place, total) if quota is None else _where(quota)
    return reason, "; ".join(filter(None, (where, detail)))


def _quota_text(place: QuotaPlace) -> str:
    """Return why a pod waits for its quota, as its condition says it."""
    lacks = [
        f"needs {name} {needed}, {place.free[name]} free" for name, needed in place.needs.items()
    ]
    blockers = f"{', '.join(place.blocked_by)} borrows" if place.blocked_by else ""
    wait = "" if place.eta_seconds is None else eta_text(Micros(place.eta_seconds * SECOND))
    return "; ".join(filter(None, (_where(place), *lacks, blockers, wait)))


def _where(place: QuotaPlace) -> str:
    return f"{place_text(place.position, place.of)} in {place.quota}"
