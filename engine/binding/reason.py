"""Why the node of a binding was kept or replaced, or the binding denied."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class BindingAction(StrEnum):
    """What becomes of a binding."""

    KEEP = "Keep"  # the pod goes where the scheduler says
    MOVE = "Move"  # it goes to another node
    DENY = "Deny"  # it stays pending; the scheduler tries it again after a back-off


class BindingReason(StrEnum):
    """Why; see `REASON_TEXTS`."""

    # Kept as the best.
    BEST_NODE = "BestNode"
    # Moved.
    BETTER_NODE = "BetterNode"
    FAILS_POLICY = "FailsPolicy"
    FAILS_SCHEDULER = "FailsScheduler"
    NOMINATION_FOLLOWED = "NominationFollowed"
    # Kept, though a policy would rather have another node, or none.
    NONE_FITS = "NoneFits"
    NO_MARGIN = "NoMargin"
    MOVES_PAUSED = "MovesPaused"
    SCHEDULER_BELIEVED = "SchedulerBelieved"
    TOO_LATE = "TooLate"
    DATA_STALE = "DataStale"
    NOMINATION_LOST = "NominationLost"
    # Never moved.
    NO_POLICY = "NoPolicy"
    NAMESPACE_EXCLUDED = "NamespaceExcluded"
    OUT_OF_SCOPE = "OutOfScope"
    OTHER_SCHEDULER = "OtherScheduler"
    SYSTEM_POD = "SystemPod"
    DAEMON_SET = "DaemonSet"
    STATIC_POD = "StaticPod"
    POD_UNKNOWN = "PodUnknown"
    POD_BOUND = "PodBound"
    POD_GATED = "PodGated"
    POD_TOO_LARGE = "PodTooLarge"
    NODE_UNKNOWN = "NodeUnknown"
    CLAIMS = "Claims"
    DEVICES = "Devices"
    PREEMPTOR = "Preemptor"
    SCHEDULING_GROUP = "SchedulingGroup"
    # Denied.
    NO_ROOM = "NoRoom"
    WAITS = "Waits"


REASON_TEXTS: Final = MappingProxyType(
    {
        BindingReason.BEST_NODE: "no other node is better by enough",
        BindingReason.BETTER_NODE: "another node is better",
        BindingReason.FAILS_POLICY: "a filter of its policies rejects the scheduler's node",
        BindingReason.FAILS_SCHEDULER: "the scheduler's node cannot take it any more",
        BindingReason.NOMINATION_FOLLOWED: "room is reserved for it on its nominated node",
        BindingReason.NONE_FITS: "its policies leave no node, and let it pass",
        BindingReason.NO_MARGIN: "every better node is nearly full, and bindings that nobody "
        "asks about might need the room",
        BindingReason.MOVES_PAUSED: "no pod is moved for a while",
        BindingReason.SCHEDULER_BELIEVED: "no pod was moved to its node of late: the scheduler "
        "knows best what fits there",
        BindingReason.TOO_LATE: "the decision was not ready in time",
        BindingReason.DATA_STALE: "what is known of nodes or pods is too old",
        BindingReason.NOMINATION_LOST: "its nominated node cannot take it any more",
        BindingReason.NO_POLICY: "no policy decides it at its binding",
        BindingReason.NAMESPACE_EXCLUDED: "its namespace is excluded",
        BindingReason.OUT_OF_SCOPE: "its label leaves its placement to the scheduler",
        BindingReason.OTHER_SCHEDULER: "another scheduler binds it",
        BindingReason.SYSTEM_POD: "the cluster cannot run without it",
        BindingReason.DAEMON_SET: "pods of a DaemonSet belong to their node",
        BindingReason.STATIC_POD: "it belongs to its kubelet",
        BindingReason.POD_UNKNOWN: "nothing has been seen yet",
        BindingReason.POD_BOUND: "it is bound already",
        BindingReason.POD_GATED: "it has scheduling gates",
        BindingReason.POD_TOO_LARGE: "too little is kept, as it is so large",
        BindingReason.NODE_UNKNOWN: "the scheduler's node has not been seen yet",
        BindingReason.CLAIMS: "its volumes or resource claims were made for the scheduler's node",
        BindingReason.DEVICES: "its devices may be claimed on the scheduler's node",
        BindingReason.PREEMPTOR: "the scheduler evicted pods for it",
        BindingReason.SCHEDULING_GROUP: "the scheduler places its group as one",
        BindingReason.NO_ROOM: "no node can take it: others were moved there in the meantime",
        BindingReason.WAITS: "its policies leave no node that it may be moved to: it waits",
    }
)
"""Each reason as a sentence for people, after "the pod was moved, kept or denied:"."""
