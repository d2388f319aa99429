from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.gang import Gang, GangKey, MemberPhase, next_status, settled_status
from engine.model.pod_group import PodGroup, PodGroupStatus

_CREATED = datetime(2026, 1, 1, tzinfo=UTC)
_PHASES = ("", "Pending", "Scheduling", "Running", "Finished", "Failed", "Unknown")


def _pod_group(status: PodGroupStatus, least: int = 2) -> PodGroup:
    key = GangKey("shop", "train")
    gang = Gang(key=key, min_member=least, total=least, created=_CREATED)
    return PodGroup(group="scheduling.x-k8s.io", gang=gang, status=status)


def _members(*phases: str) -> list[MemberPhase]:
    return [MemberPhase(phase) for phase in phases]


@pytest.mark.parametrize(
    ("phase", "members", "expected"),
    [
        ("", (), "Pending"),
        ("Pending", ("Pending",), "Pending"),
        ("Pending", ("Pending", "Pending"), "Scheduling"),
        ("Scheduling", ("Pending", "Running"), "Scheduling"),
        ("Scheduling", ("Running", "Running"), "Running"),
        ("Running", ("Running", "Succeeded"), "Running"),
        ("Running", ("Running", "Pending"), "Scheduling"),
        ("Running", ("Running",), "Pending"),
        ("Running", ("Running", "Failed"), "Failed"),
        ("Running", ("Running", "Pending", "Failed"), "Failed"),
        ("Running", ("Failed", "Pending"), "Scheduling"),
        ("Running", ("Succeeded", "Succeeded", "Failed"), "Finished"),
        ("Finished", (), "Finished"),
        ("Failed", ("Running", "Running"), "Failed"),
    ],
)
def test_a_phase_follows_from_the_last_one_and_the_members(
    phase: str, members: tuple[str, ...], expected: str
) -> None:
    pod_group = _pod_group(PodGroupStatus(phase=phase))
    assert next_status(pod_group, _members(*members)).phase == expected


def test_members_are_counted_from_scheduling_on() -> None:
    pod_group = _pod_group(PodGroupStatus(phase="Scheduling"))
    status = next_status(pod_group, _members("Running", "Succeeded", "Pending"))
    assert (status.running, status.succeeded, status.failed) == (1, 1, 0)


def test_owners_of_a_member_occupy_the_group() -> None:
    members = [MemberPhase("Pending", ("z", "a")), MemberPhase("Pending")]
    status = next_status(_pod_group(PodGroupStatus(phase="Pending")), members)
    assert status.occupied_by == "shop/a,shop/z"


def test_a_group_that_was_scheduled_two_days_late_is_left_alone() -> None:
    late = PodGroupStatus(
        phase="Pending", schedule_start_time=_CREATED + timedelta(hours=48, seconds=1)
    )
    assert next_status(_pod_group(late), _members("Running", "Running")) == late
    in_time = PodGroupStatus(phase="Pending", schedule_start_time=_CREATED + timedelta(hours=48))
    assert next_status(_pod_group(in_time), _members("Running", "Running")).phase == "Scheduling"


def test_a_settled_status_is_reached_at_once() -> None:
    members = [MemberPhase("Running", ("job",)), MemberPhase("Running", ("job",))]
    status = settled_status(_pod_group(PodGroupStatus()), members)
    assert status == PodGroupStatus(phase="Running", occupied_by="shop/job", running=2)


@given(
    phase=st.sampled_from(_PHASES),
    least=st.integers(1, 4),
    members=st.lists(
        st.sampled_from(("Pending", "Running", "Succeeded", "Failed", "Unknown")), max_size=6
    ),
)
def test_nothing_follows_upon_a_settled_status(phase: str, least: int, members: list[str]) -> None:
    pod_group = _pod_group(PodGroupStatus(phase=phase), least)
    settled = settled_status(pod_group, _members(*members))
    assert next_status(_pod_group(settled, least), _members(*members)) == settled
