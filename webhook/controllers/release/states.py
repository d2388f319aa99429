"""What the controller knows of a pod between its decision and its release.

A pod is HELD while our gate is on it and no node is chosen, RESERVED while it is decided and counts
on a node, RELEASED from when our gate is gone, and LOST if it is not bound in time. All of it is on
the pod itself, so whoever begins to lead finds every pod in its state.
"""

from __future__ import annotations

import msgspec

from engine.model.elastic_quota import ReclaimMode
from engine.placement import ReleasePatch
from webhook.controllers.release.write_error import WriteFailure
from webhook.placement.held_pods import HeldPod


class ReleaseDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a held pod.

    Attributes:
        node_name: the best node, "" where there is none.
        nominates: whether the node is nominated; else the patch prefers it.
        reason: why there is no node; "" where there is one.
        fits_nowhere: whether that is because no node would take the pod.
        preemption: whether others are evicted for it then.
        patch: written with the release.
    """

    node_name: str = ""
    nominates: bool = True
    reason: str = ""
    fits_nowhere: bool = False
    preemption: ReclaimMode = ReclaimMode.OFF
    patch: ReleasePatch = ReleasePatch()


class DecidedPod(msgspec.Struct, kw_only=True, eq=False):
    """A held pod that is decided, until it is seen without our gate.

    Attributes:
        held: as it was decided.
        decision: what is to be done with it.
        since: when it was decided, or its nomination accepted, by the controller's steady clock.
        is_overdue: whether it is released whatever the cluster is like.
        is_writing: whether a write of it is under way.
        is_counted: whether it counts as released and unbound: its gate is gone, or may be, as its
            release was sent and not answered. From then on its nomination stays.
        is_unanswered: whether its release was sent before, and may have been written.
        is_released: whether its release was accepted.
        failure: of its last write, None if that did not fail.
    """

    held: HeldPod
    decision: ReleaseDecision
    since: float
    is_overdue: bool = False
    is_writing: bool = False
    is_counted: bool = False
    is_unanswered: bool = False
    is_released: bool = False
    failure: WriteFailure | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is done with it, as a write has failed that was not an overdue pod's."""
        return not (self.is_overdue or self.is_writing or self.is_released)
