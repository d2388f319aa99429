"""Held pods that no node takes: whether they stay held, as others may be evicted for them."""

from __future__ import annotations

from collections.abc import Callable

from engine.model.elastic_quota import ReclaimMode
from engine.model.time import Micros
from webhook.controllers.release.parts import ReleaseParts
from webhook.controllers.release.states import ReleaseDecision
from webhook.placement.held_pods import HeldPod


class PostFilter:
    """Called for pods without a node, as the extension point of kube-scheduler is.

    Args:
        parts: of the release controller.
        now: the time of day.
    """

    def __init__(self, parts: ReleaseParts, *, now: Callable[[], Micros]) -> None:
        self._parts = parts
        self._quota_queue = parts.writes.quota_queue
        self._now = now

    def keeps(self, held: HeldPod, decision: ReleaseDecision) -> bool:
        """Return whether a pod stays held from now on, while others are evicted for it.

        Args:
            held: the pod.
            decision: for no node.
        """
        preemptors, reclaims = self._parts.preemptors, self._parts.reclaims
        reclaim, preemption = self._quota_queue.mode_without_node(held), decision.preemption
        is_possible = preemptors.is_enabled and reclaims.is_running
        if not (decision.fits_nowhere and is_possible):
            preemption = ReclaimMode.OFF
        for source, mode in (("quota", reclaim), ("preemption", preemption)):
            if mode is ReclaimMode.DRY_RUN:
                reclaims.add_unplaced(source, held, self._now())
        if ReclaimMode.ON not in {reclaim, preemption} or reclaims.is_in_vain(held):
            return False
        if node_name := "" if decision.fits_nowhere else self._parts.node_for(held):
            # The scheduler may choose another; the next one finds room for one pod less.
            self._parts.writes.state.nominate(held.key, node_name)
            return False
        if reclaim is ReclaimMode.ON:
            self._quota_queue.keep_without_node(held)
        if preemption is ReclaimMode.ON:
            preemptors.keep(held)
        return True

    def keep_gang(self, first: HeldPod) -> None:
        """Note that a gang within the min of its quota has no room: others may be evicted for it.

        Args:
            first: the member whose place in the queue it has.
        """
        if self._quota_queue.mode_without_node(first) is not ReclaimMode.OFF:
            self._quota_queue.keep_without_node(first)
