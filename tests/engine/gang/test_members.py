from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from engine.gang import (
    Gang,
    GangKey,
    GangStage,
    MatchPolicy,
    MemberCounts,
    MemberState,
    Readiness,
    count_members,
    member_of,
    readiness_of,
)
from engine.model import api
from engine.model.hold import HOLD_GATE
from engine.model.pod import Pod, pod_of
from tests.builders import pod_from

_KEY = GangKey("shop", "train")


def _pod(
    name: str = "a",
    *,
    gates: tuple[str, ...] = (),
    node: str = "",
    nominated: str = "",
    phase: str = "Pending",
    deleted: bool = False,
) -> Pod:
    meta = {
        "name": name,
        "namespace": "shop",
        "labels": {"scheduling.x-k8s.io/pod-group": "train"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z" if deleted else None,
    }
    spec = {"nodeName": node, "schedulingGates": [{"name": gate} for gate in gates]}
    status = {"phase": phase, "nominatedNodeName": nominated}
    return pod_from({"metadata": meta, "spec": spec, "status": status})


def _gang(
    least: int, policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING, succeeded: int = 0
) -> Gang:
    return Gang(key=_KEY, min_member=least, total=least, match_policy=policy, succeeded=succeeded)


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (_pod(gates=(HOLD_GATE,)), MemberState.HELD),
        (_pod(gates=(HOLD_GATE, "example.com/wait")), MemberState.GATED),
        (_pod(gates=("example.com/wait",)), MemberState.GATED),
        (_pod(), MemberState.RELEASED),
        (_pod(node="n1"), MemberState.BOUND),
    ],
)
def test_a_member_is_held_gated_released_or_bound(pod: Pod, state: MemberState) -> None:
    member = member_of(pod)
    assert member is not None
    assert (member.gang, member.key, member.state) == (_KEY, "shop/a", state)
    assert member.created == datetime(2026, 1, 1, tzinfo=UTC)


def test_who_has_finished_or_goes_is_no_member() -> None:
    assert member_of(_pod(node="n1", phase="Succeeded")) is None
    assert member_of(_pod(node="n1", phase="Failed")) is None
    assert member_of(_pod(node="n1", deleted=True)) is None


def test_a_pod_without_a_gang_is_no_member() -> None:
    assert member_of(pod_of(api.Pod())) is None


def test_members_are_counted_by_state() -> None:
    pods = [
        _pod("a", gates=(HOLD_GATE,)),
        _pod("b", gates=(HOLD_GATE,), nominated="n1"),
        _pod("c", gates=("x",)),
        _pod("d", nominated="n1"),
        _pod("e", node="n1", phase="Running"),
    ]
    members = [member for member in map(member_of, pods) if member is not None]
    counts = count_members(members)
    assert counts == MemberCounts(held=2, gated=1, released=1, bound=1, prepared=1)
    assert counts.started == 2
    assert [member.is_running for member in members] == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("counts", "readiness"),
    [
        (MemberCounts(), (GangStage.GATHERING, 0, "0 of 8 members exist")),
        (MemberCounts(held=3), (GangStage.GATHERING, 0, "3 of 8 members exist")),
        (MemberCounts(held=1, bound=2), (GangStage.GATHERING, 0, "3 of 8 members exist")),
        (
            MemberCounts(held=6, gated=2),
            (GangStage.GATED, 0, "2 of 8 members have gates of others"),
        ),
        (MemberCounts(held=8, gated=2), (GangStage.READY, 8, "")),
        (MemberCounts(held=9), (GangStage.READY, 8, "")),
        (MemberCounts(held=1, bound=7), (GangStage.READY, 1, "")),
        (MemberCounts(held=8, prepared=8), (GangStage.READY, 8, "")),
        (MemberCounts(held=5, released=3, prepared=5), (GangStage.COMMITTING, 5, "")),
        (MemberCounts(held=5, released=2, bound=1, prepared=5), (GangStage.COMMITTING, 5, "")),
        (MemberCounts(held=2, bound=8), (GangStage.STARTED, 0, "")),
        (MemberCounts(held=2, released=8, prepared=2), (GangStage.STARTED, 0, "")),
    ],
)
def test_a_gang_waits_until_as_many_as_must_run_are_held_by_us_alone(
    counts: MemberCounts, readiness: tuple[GangStage, int, str]
) -> None:
    stage, needed, message = readiness
    expected = Readiness(stage=stage, needed=needed, message=message)
    assert readiness_of(_gang(8), counts) == expected


def test_it_is_told_how_many_are_expected_if_more_than_must_run() -> None:
    gang = replace(_gang(8), total=12)
    message = readiness_of(gang, MemberCounts(held=3)).message
    assert message == "3 of 8 members exist, 12 are expected"


def test_members_that_have_finished_count_as_those_that_run() -> None:
    assert readiness_of(_gang(8, succeeded=5), MemberCounts(held=1, bound=2)).needed == 1


def test_once_satisfied_every_further_member_is_a_pod_of_its_own() -> None:
    gang = _gang(8, MatchPolicy.ONCE_SATISFIED)
    assert readiness_of(gang, MemberCounts(held=1, bound=1)).stage is GangStage.STARTED
    assert readiness_of(gang, MemberCounts(held=8)).stage is GangStage.READY


def test_once_satisfied_a_release_that_was_interrupted_goes_on() -> None:
    gang = _gang(8, MatchPolicy.ONCE_SATISFIED)
    counts = MemberCounts(held=7, released=1, prepared=7)
    assert readiness_of(gang, counts).stage is GangStage.COMMITTING


def test_with_only_waiting_members_those_that_run_do_not_count() -> None:
    gang = _gang(8, MatchPolicy.ONLY_WAITING)
    assert readiness_of(gang, MemberCounts(held=3, bound=8)).stage is GangStage.GATHERING
    assert readiness_of(gang, MemberCounts(held=8, bound=8)).needed == 8
    committing = MemberCounts(held=5, released=2, bound=1, prepared=5)
    assert readiness_of(gang, committing).stage is GangStage.COMMITTING
