"""The model of a PodGroup, of scheduler-plugins or of Koordinator."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.model import api, resources
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from engine.model.gang import (
    DEFAULT_TIMEOUT_SECONDS,
    KOORDINATOR_TIMEOUT_SECONDS,
    Gang,
    GangKey,
    MatchPolicy,
    gang_from,
)

POD_GROUP_GROUPS: Final = (UPSTREAM_GROUP, KOORDINATOR_GROUP)
"""The API groups that have a PodGroup: scheduler-plugins', which counts first; Koordinator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupStatus:
    """What the controller of a PodGroup has written.

    Attributes:
        phase: "" where it has never been written.
        occupied_by: `namespace/name` of the owners of a member, separated by commas.
        running: members whose phase is that.
        succeeded: likewise.
        failed: likewise.
        schedule_start_time: None where it has never been written.
    """

    phase: str = ""
    occupied_by: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A PodGroup.

    Attributes:
        group: its API group.
        gang: what it says of its pods. Where its `minMember` is below 1, a gang of 1.
        uid: empty if it is not stored.
        version: its resourceVersion, 0 if it has none.
        status: as its controller has written it.
    """

    group: str
    gang: Gang
    uid: str = ""
    version: int = 0
    status: PodGroupStatus = PodGroupStatus()
    node_name: str = ""

    @property
    def key(self) -> str:
        """`group/namespace/name`: both API groups may have one of a name."""
        return pod_group_key(self.group, self.gang.key)


def pod_group_key(group: str, key: GangKey) -> str:
    """Return the key of the PodGroup of an API group that a gang is described by."""
    return f"{group}/{key}"


def pod_group_of(wire: api.PodGroup) -> PodGroup:
    """Return the model of a PodGroup.

    Raises:
        QuantityError: an amount is not a quantity.
    """
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
        has_pod_group=True,
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
