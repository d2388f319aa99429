"""Who is exempt from preemption, as the PreemptionToleration plugin says.

Source: scheduler-plugins, pkg/preemptiontoleration/preemption_toleration.go,
ExemptedFromPreemption.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.pod import Pod
from engine.model.priority_class import NEVER, PriorityClass
from engine.model.time import Micros
from engine.reclaim import RunningPod, is_tolerating


def is_preempting(pod: Pod, classes: Mapping[str, PriorityClass]) -> bool:
    """Return whether others may be evicted for a pod while it is held.

    Args:
        pod: the pod that needs room.
        classes: by name.
    """
    if pod.preemption_policy != NEVER:
        return True
    own = classes.get(pod.priority_class_name)
    return own is not None and own.is_preempting


def is_exempt(
    running: RunningPod, pod: Pod, classes: Mapping[str, PriorityClass], now: Micros
) -> bool:
    """Return whether a running pod of lower priority is never evicted for another, or not yet.

    Args:
        running: the pod that might be evicted.
        pod: the one that needs room.
        classes: by name.
        now: the moment.
    """
    if running.priority_class_name and not is_preempting(pod, classes):
        return True
    return is_tolerating(running, classes, pod.priority, now)
