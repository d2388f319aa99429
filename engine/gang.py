"""Gangs: which pods belong together, what a gang waits for, and the phases of a PodGroup.

Belongs here: who is a member of which gang, how many there are of each state, what upstream's
Coscheduling and Koordinator's gangs would let start, back-off after a failure, the phases of a
PodGroup. Never: nodes that members go to, and how members are released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
import numpy as np

from engine.model.gang import (
    GANG_ANNOTATIONS,
    GANG_LABELS,
    KOORDINATOR_POD_GROUP_LABEL,
    LIGHTWEIGHT_MIN_LABEL,
    LIGHTWEIGHT_NAME_LABEL,
    MIN_AVAILABLE_ANNOTATION,
    NAME_ANNOTATION,
    POD_GROUP_GROUPS,
    POD_GROUP_LABEL,
    WAITING_TIME_ANNOTATION,
    Gang,
    GangKey,
    GangMode,
    GangTopology,
    MatchPolicy,
    OnGangFailure,
    PodGroup,
    PodGroupStatus,
    WhenNoRoom,
    gang_from,
    integer_in,
    pod_group_key,
    waiting_seconds,
)
from engine.model.hold import GANG_RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.quantity import PODS
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros, date
from engine.view import ClusterView, Sum, counted_requests, is_device_resource

# How long a gang waits after it could not be started, so that others have their turn.
#
# Upstream's wait is constant, see scheduler-plugins, pkg/coscheduling/core/core.go,
# BackoffPodGroup; this one doubles.


FIRST_BACKOFF_SECONDS: Final = 10
LONGEST_BACKOFF_SECONDS: Final = 600


class _Failures(msgspec.Struct, frozen=True, gc=False):
    """Failures of a gang in a row, the last of them, and until when it waits."""

    count: int
    last: Micros
    until: Micros


class GangBackoff:
    """Remembers the gangs that failed lately.

    A gang is forgotten when it has started, or has not failed for twice the longest wait: so it
    holds no more than fail meanwhile.

    Args:
        first_seconds: the wait after the first failure, doubled by each further one.
        most_seconds: the longest wait.
    """

    def __init__(
        self,
        *,
        first_seconds: int = FIRST_BACKOFF_SECONDS,
        most_seconds: int = LONGEST_BACKOFF_SECONDS,
    ) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._failures: dict[GangKey, _Failures] = {}  # INVARIANT: the one that failed last is last

    @property
    def failed_at(self) -> Mapping[GangKey, datetime]:
        """When gangs failed last; what the sort `Coscheduling` goes by."""
        return {key: date(failures.last) for key, failures in self._failures.items()}

    def failed(self, key: GangKey, now: Micros) -> None:
        """Remember that a gang could not be started."""
        self._forget_old(now)
        before = self._failures.pop(key, None)
        count = 1 if before is None else before.count + 1
        doubled = min(count - 1, self._most.bit_length())
        seconds = min(self._first * 2**doubled, self._most)
        self._failures[key] = _Failures(count, now, Micros(now + seconds * SECOND))

    def started(self, key: GangKey) -> None:
        """Forget the failures of a gang."""
        self._failures.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._failures.clear()

    def refusal(self, key: GangKey, now: Micros) -> str:
        """Return why a gang is not tried now, "" if it may be."""
        failures = self._failures.get(key)
        if failures is None or now >= failures.until:
            return ""
        seconds = -(-(failures.until - now) // SECOND)
        return f"podGroup {key} failed recently; it is tried again in {seconds} s"

    def _forget_old(self, now: Micros) -> None:
        """Forget those whose last failure is long ago, the oldest of which are first."""
        oldest = now - 2 * self._most * SECOND
        for key in list(self._failures):
            if self._failures[key].last > oldest:
                break
            del self._failures[key]


DEFAULT_RESERVE_AFTER_SECONDS: Final = 60
"""After which a gang that finds no room reserves it as it comes free."""


class ReservationTurns:
    """Whose turn it is to reserve room: namespaces one by one, however many gangs each has.

    Within a namespace the gang goes first that has waited longest.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # by namespace, the number of its last turn
        self._turn = 0

    def take(self, waiting: Mapping[GangKey, float]) -> GangKey | None:
        """Return the gang whose turn it is, None if none waits; then it has had it.

        Args:
            waiting: the moments since when gangs wait, or may try again.
        """
        if not waiting:
            return None
        key = min(waiting, key=lambda key: (self._last.get(key.namespace, 0), waiting[key], key))
        self._turn += 1
        self._last[key.namespace] = self._turn
        return key

    def clear(self) -> None:
        """Forget who had turns."""
        self._last.clear()


# To which gang a pod belongs.
#
# Sources: scheduler-plugins, pkg/util/podgroup.go; Koordinator,
# pkg/scheduler/plugins/coscheduling/util/gang_helper.go, GetGangNameByPod.


_LONGEST_NAME: Final = 253
_LONGEST: Final = 1024
_NAME_LABELS: Final = (POD_GROUP_LABEL, KOORDINATOR_POD_GROUP_LABEL, LIGHTWEIGHT_NAME_LABEL)


def gang_key_of(pod: Pod) -> GangKey | None:
    """Return the gang that a pod names, which need not exist; None if it names none.

    One of a group of the scheduler itself names none: the scheduler starts those together.
    """
    return None if pod.has_scheduling_group else named_gang_of(pod)


def named_gang_of(pod: Pod) -> GangKey | None:
    """Return the gang that labels or annotations name, though the pod may be of another group."""
    labels = pod.labels
    name = next((labels[label] for label in _NAME_LABELS if labels.get(label)), "")
    name = name or pod.annotations.get(NAME_ANNOTATION, "")
    if not name or len(name) > _LONGEST_NAME or "/" in name:
        return None
    return GangKey(pod.namespace, name)


def pod_group_of_gang(key: GangKey, view: ClusterView) -> PodGroup | None:
    """Return the PodGroup that describes a gang, None where there is none."""
    found = (view.lookup(PodGroup, pod_group_key(group, key)) for group in POD_GROUP_GROUPS)
    return next((pod_group for pod_group in found if pod_group is not None), None)


def gang_of(pod: Pod, view: ClusterView) -> Gang | None:
    """Return the gang of a pod, None if it is a pod of its own.

    A pod whose PodGroup does not exist is one, as upstream passes it, unless the pod itself says
    how many are to run together. Pods of one gang without a PodGroup may say different things: the
    oldest decides, see `GangMembers`.
    """
    key = gang_key_of(pod)
    if key is None:
        return None
    pod_group = pod_group_of_gang(key, view)
    return pod_group.gang if pod_group is not None else gang_described_by(pod)


def names_missing_pod_group(pod: Pod, view: ClusterView) -> GangKey | None:
    """Return the gang that a pod names although nothing says what it is, else None."""
    return None if gang_of(pod, view) is not None else gang_key_of(pod)


def gang_described_by(pod: Pod) -> Gang | None:
    """Return the gang that a pod describes as Koordinator reads it, None if it describes none."""
    key = gang_key_of(pod)
    if key is None:
        return None
    text = pod.labels.get(LIGHTWEIGHT_MIN_LABEL) or pod.annotations.get(MIN_AVAILABLE_ANNOTATION)
    min_member = integer_in(text)
    if min_member is None or min_member < 1:
        return None
    return gang_from(
        key,
        pod.annotations,
        min_member=min_member,
        timeout_seconds=waiting_seconds(pod.annotations.get(WAITING_TIME_ANNOTATION)),
        match_policy=MatchPolicy.ONCE_SATISFIED,
        created=pod.created,
    )


def gang_metadata_of(pod: Pod) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations of a pod that say what gang it belongs to.

    What is longer than any that means something is left out.
    """
    return _short(pod.labels, GANG_LABELS), _short(pod.annotations, GANG_ANNOTATIONS)


def _short(texts: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: texts[name] for name in names if name in texts and len(texts[name]) <= _LONGEST}


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


# The phase of a PodGroup, as upstream's controller goes from one to the next.
#
# Source: scheduler-plugins, pkg/controllers/podgroup_controller.go. Unlike there, only pods of the
# group's own namespace are its members.


PENDING: Final = "Pending"
SCHEDULING: Final = "Scheduling"
RUNNING: Final = "Running"
FINISHED: Final = "Finished"
FAILED: Final = "Failed"

_FINAL: Final = frozenset({FINISHED, FAILED})
_ABANDONED_AFTER: Final = timedelta(hours=48)


class MemberPhase(NamedTuple):
    """What the status of a PodGroup is made of: the phase of a member, and who owns it."""

    phase: str
    owners: tuple[str, ...] = ()


def is_final(status: PodGroupStatus) -> bool:
    """Return whether no other status follows upon this one, whatever happens."""
    return status.phase in _FINAL


def next_status(pod_group: PodGroup, members: Sequence[MemberPhase]) -> PodGroupStatus:
    """Return the status that follows upon that of a PodGroup: one step, of which it may take two.

    Args:
        pod_group: with the status that it has.
        members: all of it, those that have finished too; of the first the owners are told.
    """
    status = pod_group.status
    if is_final(status) or _is_abandoned(pod_group):
        return status
    if not status.phase:
        return replace(status, phase=PENDING)
    if status.phase == PENDING:
        if len(members) < pod_group.gang.min_member:
            return status
        owners = members[0].owners
        occupied_by = ",".join(sorted(f"{pod_group.gang.key.namespace}/{name}" for name in owners))
        return replace(status, phase=SCHEDULING, occupied_by=occupied_by or status.occupied_by)
    return _bound_members(pod_group, members)


def settled_status(pod_group: PodGroup, members: Sequence[MemberPhase]) -> PodGroupStatus:
    """Return the status upon which no other follows, so that one write does for several.

    One follows, for from no phase upstream goes back to one that leads to it again with the same
    members: from Pending it goes on only with enough of them, to Pending only with too few.
    """
    while (status := next_status(pod_group, members)) != pod_group.status:
        pod_group = replace(pod_group, status=status)
    return pod_group.status


def _bound_members(pod_group: PodGroup, members: Sequence[MemberPhase]) -> PodGroupStatus:
    least = pod_group.gang.min_member
    phases = [member.phase for member in members]
    running, succeeded, failed = (phases.count(name) for name in ("Running", "Succeeded", "Failed"))
    if len(members) < least:
        phase = PENDING
    elif running + succeeded < least:
        phase = SCHEDULING
    else:
        phase = RUNNING
    if failed and failed + running + succeeded >= least:
        phase = FAILED
    if succeeded >= least:
        phase = FINISHED
    return replace(
        pod_group.status, phase=phase, running=running, succeeded=succeeded, failed=failed
    )


def _is_abandoned(pod_group: PodGroup) -> bool:
    """Return whether a group was first scheduled so late that its pods may be gone meanwhile."""
    status, created = pod_group.status, pod_group.gang.created
    return (
        status.phase in {PENDING, SCHEDULING}
        and not status.running
        and status.schedule_start_time is not None
        and created is not None
        and status.schedule_start_time - created > _ABANDONED_AFTER
    )


# Whether a cluster has the room that a gang says it needs, before any node is looked at.
#
# Source: scheduler-plugins, pkg/coscheduling/core/core.go, CheckClusterResource. Unlike there, what
# pods use beyond a node's own is not taken from the others.


def min_resources_gap(
    gang: Gang, view: ClusterView, running: Iterable[tuple[str, PodShape]]
) -> Amounts:
    """Return what all nodes together lack of a gang's `min_resources`; no amount is 0.

    A gang that says what it needs needs a place for each member, too. What nodes have free is added
    up, so nothing may be missing although no node has room. What devices may provide is not looked
    at: how much of it there is, is not known.

    Args:
        gang: that is to start.
        view: the cluster.
        running: names of nodes, and shapes of members that count on them: what they use is free for
            their gang.
    """
    if gang.min_resources is None:
        return {}
    needed = {**gang.min_resources, PODS: gang.min_member}
    of_members = [
        (view.rows[node_name], counted_requests(shape))
        for node_name, shape in running
        if node_name in view.rows
    ]
    gap = {
        name: amount - _free(name, view, of_members)
        for name, amount in needed.items()
        if not is_device_resource(name, view)
    }
    return {name: amount for name, amount in gap.items() if amount > 0}


def _free(name: str, view: ClusterView, of_members: Sequence[tuple[int, Mapping[str, int]]]) -> int:
    """Return what all nodes have of a resource, as if some pods were not on their rows."""
    at = view.axis.find(name)
    if at is None:
        return 0
    free = view.allocatable[at] - view.sums[Sum.REQUESTS, at]
    for row, requests in of_members:
        free[row] += requests.get(name, 0)
    return int(np.maximum(free, 0)[view.valid].sum())


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
