"""What is said of a gang: by its PodGroup, or by annotations of its pods.

Sources: scheduler-plugins, apis/scheduling/v1alpha1; Koordinator, apis/extension/coscheduling.go
and pkg/scheduler/plugins/coscheduling/core/gang.go, whose malformed values count as missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import msgspec

from engine.model import api, resources
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from engine.model.resources import Amounts
from engine.model.time import nanoseconds_in

_KOORDINATOR: Final = "gang.scheduling.koordinator.sh"
NAME_ANNOTATION: Final = f"{_KOORDINATOR}/name"
MIN_AVAILABLE_ANNOTATION: Final = f"{_KOORDINATOR}/min-available"
TOTAL_ANNOTATION: Final = f"{_KOORDINATOR}/total-number"
WAITING_TIME_ANNOTATION: Final = f"{_KOORDINATOR}/waiting-time"
MODE_ANNOTATION: Final = f"{_KOORDINATOR}/mode"
GROUPS_ANNOTATION: Final = f"{_KOORDINATOR}/groups"
MATCH_POLICY_ANNOTATION: Final = f"{_KOORDINATOR}/match-policy"
MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""Of a pod: the name of its PodGroup of scheduler-plugins."""

KOORDINATOR_POD_GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
"""Of a pod: the name of its PodGroup of Koordinator."""

LIGHTWEIGHT_NAME_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/name"
LIGHTWEIGHT_MIN_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Of a pod without a PodGroup: the deprecated labels that Koordinator still reads."""

TOPOLOGY_ANNOTATION: Final = "stowplan.dev/gang-topology"
"""The label of nodes in one value of which the whole gang runs."""

TOPOLOGY_POLICY_ANNOTATION: Final = "stowplan.dev/gang-topology-policy"
"""Whether it runs nowhere else: Required, or Preferred."""

WHEN_NO_ROOM_ANNOTATION: Final = "stowplan.dev/when-no-room"
ON_FAILURE_ANNOTATION: Final = "stowplan.dev/on-gang-failure"

GANG_ANNOTATIONS: Final = frozenset(
    {
        NAME_ANNOTATION,
        MIN_AVAILABLE_ANNOTATION,
        TOTAL_ANNOTATION,
        WAITING_TIME_ANNOTATION,
        MODE_ANNOTATION,
        GROUPS_ANNOTATION,
        MATCH_POLICY_ANNOTATION,
        MATCH_POLICY_ALIAS,
        TOPOLOGY_ANNOTATION,
        TOPOLOGY_POLICY_ANNOTATION,
        WHEN_NO_ROOM_ANNOTATION,
        ON_FAILURE_ANNOTATION,
    }
)
"""Annotations of pods that say something of a gang without a PodGroup."""

GANG_LABELS: Final = frozenset(
    {
        POD_GROUP_LABEL,
        KOORDINATOR_POD_GROUP_LABEL,
        LIGHTWEIGHT_NAME_LABEL,
        LIGHTWEIGHT_MIN_LABEL,
    }
)
"""Labels of pods that say to which gang they belong."""

DEFAULT_TIMEOUT_SECONDS: Final = 60
KOORDINATOR_TIMEOUT_SECONDS: Final = 600

_MOST_GANGS: Final = 64
"""In a group of gangs, which is released as one."""

_LONGEST_LABEL_KEY: Final = 317  # a prefix of 253 characters, a slash, a name of 63
_NANOS: Final = 1_000_000_000
_INT32: Final = 2**31 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_Member = TypeVar("_Member", bound=StrEnum)


class GangKey(NamedTuple):
    """Namespace and name of a gang, unique in the cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class GangMode(StrEnum):
    """What becomes of the others when a member fails."""

    STRICT = "Strict"  # they fail, and with them all gangs of the group
    NON_STRICT = "NonStrict"  # they stay


class MatchPolicy(StrEnum):
    """Which members count as those that must run together."""

    ONLY_WAITING = "only-waiting"  # no bound ones
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"  # after the gang has run, every member is a pod of its own


class WhenNoRoom(StrEnum):
    """What becomes of a gang that fits nowhere as a whole."""

    WAIT = "Wait"
    RELEASE = "Release"  # all of it, so that autoscalers see its pods


class OnGangFailure(StrEnum):
    """What becomes of the members that run, when too few of a gang could be started."""

    KEEP = "Keep"
    RECREATE = "Recreate"  # evicted, so that their owner creates them again


class GangTopology(NamedTuple):
    """The part of the cluster in which a whole gang runs."""

    key: str  # the label of nodes whose value names their part
    required: bool  # whether it runs nowhere but in one part


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods of which a number must run together."""

    key: GangKey  # whom its pods name
    min_member: int  # members that must run together, at least 1
    total: int  # members that are expected, `min_member` or more
    # what they need together, None if that is not said; base units
    min_resources: Amounts | None = None
    # within which they are to be bound, from their release
    schedule_timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    mode: GangMode = GangMode.STRICT  # what becomes of the others when a member fails
    match_policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING  # which members count
    group: tuple[GangKey, ...] = ()  # the gangs that start together, itself among them; sorted
    # the part of the cluster in which it runs, None for any nodes
    topology: GangTopology | None = None
    when_no_room: WhenNoRoom = WhenNoRoom.WAIT  # what becomes of it while it fits nowhere
    on_failure: OnGangFailure = OnGangFailure.KEEP  # what becomes of members that run alone
    # its creation: that of its PodGroup, or of the pod that says what it is
    created: datetime | None = None
    succeeded: int = 0  # members that have finished, as its status says

    @property
    def is_recreated(self) -> bool:
        """Whether members that run are to be created again where too few could be started."""
        return self.on_failure is OnGangFailure.RECREATE and self.mode is GangMode.STRICT


def gang_from(  # noqa: PLR0913 - what a PodGroup and what annotations say differently
    key: GangKey,
    annotations: Mapping[str, str],
    *,
    min_member: int,
    timeout_seconds: int,
    match_policy: MatchPolicy,
    created: datetime | None,
    min_resources: Amounts | None = None,
    succeeded: int = 0,
) -> Gang:
    """Return a gang as annotations say, of its PodGroup or of its pods."""
    policy = annotations.get(MATCH_POLICY_ANNOTATION) or annotations.get(MATCH_POLICY_ALIAS)
    return Gang(
        key=key,
        min_member=min_member,
        total=max(integer_in(annotations.get(TOTAL_ANNOTATION)) or 0, min_member),
        min_resources=min_resources,
        schedule_timeout_seconds=timeout_seconds,
        mode=_member(GangMode, annotations.get(MODE_ANNOTATION), GangMode.STRICT),
        match_policy=_member(MatchPolicy, policy, match_policy),
        group=_group(key, annotations.get(GROUPS_ANNOTATION, "")),
        topology=_topology(annotations),
        when_no_room=_member(WhenNoRoom, annotations.get(WHEN_NO_ROOM_ANNOTATION), WhenNoRoom.WAIT),
        on_failure=_member(
            OnGangFailure, annotations.get(ON_FAILURE_ANNOTATION), OnGangFailure.KEEP
        ),
        created=created,
        succeeded=succeeded,
    )


def integer_in(text: str | None) -> int | None:
    """Return a decimal integer of 32 bits as Go reads it, None where there is none."""
    if text is None or _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -_INT32 - 1 <= value <= _INT32 else None


def waiting_seconds(text: str | None) -> int:
    """Return the seconds of Koordinator's waiting time; its default where it says none."""
    nanos = nanoseconds_in(text) if text else None
    if nanos is None or not 0 < nanos <= _INT32 * _NANOS:
        return KOORDINATOR_TIMEOUT_SECONDS
    return -(-nanos // _NANOS)


def _member(kind: type[_Member], text: str | None, default: _Member) -> _Member:
    return next((member for member in kind if member == text), default)


def _group(key: GangKey, text: str) -> tuple[GangKey, ...]:
    """Return the gangs of a list of `namespace/name`, with the gang itself; it alone if malformed.

    Koordinator knows no limit of their number; beyond ours the gang is alone.
    """
    if not text:
        return (key,)
    try:
        names = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, RecursionError):
        return (key,)
    keys = {key, *(GangKey(*name.split("/", 1)) for name in names if "/" in name)}
    return tuple(sorted(keys)) if len(keys) <= _MOST_GANGS else (key,)


def _topology(annotations: Mapping[str, str]) -> GangTopology | None:
    key = annotations.get(TOPOLOGY_ANNOTATION, "")
    if not key or len(key) > _LONGEST_LABEL_KEY:
        return None
    return GangTopology(key, annotations.get(TOPOLOGY_POLICY_ANNOTATION) != "Preferred")


POD_GROUP_GROUPS: Final = (UPSTREAM_GROUP, KOORDINATOR_GROUP)
"""The API groups that have a PodGroup: scheduler-plugins', which counts first; Koordinator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupStatus:
    """What the controller of a PodGroup has written."""

    phase: str = ""  # "" where it has never been written
    occupied_by: str = ""  # `namespace/name` of the owners of a member, separated by commas
    running: int = 0  # members whose phase is that
    succeeded: int = 0  # likewise
    failed: int = 0  # likewise
    schedule_start_time: datetime | None = None  # None where it has never been written


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A PodGroup."""

    group: str  # its API group
    gang: Gang  # what it says of its pods. Where its `minMember` is below 1, a gang of 1
    uid: str = ""  # empty if it is not stored
    version: int = 0  # its resourceVersion, 0 if it has none
    status: PodGroupStatus = PodGroupStatus()  # as its controller has written it
    node_name: str = ""

    @property
    def key(self) -> str:
        """`group/namespace/name`: both API groups may have one of a name."""
        return pod_group_key(self.group, self.gang.key)


def pod_group_key(group: str, key: GangKey) -> str:
    """Return the key of the PodGroup of an API group that a gang is described by."""
    return f"{group}/{key}"


def pod_group_of(wire: api.PodGroup) -> PodGroup:
    """Return the model of a PodGroup."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    is_koordinators = isinstance(wire, api.KoordinatorPodGroup)
    seconds = spec.schedule_timeout_seconds or 0
    if seconds <= 0:
        seconds = KOORDINATOR_TIMEOUT_SECONDS if is_koordinators else DEFAULT_TIMEOUT_SECONDS
    gang = gang_from(
        GangKey(meta.namespace, meta.name),
        meta.annotations or {},
        min_member=max(1, spec.min_member),
        timeout_seconds=seconds,
        match_policy=MatchPolicy.ONCE_SATISFIED
        if is_koordinators
        else MatchPolicy.WAITING_AND_RUNNING,
        created=meta.creation_timestamp,
        min_resources=None if spec.min_resources is None else resources.amounts(spec.min_resources),
        succeeded=max(0, status.succeeded),
    )
    return PodGroup(
        group=KOORDINATOR_GROUP if is_koordinators else UPSTREAM_GROUP,
        gang=gang,
        uid=meta.uid,
        version=meta.version,
        status=PodGroupStatus(
            phase=status.phase,
            occupied_by=status.occupied_by,
            running=status.running,
            succeeded=status.succeeded,
            failed=status.failed,
            schedule_start_time=status.schedule_start_time,
        ),
    )
