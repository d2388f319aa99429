"""Held pods that no node takes: whether they stay held, as others may be evicted for them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.model.elastic_quota import ReclaimMode
from engine.model.time import Micros
from webhook.controllers.release.parts import ReleaseParts
from webhook.placement.held_pods import HeldPod

_log = logging.getLogger(__name__)


class PostFilter:
    """Asked before a pod is released, as the extension point of kube-scheduler is of one in vain.

    Args:
        parts: of the release controller.
        now: the time of day.
    """

    def __init__(self, parts: ReleaseParts, *, now: Callable[[], Micros]) -> None:
        self._parts = parts
        self._quota_queue = parts.writes.quota_queue
        self._now = now

    def keeps(self, held: HeldPod) -> bool:
        """Return whether a pod stays held from now on, as no node takes it.

        Nodes are looked at only where that matters; then a pod counts on the one that takes it.
        """
        preemptors, reclaims = self._parts.preemptors, self._parts.reclaims
        reclaim, preemption = self._quota_queue.mode_without_node(held), self._preemption(held)
        is_behind_gang = self._parts.gangs.reserves_from(held)
        modes = {reclaim, preemption}
        if not (is_behind_gang or modes != {ReclaimMode.OFF}) or self._has_node(held):
            return False
        if is_behind_gang:
            return True
        for source, mode in (("quota", reclaim), ("preemption", preemption)):
            if mode is ReclaimMode.DRY_RUN:
                reclaims.add_unplaced(source, held, self._now())
        if ReclaimMode.ON not in modes or reclaims.is_in_vain(held):
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

    def _preemption(self, held: HeldPod) -> ReclaimMode:
        """Return what the policy of a pod says of preemption, as far as anybody is evicted."""
        is_possible = self._parts.preemptors.is_enabled and self._parts.reclaims.is_running
        return self._parts.preemption_of(held) if is_possible else ReclaimMode.OFF

    def _has_node(self, held: HeldPod) -> bool:
        """Return whether a node takes a pod, which then counts there.

        The scheduler may choose another; the next pod finds room for one less. One that is too
        large to be judged, or where a rule fails, is left to the scheduler.
        """
        if not held.raw:
            return True
        state = self._parts.writes.state
        state.nominate(held.key, "")  # it competes with others, not with itself
        try:
            node_name = self._parts.node_for(held)
        except Exception:  # noqa: BLE001 - no bug in a rule keeps a pod
            _log.exception("no node could be looked for, for pod `%s`", held.key)
            return True
        if node_name:
            state.nominate(held.key, node_name)
        return bool(node_name)
