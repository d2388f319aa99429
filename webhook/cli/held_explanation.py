"""What keeps a held pod from the scheduler, as far as a recording tells."""

from __future__ import annotations

import msgspec
from rich.markup import escape

from engine.gang import gang_of
from engine.model.hold import HOLD_GATE
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason, queued_condition_in
from engine.model.request import PlacementRequest
from engine.model.time import Micros, micros
from engine.quota.queueing import NamespaceQueues, QueuedPod, QueueRules, next_releases
from engine.release import EVICTING_REASONS
from engine.view import ClusterView, quota_requests


class HoldReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What keeps a held pod from the scheduler.

    Attributes:
        waits_for: the gates of others, which have to go first.
        waits_for_quota: what keeps it in the queue of its quota, "" for nothing.
        waits_for_gang: what its gang waits for, "" for a pod without a gang.
        evictions: who is evicted for it, or protected from that, as its condition says; "" where
            nobody is.
    """

    waits_for: tuple[str, ...]
    waits_for_quota: str = ""
    waits_for_gang: str = ""
    evictions: str = ""

    def __str__(self) -> str:
        """Return it in a line, in the markup of a terminal."""
        if self.waits_for:
            return f"held, and waits for others to remove {escape(', '.join(self.waits_for))}"
        if self.evictions:
            return f"held: {escape(self.evictions)}"
        if self.waits_for_quota:
            return f"held, and waits for quota: {escape(self.waits_for_quota)}"
        if self.waits_for_gang:
            return f"held, and waits for its {escape(self.waits_for_gang)}"
        return "held, until it is its turn"


def hold_report(request: PlacementRequest, view: ClusterView) -> HoldReport:
    """Return what keeps a held pod from the scheduler.

    Args:
        request: the pod.
        view: the cluster.
    """
    pod, raw = request.pod, bytes(request.raw)
    return HoldReport(
        waits_for=tuple(gate for gate in pod.scheduling_gates if gate != HOLD_GATE),
        waits_for_quota=_quota_wait(pod, raw, view) if pod.is_queued else "",
        waits_for_gang=_gang_wait(pod, raw, view),
        evictions=_evictions(raw),
    )


def _gang_wait(pod: Pod, raw: bytes, view: ClusterView) -> str:
    """Return what the gang of a pod waits for, "" for a pod without a gang.

    As its condition says: the other members may be on no recording.
    """
    gang = gang_of(pod, view)
    if gang is None:
        return ""
    condition = queued_condition_in(raw)
    if condition is not None and condition.reason == QueuedReason.WAITING_FOR_GANG:
        return f"{condition.message} (as its condition says)"
    return f"gang `{gang.key}`, of which {gang.min_member} must run together"


def _evictions(raw: bytes) -> str:
    """Return who is evicted for a pod, or protected from that: plans are the leader's to make."""
    condition = queued_condition_in(raw)
    if condition is None or not condition.is_true or condition.reason not in EVICTING_REASONS:
        return ""
    return f"{condition.reason}: {condition.message} (as its condition says)"


def _quota_wait(pod: Pod, raw: bytes, view: ClusterView) -> str:
    """Return what keeps a pod in the queue of its quota, "" for nothing.

    It is judged as if it was the only one that waits. Its place is that of its condition: those
    before it may be on no recording.
    """
    queues = NamespaceQueues(QueueRules())
    queues.update(view)
    queue = queues.of(pod)
    if queue is None:
        return ""
    situation = queues.situation(view, under_way=(), assumed=())
    alone = QueuedPod(
        pod.key,
        queue.queue.key,
        quota_requests(pod.shape),
        Micros(0) if pod.created is None else micros(pod.created),
    )
    decision = next_releases(
        [alone], situation.quotas, situation.usage, situation.cohort, alone.since
    )
    wait = decision.waits.get(pod.key)
    condition = queued_condition_in(raw)
    place = "" if condition is None else condition.message.partition("; ")[0]
    if wait is None and not place:
        return ""
    why = "its quota has room for it" if wait is None else wait.message
    return f"{why} ({place}, as its condition says)" if place else why
