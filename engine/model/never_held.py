"""The pods that are never held, whatever policies say."""

from __future__ import annotations

from typing import Final

from engine.model.hold import HOLD_GATE
from engine.model.pod import Pod

SYSTEM_PRIORITY: Final = 1_000_000_000
"""The least priority that is kept for what runs a cluster: users' own classes end there."""

_KUEUE: Final = "kueue.x-k8s.io/"

_MOST_ANNOTATION_BYTES: Final = 256 * 1024 - 16 * 1024
"""The API server takes 256 KiB of annotations; the rest is left for those of a hold."""


def is_never_held(pod: Pod) -> bool:
    """Return whether a pod is not held, whatever its policies say.

    - What runs a cluster must not wait for us: priorities of 1,000,000,000 and more.
    - Pods with the gate of another: we would keep what they are about to release. Where another
      adds its gate after us, we wait for it.
    - Pods that Kueue manages, whether or not they have its gate: its time limits run from when it
      has admitted them, so they would run while our gate is on.
    - Members of a PodGroup of the scheduler itself: one that is gated gates the whole group.
    - Pods whose annotations leave no room for ours: their release would be refused.
    """
    return (
        pod.priority >= SYSTEM_PRIORITY
        or pod.has_scheduling_group
        or not {HOLD_GATE}.issuperset(pod.scheduling_gates)
        or any(key.startswith(_KUEUE) for key in (*pod.labels, *pod.annotations))
        or _annotation_bytes(pod) > _MOST_ANNOTATION_BYTES
    )


def _annotation_bytes(pod: Pod) -> int:
    """Return what the API server counts of the annotations of a pod."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in pod.annotations.items())
