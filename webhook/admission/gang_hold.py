"""Holds of new pods for their gangs: which are held, and what their creators are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.gang import gang_key_of, gang_of, named_gang_of
from engine.model.never_held import is_never_held
from engine.model.pod import Pod
from engine.view import ClusterView
from webhook.placement.hold_guard import Refusal

_REASONS: Final = {
    Refusal.NO_LEADER: "no replica leads",
    Refusal.NOT_RELEASING: "no pods are being released",
    Refusal.OVERDUE: "held pods are not released in time",
    Refusal.FULL: "too many pods of its namespace are held",
}


def may_name_gang(raw: bytes) -> bool:
    """Return whether a pod as it was sent may name a gang; takes a microsecond for each KiB.

    The API server writes no letter of a name as an escape.
    """
    return b"pod-group" in raw or b"gang.scheduling.koordinator.sh/name" in raw


class GangHolds:
    """Says which new pods are held until their gang may start.

    Args:
        view: the cluster, with its PodGroups.
        has_pod_groups: whether the API server has PodGroups at all.
    """

    def __init__(self, view: Callable[[], ClusterView], has_pod_groups: Callable[[], bool]) -> None:
        self._view = view
        self._has_pod_groups = has_pod_groups

    def waits(self, pod: Pod) -> bool:
        """Return whether a pod waits for its gang.

        So does one whose PodGroup is not there: it may have been created just before the pod, and
        be seen a moment later. If it is not, the pod is released as one of its own.
        """
        if gang_key_of(pod) is None:
            return False
        return self._has_pod_groups() or gang_of(pod, self._view()) is not None

    def warning(self, pod: Pod, refusal: Refusal, *, is_held: bool) -> str:
        """Return what the creator of a pod that waits for its gang should know, "" for nothing.

        Args:
            pod: waits for its gang.
            refusal: why no pods may be held now.
            is_held: whether it is.
        """
        key = gang_key_of(pod)
        if is_held:
            if gang_of(pod, self._view()) is not None:
                return ""
            return (
                f"stowplan: no PodGroup `{key}` is known: unless it is in a moment, the pod starts"
                " on its own"
            )
        reason = "such pods are never held" if is_never_held(pod) else _REASONS[refusal]
        return (
            f"stowplan: the pod may start before others of its gang `{key}` can: it is not held,"
            f" for {reason}"
        )

    def warning_of_scheduling_group(self, pod: Pod) -> str:
        """Return what the creator of a pod of a group of the scheduler should know, "" for nothing.

        The Job controller puts pods into such groups unasked, whatever gang their labels name.
        """
        key = named_gang_of(pod)
        if key is None:
            return ""
        return (
            f"stowplan: the pod is no member of its gang `{key}`: `spec.schedulingGroup` leaves it"
            " to the scheduler"
        )
