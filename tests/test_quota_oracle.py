"""The oracle of quotas that queue, on recordings made by hand."""

from __future__ import annotations

from tests.e2e.quota_oracle import Patience, judge
from tests.e2e.recorded_cluster import Event, Json

PATIENCE = Patience(idle=10, within_min=60)


def node(cpu: str = "4") -> Event:
    metadata = {"name": "a"}
    return Event(0, "ADDED", _object("Node", metadata, status={"allocatable": {"cpu": cpu}}))


def quota(namespace: str, least: str = "0", most: str = "4") -> Event:
    metadata = {"name": "team", "namespace": namespace}
    spec = {"min": {"cpu": least}, "max": {"cpu": most}}
    return Event(0, "ADDED", _object("ElasticQuota", metadata, spec=spec))


def pod(  # noqa: PLR0913 - parts of a pod, most of them left out
    at: float,
    name: str,
    *,
    of: str = "shop",
    cpu: str = "1",
    on: str = "a",
    queued: bool = False,
    evicted: bool = False,
    reclaims: bool = False,
    bound: str = "",
    owner: str = "",
    event: str = "MODIFIED",
) -> Event:
    annotations = {"stowplan.dev/hold-reasons": "quota"} if queued else {}
    if reclaims:
        annotations["stowplan.dev/reclaim-plan"] = "a"
    metadata: Json = {"name": name, "namespace": of, "uid": name, "annotations": annotations}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner}]
    spec: Json = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    if queued:
        spec["schedulingGates"] = [{"name": "stowplan.dev/hold"}]
    else:
        spec["nodeName"] = on
    status: Json = {}
    if bound:
        status["conditions"] = [{"type": "PodScheduled", "lastTransitionTime": bound}]
    if evicted:
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        reason = {"type": "DisruptionTarget", "reason": "EvictionByEvictionAPI"}
        status.setdefault("conditions", []).append(reason)
    return Event(at, event, _object("Pod", metadata, spec=spec, status=status))


def _object(kind: str, metadata: Json, **parts: Json) -> Json:
    return {"kind": kind, "metadata": metadata, **parts}


def test_what_stays_within_max_is_clean() -> None:
    found = judge([node(), quota("shop", most="2"), pod(1, "p"), pod(2, "q"), pod(99, "q")])
    assert found.is_clean
    assert found.charged_seconds["cpu"] == 1000 * 1 + 2000 * 97
    assert found.room_seconds["cpu"] == 4000 * 99


def test_a_pod_beyond_max_is_seen_though_it_goes_again() -> None:
    gone = pod(3, "q", event="DELETED")
    found = judge([node(), quota("shop", most="1500m"), pod(1, "p"), pod(2, "q"), gone])
    assert found.overshoot == {("shop", "cpu"): 500}


def test_pods_that_wait_or_have_finished_are_not_charged() -> None:
    done = pod(2, "p")
    done.object["status"] = {"phase": "Succeeded"}
    waiting = pod(3, "q", queued=True)
    found = judge([node(), quota("shop", most="1"), pod(1, "p"), done, waiting, pod(4, "r")])
    assert not found.overshoot


def test_a_pod_that_waits_though_there_is_room_is_seen() -> None:
    begin = [node(), quota("shop"), pod(1, "p", queued=True)]
    assert judge([*begin, pod(11, "q")], PATIENCE).is_clean  # 10 s are allowed
    found = judge([*begin, pod(12, "q")], PATIENCE)
    assert found.idle_waits == {"p": 11}
    assert judge([*begin, pod(9, "p"), pod(50, "p")], PATIENCE).waits == {"p": 8}


def test_a_pod_waits_rightly_for_its_max_its_node_or_the_min_of_others() -> None:
    full = [node(), quota("shop", most="1"), pod(1, "p"), pod(2, "q", queued=True)]
    no_node = [node("1"), quota("shop"), pod(1, "p"), pod(2, "q", queued=True)]
    others = [
        *(node("2"), quota("shop"), quota("lab", least="2")),
        pod(1, "p", queued=True),
        pod(1, "big", of="lab", cpu="2", queued=True),
    ]
    assert not judge([*full, pod(60, "p")], PATIENCE).idle_waits
    assert not judge([*no_node, pod(60, "p")], PATIENCE).idle_waits
    assert judge([*others, pod(60, "x", of="none")], PATIENCE).idle_waits == {"big": 59}


def test_a_pod_within_min_gets_its_room_in_time() -> None:
    begin = [node("2"), quota("shop", least="1"), quota("lab"), pod(1, "b", of="lab", cpu="2")]
    waiting = pod(2, "p", queued=True)
    in_time = [pod(60, "b", of="lab", event="DELETED"), pod(61, "p"), pod(90, "p")]
    assert judge([*begin, waiting, *in_time], PATIENCE).is_clean
    late = judge([*begin, waiting, pod(63, "b", of="lab", cpu="2")], PATIENCE)
    assert late.late_within_min == {"p": 61}
    assert not late.idle_waits


def test_nobody_is_late_who_waits_for_what_others_are_guaranteed() -> None:
    begin = [node("2"), quota("shop", least="1"), quota("lab", least="2")]
    full = [pod(1, "b", of="lab", cpu="2"), pod(2, "p", queued=True)]
    assert judge([*begin, *full, pod(99, "p", queued=True)], PATIENCE).is_clean


def test_a_pod_that_was_released_within_min_and_finds_no_node_is_late() -> None:
    begin = [node("2"), quota("shop", least="1"), quota("lab"), pod(1, "b", of="lab", cpu="2")]
    released = pod(2, "p", on="")
    found = judge([*begin, released, pod(63, "b", of="lab", cpu="2")], PATIENCE)
    assert found.late_within_min == {"p": 61}


def test_an_end_that_the_leader_cannot_know_yet_is_not_held_against_it() -> None:
    begin = [node(), quota("lab", least="1"), *(pod(1, name, of="lab") for name in "ab")]
    ended = pod(9, "a", of="lab", event="DELETED")
    assert not judge([*begin, ended, pod(10, "b", of="lab", evicted=True)]).below_min
    assert judge([*begin, ended, pod(12, "b", of="lab", evicted=True)]).below_min == ["b"]


def test_an_eviction_below_min_is_seen() -> None:
    begin = [node(), quota("lab", least="2"), *(pod(1, name, of="lab") for name in "abc")]
    first = pod(2, "a", of="lab", evicted=True)  # 3 - 1 = 2
    assert not judge([*begin, first]).below_min
    found = judge([*begin, first, pod(3, "b", of="lab", evicted=True)])
    assert found.below_min == ["b"]
    assert (found.evictions, found.reclaimed, found.is_clean) == (2, 0, False)


def test_evictions_are_held_against_the_pods_that_got_the_room() -> None:
    begin = [node("2"), quota("shop", least="2"), quota("lab"), pod(1, "v", of="lab", cpu="2")]
    waits = pod(2, "p", queued=True, reclaims=True)
    evicted = pod(3, "v", of="lab", cpu="2", evicted=True)
    again = pod(4, "v", of="lab", cpu="2", evicted=True)  # the same eviction
    found = judge([*begin, waits, evicted, again, pod(5, "p", reclaims=True)])
    assert (found.evictions, found.reclaimed, found.is_clean) == (1, 1, True)


def test_pods_of_an_owner_that_came_back_are_left_alone_for_a_while() -> None:
    def evicted(*moments: float) -> list[str]:
        """Return owners that were hit too early, each of whose pods is bound after the last hit."""
        pods = [
            event
            for n, (bound, at) in enumerate(zip((0, *moments), moments, strict=False))
            for since in [f"1970-01-01T00:{(bound + 1) // 60:02.0f}:{(bound + 1) % 60:02.0f}Z"]
            for event in (
                pod(bound + 1, f"v{n}", owner="set", bound=since),
                pod(at, f"v{n}", owner="set", bound=since, evicted=True),
            )
        ]
        return judge([node("9"), quota("shop", most="9"), *pods]).hasty

    assert evicted(10, 69) == ["set"]
    assert evicted(10, 70) == []
    assert evicted(10, 70, 189) == ["set"]  # 120 s after the second
    assert evicted(10, 70, 190) == []


def test_pods_that_ran_before_their_owner_was_hit_go_at_any_time() -> None:
    pods = [pod(0, f"v{n}", owner="set", bound="1970-01-01T00:00:00Z") for n in range(3)]
    ends = [
        pod(at, f"v{n}", owner="set", bound="1970-01-01T00:00:00Z", evicted=True)
        for n, at in enumerate((1, 2, 200))
    ]
    assert judge([node("9"), quota("shop", most="9"), *pods, *ends]).hasty == []
