"""The release of held pods, as far as it is pure: their order, and the record of each of them.

Belongs here: the queue sorts of kube-scheduler and scheduler-plugins, the order that is built on
one of them, what the leader knows of a held pod, and why one waits. Never: whether quota lets a pod
go, where it goes, and how that is written.
"""

from engine.release.held_pod import (
    LOST_SECONDS,
    HeldPod,
    HeldPodRecord,
    HeldPodRegistry,
    Next,
    Phase,
    ReclaimNote,
    ReclaimStage,
    ReleaseAttempt,
    ReleaseDecision,
    RoomWait,
    Step,
    WriteFailure,
    WriteRefusal,
    WrittenCondition,
    creation_of,
)
from engine.release.node_room import is_within_room, would_stay
from engine.release.queue_order import (
    QUEUE_SORTS,
    AppGroups,
    QueueFacts,
    QueueOrder,
    QueueSort,
    QueueSortName,
    SortKey,
)
from engine.release.waits import EVICTING_REASONS, GANG_REASONS, WaitFacts, wait_reason

__all__ = [
    "EVICTING_REASONS",
    "GANG_REASONS",
    "LOST_SECONDS",
    "QUEUE_SORTS",
    "AppGroups",
    "HeldPod",
    "HeldPodRecord",
    "HeldPodRegistry",
    "Next",
    "Phase",
    "QueueFacts",
    "QueueOrder",
    "QueueSort",
    "QueueSortName",
    "ReclaimNote",
    "ReclaimStage",
    "ReleaseAttempt",
    "ReleaseDecision",
    "RoomWait",
    "SortKey",
    "Step",
    "WaitFacts",
    "WriteFailure",
    "WriteRefusal",
    "WrittenCondition",
    "creation_of",
    "is_within_room",
    "wait_reason",
    "would_stay",
]
