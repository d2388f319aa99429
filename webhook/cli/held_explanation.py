"""What the release of a held pod would do now, decided as the release controller decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.markup import escape

from engine.gang import gang_of
from engine.model.hold import HOLD_GATE
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason, queued_condition_in
from engine.model.request import PlacementRequest
from engine.model.time import Micros, micros
from engine.policy import PolicySet
from engine.quota.queueing import NamespaceQueues, QueuedPod, QueueRules, next_releases
from engine.view import ClusterState, ClusterView, quota_requests
from webhook.placement.held_pods import HeldPod
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts

_EVICTING: Final = {
    QueuedReason.WAITING_FOR_RECLAIM,
    QueuedReason.WAITING_FOR_PREEMPTION,
    QueuedReason.BLOCKED_BY_PDB,
}


class ReleaseReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The release of a held pod, if it came now.

    Attributes:
        waits_for: the gates of others, which have to go first.
        waits_for_quota: what keeps it in the queue of its quota, "" for nothing.
        waits_for_gang: what its gang waits for, "" for a pod without a gang.
        evictions: who is evicted for it, or protected from that, as its condition says; "" where
            nobody is.
        nominated_node: "" for none.
        reason: why there is no nomination; "" where there is one.
        patch: of the pod, beside its nomination.
    """

    waits_for: tuple[str, ...]
    waits_for_quota: str = ""
    waits_for_gang: str = ""
    evictions: str = ""
    nominated_node: str
    reason: str
    patch: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        """Return it in a line, in the markup of a terminal."""
        node, reason = escape(self.nominated_node), escape(self.reason)
        what = f"nominated to {node}" if node else f"released without a nomination: {reason}"
        if self.waits_for:
            gates = escape(", ".join(self.waits_for))
            return f"held, and waits for others to remove {gates}; decided now, it would be {what}"
        if self.evictions:
            return f"held: {escape(self.evictions)}; decided now, it would be {what}"
        if self.waits_for_quota:
            why = escape(self.waits_for_quota)
            return f"held, and waits for quota: {why}; decided now, it would be {what}"
        if self.waits_for_gang:
            why = escape(self.waits_for_gang)
            return f"held, and waits for its {why}; decided now, and alone, it would be {what}"
        return f"held; decided now, it would be {what}"


def release_report(
    request: PlacementRequest,
    placer: Placer,
    policies: PolicySet,
    state: ClusterState,
    now: Micros,
) -> ReleaseReport:
    """Return what the release of a held pod would do; afterwards it counts on its node.

    Args:
        request: the pod.
        placer: decides on `state`.
        policies: that apply.
        state: the cluster.
        now: the moment of the decision.
    """
    # With them comes a client of the Kubernetes API, which most explanations do not need.
    from webhook.controllers.release.decider import HeldPodDecider  # noqa: PLC0415
    from webhook.controllers.release.release_patch import release_patch  # noqa: PLC0415

    pod, raw = request.pod, bytes(request.raw)
    waits_for_quota = _quota_wait(pod, raw, state.view()) if pod.is_queued else ""
    decider = HeldPodDecider(
        placer, lambda: policies, state, nominates=lambda _: True, counts=PolicyCounts()
    )
    held = HeldPod(pod=pod, version=0, raw=raw, release_by=now, seen_at=now)
    (decision,) = decider.decide([held])
    patch: Sequence[Any] = release_patch(
        raw, pod.uid, decision.patch.operations, decision.patch.annotations
    )
    return ReleaseReport(
        waits_for=tuple(gate for gate in pod.scheduling_gates if gate != HOLD_GATE),
        waits_for_quota=waits_for_quota,
        waits_for_gang=_gang_wait(pod, raw, state.view()),
        evictions=_evictions(raw),
        nominated_node=decision.node_name,
        reason=decision.reason,
        patch=tuple(dict(operation) for operation in patch),
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
    if condition is None or not condition.is_true or condition.reason not in _EVICTING:
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
