"""The members of a gang, how many there are of each state, and what the gang waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from engine.gang.membership import gang_key_of
from engine.model.gang import Gang, GangKey, MatchPolicy
from engine.model.hold import GANG_RELEASED_ANNOTATION
from engine.model.pod import Pod


class MemberState(StrEnum):
    """How far a member is on its way to a node."""

    HELD = "held"  # by our gate alone
    GATED = "gated"  # by gates of others, and maybe ours
    RELEASED = "released"  # the scheduler considers it
    BOUND = "bound"


class GangMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod of a gang that has neither finished nor is being deleted.

    Attributes:
        gang: that it names.
        created: its creation, None if it is not stored.
        node_name: of the node that it is bound to, "" for none.
        nominated_node_name: of the node that it is nominated to, "" for none.
        is_running: whether its containers have started.
        released_with: the moment of the release of its gang, "" of a member that was released
            alone or is held.
    """

    gang: GangKey
    name: str
    uid: str
    state: MemberState
    priority: int = 0
    created: datetime | None = None
    node_name: str = ""
    nominated_node_name: str = ""
    is_running: bool = False
    released_with: str = ""

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return f"{self.gang.namespace}/{self.name}"


def member_of(pod: Pod) -> GangMember | None:
    """Return what a pod is to its gang; None if it is in none, has finished or is being deleted."""
    if pod.is_terminal or pod.deleting:
        return None
    key = gang_key_of(pod)
    if key is None:
        return None
    return GangMember(
        gang=key,
        name=pod.name,
        uid=pod.uid,
        state=_state_of(pod),
        priority=pod.priority,
        created=pod.created,
        node_name=pod.node_name,
        nominated_node_name=pod.nominated_node_name,
        is_running=pod.phase == "Running",
        released_with="" if pod.gated else pod.annotations.get(GANG_RELEASED_ANNOTATION, ""),
    )


def _state_of(pod: Pod) -> MemberState:
    if pod.node_name:
        return MemberState.BOUND
    if not pod.gated:
        return MemberState.RELEASED
    return MemberState.HELD if pod.is_held_by_us_alone else MemberState.GATED


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCounts:
    """How many members of a gang there are, by state.

    Attributes:
        prepared: held ones that are nominated.
    """

    held: int = 0
    gated: int = 0
    released: int = 0
    bound: int = 0
    prepared: int = 0

    @property
    def started(self) -> int:
        """Those that are held no longer."""
        return self.released + self.bound


def count_members(members: Iterable[GangMember]) -> MemberCounts:
    """Return how many members there are, by state."""
    counts: Counter[MemberState] = Counter()
    prepared = 0
    for member in members:
        counts[member.state] += 1
        prepared += member.state is MemberState.HELD and bool(member.nominated_node_name)
    return MemberCounts(
        held=counts[MemberState.HELD],
        gated=counts[MemberState.GATED],
        released=counts[MemberState.RELEASED],
        bound=counts[MemberState.BOUND],
        prepared=prepared,
    )


class GangStage(StrEnum):
    """What a gang waits for."""

    GATHERING = "gathering"  # for members to be created
    GATED = "gated"  # for gates of others to be removed
    READY = "ready"  # for room and quota
    COMMITTING = "committing"  # some were released together, and the others follow first of all
    STARTED = "started"  # nothing: members that are held still are pods of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a gang waits for.

    Attributes:
        stage: what it waits for.
        needed: held members that must be released together; 0 if it is not ready.
        message: for people; "" where the gang itself waits for nothing.
    """

    stage: GangStage
    needed: int = 0
    message: str = ""


def readiness_of(gang: Gang, counts: MemberCounts) -> Readiness:
    """Return what a gang waits for, by its own members alone.

    Members that are released or bound count, and those that have finished, unless the gang says
    otherwise. A gang whose members are partly released while others are held and nominated is in
    the middle of its release, whoever began it.
    """
    counted = _counted(gang, counts)
    if counts.started and counts.prepared and counted < gang.min_member:
        return Readiness(stage=GangStage.COMMITTING, needed=min(counts.held, counts.prepared))
    once = gang.match_policy is MatchPolicy.ONCE_SATISFIED
    if counted >= gang.min_member or (once and counts.started):
        return Readiness(stage=GangStage.STARTED)
    needed = gang.min_member - counted
    if counts.held >= needed:
        return Readiness(stage=GangStage.READY, needed=needed)
    if counts.held + counts.gated >= needed:
        missing = needed - counts.held
        message = f"{missing} of {gang.min_member} members have gates of others"
        return Readiness(stage=GangStage.GATED, message=message)
    exist = counted + counts.held + counts.gated
    expected = f", {gang.total} are expected" if gang.total > gang.min_member else ""
    message = f"{exist} of {gang.min_member} members exist{expected}"
    return Readiness(stage=GangStage.GATHERING, message=message)


def _counted(gang: Gang, counts: MemberCounts) -> int:
    """Return how many members count as started towards `min_member`."""
    if gang.match_policy is MatchPolicy.ONLY_WAITING:
        return counts.released
    return counts.started + gang.succeeded
