"""What the controller knows of a pod between the decision to release it and its release.

A pod is HELD while our gate is on it, RESERVED while it is nominated as well, since others make
room for it or its gang starts as a whole, RELEASED from when our gate is gone, and LOST if it is
not bound in time. All of it is on the pod itself, so whoever begins to lead finds every pod in its
state.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from webhook.controllers.release.write_error import WriteFailure
from webhook.placement.held_pods import HeldPod


class ReleaseDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a held pod.

    Attributes:
        node_name: the node where room is reserved for it, "" for none; it is nominated to it before
            it is released.
        reason: why there is none; "" where there is one.
        annotations: written with the release.
    """

    node_name: str = ""
    reason: str = ""
    annotations: Mapping[str, str] = {}


class DecidedPod(msgspec.Struct, kw_only=True, eq=False):
    """A held pod that is to be released, until it is seen without our gate.

    Attributes:
        held: as it was decided.
        decision: what is to be done with it.
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

    @property
    def is_about_to_go(self) -> bool:
        """Whether it is the next to be released, and neither was before nor failed to be."""
        return not self.is_counted and self.failure is None
