"""The phase of a PodGroup, as upstream's controller goes from one to the next.

Source: scheduler-plugins, pkg/controllers/podgroup_controller.go. Unlike there, only pods of the
group's own namespace are its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, NamedTuple

from engine.model.pod_group import PodGroup, PodGroupStatus

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
    return _counted(pod_group, members)


def settled_status(pod_group: PodGroup, members: Sequence[MemberPhase]) -> PodGroupStatus:
    """Return the status upon which no other follows, so that one write does for several.

    One follows, for from no phase upstream goes back to one that leads to it again with the same
    members: from Pending it goes on only with enough of them, to Pending only with too few.
    """
    while (status := next_status(pod_group, members)) != pod_group.status:
        pod_group = replace(pod_group, status=status)
    return pod_group.status


def _counted(pod_group: PodGroup, members: Sequence[MemberPhase]) -> PodGroupStatus:
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
