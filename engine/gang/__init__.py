"""Gangs: which pods belong together, what a gang waits for, and its phases.

Belongs here: who is a member of which gang, how many there are of each state, what upstream's
Coscheduling and Koordinator's gangs would let start, back-off after a failure, the phases of a
PodGroup. Never: nodes that members go to, and how members are released.
"""

from engine.gang.backoff import GangBackoff
from engine.gang.members import (
    GangMember,
    GangStage,
    MemberCounts,
    MemberState,
    Readiness,
    count_members,
    member_of,
    readiness_of,
)
from engine.gang.membership import (
    gang_described_by,
    gang_key_of,
    gang_metadata_of,
    gang_of,
    named_gang_of,
    names_missing_pod_group,
    pod_group_of_gang,
)
from engine.gang.phase import MemberPhase, is_final, next_status, settled_status
from engine.gang.room import min_resources_gap
from engine.model.gang import (
    Gang,
    GangKey,
    GangMode,
    GangTopology,
    MatchPolicy,
    OnGangFailure,
    WhenNoRoom,
)

__all__ = [
    "Gang",
    "GangBackoff",
    "GangKey",
    "GangMember",
    "GangMode",
    "GangStage",
    "GangTopology",
    "MatchPolicy",
    "MemberCounts",
    "MemberPhase",
    "MemberState",
    "OnGangFailure",
    "Readiness",
    "WhenNoRoom",
    "count_members",
    "gang_described_by",
    "gang_key_of",
    "gang_metadata_of",
    "gang_of",
    "is_final",
    "member_of",
    "min_resources_gap",
    "named_gang_of",
    "names_missing_pod_group",
    "next_status",
    "pod_group_of_gang",
    "readiness_of",
    "settled_status",
]
