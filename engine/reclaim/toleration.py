"""Whether a running pod tolerates that others need its room, by the PriorityClass that it has."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.priority_class import PriorityClass
from engine.model.time import Micros
from engine.reclaim.candidates import RunningPod


def is_tolerating(
    running: RunningPod, classes: Mapping[str, PriorityClass], priority: int, now: Micros
) -> bool:
    """Return whether a pod is spared for the sake of its class.

    One of a class that is not known is: what that says of it cannot be told.

    Args:
        running: the pod that might be evicted.
        classes: by name.
        priority: of the pod that needs room.
        now: the moment.
    """
    if not running.priority_class_name:
        return False
    own = classes.get(running.priority_class_name)
    if own is None:
        return True
    return own.toleration is not None and own.toleration.protects(
        running.scheduled_at, priority, now
    )
