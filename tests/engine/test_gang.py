from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.gang import (
    Gang,
    GangBackoff,
    GangKey,
    GangStage,
    MatchPolicy,
    MemberCounts,
    MemberPhase,
    MemberState,
    Readiness,
    ReservationTurns,
    count_members,
    gang_key_of,
    gang_metadata_of,
    gang_of,
    member_of,
    min_resources_gap,
    names_missing_pod_group,
    next_status,
    readiness_of,
    settled_status,
)
from engine.model import api
from engine.model.gang import PodGroup, PodGroupStatus, pod_group_of
from engine.model.hold import HOLD_GATE
from engine.model.node import DeviceClass
from engine.model.pod import Pod, pod_of
from engine.model.time import SECOND, Micros, date
from engine.view import ClusterState, ClusterView
from tests.builders import node_from, pod_from

_KEY = GangKey("shop", "train")


def _at(seconds: float) -> Micros:
    return Micros(int(seconds * SECOND))


def test_a_gang_that_never_failed_may_be_tried() -> None:
    assert GangBackoff().refusal(_KEY, _at(0)) == ""


def test_each_failure_doubles_the_wait_up_to_ten_minutes() -> None:
    backoff, now = GangBackoff(), 0
    for seconds in (10, 20, 40, 80, 160, 320, 600, 600):
        backoff.failed(_KEY, _at(now))
        assert backoff.refusal(_KEY, _at(now + seconds - 0.5)).endswith("tried again in 1 s")
        assert backoff.refusal(_KEY, _at(now + seconds)) == ""
        now += seconds


def test_the_reason_tells_how_long_it_waits() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(100))
    expected = "podGroup shop/train failed recently; it is tried again in 8 s"
    assert backoff.refusal(_KEY, _at(102.5)) == expected


def test_a_gang_that_has_started_waits_the_first_time_again() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(0))
    backoff.failed(_KEY, _at(10))
    backoff.started(_KEY)
    assert not backoff.failed_at
    backoff.failed(_KEY, _at(20))
    assert backoff.refusal(_KEY, _at(30)) == ""


def test_other_gangs_do_not_wait() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(0))
    assert backoff.refusal(GangKey("mail", "train"), _at(1)) == ""


def test_it_tells_when_gangs_failed_last() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(5))
    backoff.failed(_KEY, _at(50))
    assert backoff.failed_at == {_KEY: date(_at(50))}


def test_what_has_not_failed_for_long_is_forgotten() -> None:
    backoff = GangBackoff()
    for number in range(100):
        backoff.failed(GangKey("shop", f"{number}"), _at(number))
    backoff.failed(_KEY, _at(1250))
    assert len(backoff.failed_at) == 50  # those of the last 20 minutes, 51 to 99, and this one


def test_very_many_failures_wait_no_longer() -> None:
    backoff = GangBackoff()
    for _ in range(10_000):
        backoff.failed(_KEY, _at(0))
    assert backoff.refusal(_KEY, _at(600)) == ""


def test_within_a_namespace_the_gang_that_has_waited_longest_goes_first() -> None:
    turns, other = ReservationTurns(), GangKey("shop", "older")
    assert turns.take({_KEY: 7.0, other: 3.0}) == other
    assert turns.take({_KEY: 7.0, other: 3.0}) == other
    assert turns.take({}) is None


@given(gangs=st.lists(st.integers(1, 5), min_size=1, max_size=6), rounds=st.integers(1, 4))
def test_each_namespace_reserves_as_often_as_any_other(gangs: list[int], rounds: int) -> None:
    waiting = {
        GangKey(f"team-{team}", f"gang-{number}"): float(number)
        for team, count in enumerate(gangs)
        for number in range(count)
    }
    turns = ReservationTurns()
    taken = [turns.take(waiting) for _ in range(rounds * len(gangs))]
    counts = Counter(key.namespace for key in taken if key is not None)
    assert set(counts.values()) == {rounds}


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


_LABEL = "scheduling.x-k8s.io/pod-group"
_KOORDINATORS = "pod-group.scheduling.sigs.k8s.io"
_GANG = "gang.scheduling.koordinator.sh"


def _membership_pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> Pod:
    meta = {"name": "a", "namespace": "shop", "labels": labels, "annotations": annotations}
    return pod_from({"metadata": meta, "spec": spec})


def _view(*kinds: type[api.PodGroup], name: str = "train") -> ClusterView:
    state = ClusterState()
    for minimum, kind in enumerate(kinds, start=2):
        wire = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"minMember": minimum}}
        state.set_extra(pod_group_of(msgspec.convert(wire, kind)))
    return state.view()


def _membership_gang(pod: Pod, view: ClusterView) -> Gang:
    gang = gang_of(pod, view)
    assert gang is not None
    return gang


@pytest.mark.parametrize("label", [_LABEL, _KOORDINATORS, f"{_KOORDINATORS}/name"])
def test_a_label_names_the_gang_in_the_namespace_of_the_pod(label: str) -> None:
    assert gang_key_of(_membership_pod(labels={label: "train"})) == GangKey("shop", "train")


def test_an_annotation_names_one_where_no_label_does() -> None:
    annotations = {f"{_GANG}/name": "serve"}
    assert gang_key_of(_membership_pod(annotations=annotations)) == GangKey("shop", "serve")
    labelled = _membership_pod(labels={_LABEL: "train"}, annotations=annotations)
    assert gang_key_of(labelled) == GangKey("shop", "train")


def test_the_label_of_scheduler_plugins_is_no_annotation() -> None:
    assert gang_key_of(_membership_pod(annotations={_LABEL: "train"})) is None


@pytest.mark.parametrize("name", ["", "x" * 254, "a/b"])
def test_what_is_no_name_names_no_gang(name: str) -> None:
    assert gang_key_of(_membership_pod(annotations={f"{_GANG}/name": name})) is None


def test_a_pod_in_a_group_of_the_scheduler_itself_is_left_to_it() -> None:
    pod = _membership_pod(labels={_LABEL: "train"}, schedulingGroup={"podGroupName": "train"})
    assert gang_key_of(pod) is None


def test_the_pod_group_says_what_the_gang_is() -> None:
    view = _view(api.PodGroup)
    assert _membership_gang(_membership_pod(labels={_LABEL: "train"}), view).min_member == 2


def test_of_two_pod_groups_of_a_name_scheduler_plugins_counts() -> None:
    view = _view(api.KoordinatorPodGroup, api.PodGroup)
    assert _membership_gang(_membership_pod(labels={_KOORDINATORS: "train"}), view).min_member == 3


def test_a_pod_whose_pod_group_is_missing_is_a_pod_of_its_own() -> None:
    pod = _membership_pod(labels={_LABEL: "other"})
    view = _view(api.PodGroup)
    assert gang_of(pod, view) is None
    assert names_missing_pod_group(pod, view) == GangKey("shop", "other")
    assert names_missing_pod_group(_membership_pod(), view) is None
    assert names_missing_pod_group(_membership_pod(labels={_LABEL: "train"}), view) is None


def test_a_pod_may_say_itself_how_many_run_together() -> None:
    pod = _membership_pod(
        annotations={
            f"{_GANG}/name": "train",
            f"{_GANG}/min-available": "4",
            f"{_GANG}/waiting-time": "30s",
        }
    )
    gang = _membership_gang(pod, _view())
    assert (gang.min_member, gang.schedule_timeout_seconds) == (4, 30)
    assert gang.match_policy is MatchPolicy.ONCE_SATISFIED


def test_deprecated_labels_say_it_too() -> None:
    pod = _membership_pod(
        labels={f"{_KOORDINATORS}/name": "train", f"{_KOORDINATORS}/min-available": "4"}
    )
    assert _membership_gang(pod, _view()).min_member == 4


@pytest.mark.parametrize("text", ["", "0", "-1", "four", "4.0", "9" * 40])
def test_a_pod_that_says_no_number_is_a_pod_of_its_own(text: str) -> None:
    pod = _membership_pod(annotations={f"{_GANG}/name": "train", f"{_GANG}/min-available": text})
    assert gang_of(pod, _view()) is None


def test_of_a_large_pod_its_gang_is_kept_and_nothing_large() -> None:
    pod = _membership_pod(
        labels={_LABEL: "train", "app": "x"},
        annotations={f"{_GANG}/groups": "x" * 100_000, f"{_GANG}/mode": "Strict", "big": "x"},
    )
    assert gang_metadata_of(pod) == ({_LABEL: "train"}, {f"{_GANG}/mode": "Strict"})


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


_ROOM_GANG = Gang(key=GangKey("shop", "train"), min_member=3, total=3, min_resources={"cpu": 6000})


def _room_pod(name: str, cpu: str, node: str) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    written = {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": node, "containers": containers},
    }
    return pod_from(written)


def _room_view(*pods: Pod, cpu: str = "4", places: str = "32") -> ClusterView:
    state = ClusterState()
    for name in ("n1", "n2"):
        written = {
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "pods": places}},
        }
        state.set_node(node_from(written))
    for pod in pods:
        state.set_pod(pod, seen_at=Micros(0))
    return state.view()


def test_what_nodes_have_free_is_added_up() -> None:
    # 4 + 4 cores, 6 are needed.
    assert min_resources_gap(_ROOM_GANG, _room_view(), ()) == {}
    # 4 - 3 and 4 - 0 cores are free: one of six is missing.
    assert min_resources_gap(_ROOM_GANG, _room_view(_room_pod("a", "3", "n1")), ()) == {"cpu": 1000}


def test_what_a_node_lacks_is_not_taken_from_others() -> None:
    # Seven of four cores are requested on n1, four are free on n2.
    assert min_resources_gap(_ROOM_GANG, _room_view(_room_pod("a", "7", "n1")), ()) == {"cpu": 2000}


def test_a_place_for_each_member_is_needed() -> None:
    assert min_resources_gap(_ROOM_GANG, _room_view(places="1"), ()) == {"pods": 1}


def test_what_members_use_is_free_for_their_gang() -> None:
    member = _room_pod("a", "3", "n1")
    running = [("n1", member.shape), ("gone", member.shape)]
    assert min_resources_gap(_ROOM_GANG, _room_view(member), running) == {}


def test_a_gang_that_does_not_say_what_it_needs_lacks_nothing() -> None:
    gang = replace(_ROOM_GANG, min_resources=None)
    assert min_resources_gap(gang, _room_view(places="0"), ()) == {}


def test_a_resource_that_no_node_has_is_missing_unless_devices_may_provide_it() -> None:
    gang = replace(_ROOM_GANG, min_resources={"example.com/gpu": 2})
    view = _room_view()
    assert min_resources_gap(gang, view, ()) == {"example.com/gpu": 2}
    gpu = DeviceClass(name="gpu", resource="example.com/gpu")
    view = replace(view, extras={(DeviceClass, gpu.key): gpu})
    assert min_resources_gap(gang, view, ()) == {}
