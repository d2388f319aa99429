"""What a pod that was advised adds to its node until it is bound there, or somewhere else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.plugins.load_aware.estimation import LoadProfile, LoadSums
from engine.view import ClusterState, Domain, Sum
from engine.view.assumed import (
    MOST_IN_FLIGHT,
    MOST_IN_FLIGHT_OF_NAMESPACE,
    MOST_WAITING_OF_NAMESPACE,
)
from tests.engine.measured_cluster import NOW, node, pod, report
from tests.engine.model.hostile_pods import hostile_pod
from tests.engine.view_facts import facts

PROFILE = LoadProfile(known=("cpu",), factors=(("cpu", 100),))
KEY = "shop/p"
ADVICE = Advice(nodes=("a", "b"), id="1")


def after(seconds: int) -> Micros:
    return Micros(NOW + seconds * SECOND)


def advised(on: str = "", *, text: str | None = None, age: int | None = None, **more: Any) -> Pod:  # noqa: ANN401 (parts of a pod)
    """Return a pod of half a core that was advised to go to a, then b; created so long ago."""
    metadata: dict[str, Any] = {
        "namespace": "shop",
        "annotations": {
            ADVICE_ANNOTATION: msgspec.json.encode(ADVICE).decode() if text is None else text
        },
    }
    if age is not None:
        metadata["creationTimestamp"] = datetime.fromtimestamp(NOW / SECOND, UTC) - timedelta(
            seconds=age
        )
    return pod("p", on, requests={"cpu": "500m"}, metadata=metadata, **more)


def finished(a_pod: Pod) -> Pod:
    return msgspec.structs.replace(a_pod, phase="Failed")


@pytest.fixture
def state() -> ClusterState:
    """Return three empty nodes; pods are assumed for 300 s, in flight for 10."""
    return cluster()


def cluster(nodes: str = "abc") -> ClusterState:
    made = ClusterState(assumed_seconds=300, in_flight_seconds=10)
    made.track_sums([PROFILE])
    for name in nodes:
        made.set_node(node(name, cpu="8"))
        made.set_usage(report(name, {"cpu": 1000}, age=30))
    return made


def counted(state: ClusterState) -> dict[str, tuple[int, int, int, int]]:
    """Return pods, their millicores, expected load beyond reports, and how many are assumed."""
    view = state.view()
    pods = view.amount(view.sums[Sum.REQUESTS], "pods")
    cpu = view.amount(view.sums[Sum.REQUESTS], "cpu")
    load = LoadSums.of(view, PROFILE).node_delta[0]
    table = {
        name: (int(pods[row]), int(cpu[row]), int(load[row]), int(view.assumed[row]))
        for name, row in view.rows.items()
    }
    return {name: counts for name, counts in table.items() if any(counts)}


ASSUMED = (1, 500, 500, 1)
BOUND = (1, 500, 500, 0)


# While a pod waits for the scheduler.


def test_an_advised_pod_counts_on_the_best_node_like_a_bound_one(state: ClusterState) -> None:
    state.set_pod(advised(), seen_at=NOW)
    assert counted(state) == {"a": ASSUMED}
    assumed = facts(state.view())
    bound = cluster()
    bound.set_pod(advised("a"), seen_at=NOW)
    expected: dict[str, Any] = facts(bound.view())
    expected["nodes"]["a"]["assumed"] = 1
    expected["scheduled"] = {}  # it is bound nowhere
    assert assumed == expected


def test_an_assumed_pod_is_not_said_to_be_anywhere(state: ClusterState) -> None:
    state.set_pod(advised(), seen_at=NOW)
    assert state.placement(KEY) is None
    assert len([*state.pods_containing("")]) == 1


def test_an_advised_pod_counts_once_for_its_namespace(state: ClusterState) -> None:
    state.assume(advised(), ADVICE, at=NOW)
    assert state.view().namespaces.requested == {}
    state.set_pod(advised(), seen_at=NOW)
    assert state.view().namespaces.requested == {"shop": {"cpu": 500, "pods": 1}}
    state.set_pod(advised("a"), seen_at=NOW)
    assert state.view().namespaces.requested == {"shop": {"cpu": 500, "pods": 1}}


def test_no_report_knows_an_assumed_pod_however_late_it_comes(state: ClusterState) -> None:
    # A report of the node alone holds all its pods but the newest ones: 200 s later even this one.
    state.set_usage(report("a", {"cpu": 1000}, pods_measured=False))
    state.set_pod(advised(), seen_at=after(-200))
    assert counted(state) == {"a": ASSUMED}
    state.set_pod(advised("a"), seen_at=after(-200))
    assert counted(state) == {"a": (1, 500, 0, 0)}


def test_an_advised_node_that_is_unknown_is_passed_over() -> None:
    state = cluster("bc")
    state.set_pod(advised(), seen_at=NOW)
    assert counted(state) == {"b": ASSUMED}
    state.set_node(node("a", cpu="8"))  # it comes
    state.set_usage(report("a", {"cpu": 1000}, age=30))
    assert counted(state) == {"a": ASSUMED}
    state.delete_node("a")  # and goes
    assert counted(state) == {"b": ASSUMED}
    state.delete_node("b")
    assert counted(state) == {}


def test_a_gated_pod_counts_nowhere_until_its_gates_are_gone(state: ClusterState) -> None:
    gates = [{"name": "hold"}]
    state.assume(advised(schedulingGates=gates), ADVICE, at=NOW)
    state.set_pod(advised(age=0, schedulingGates=gates), seen_at=NOW)
    assert counted(state) == {}
    # An hour later it begins to compete, and its time begins to run.
    state.set_pod(advised(age=0), seen_at=after(3600))
    state.release_assumed(after(3899))
    assert counted(state) == {"a": ASSUMED}
    state.release_assumed(after(3900))
    assert counted(state) == {}


# How it ends.


@pytest.mark.parametrize("on", ["a", "c", "elsewhere"])
def test_a_bound_pod_counts_where_it_is(state: ClusterState, on: str) -> None:
    state.set_pod(advised(), seen_at=NOW)
    state.set_pod(advised(on), seen_at=NOW)
    fresh = cluster()
    fresh.set_pod(advised(on), seen_at=NOW)
    assert facts(state.view()) == facts(fresh.view())
    assert state.placement(KEY) == (on, advised().shape)


def test_a_pod_is_assigned_when_it_is_bound_not_when_it_was_advised(state: ClusterState) -> None:
    # Advised 90 s before a report for its last 60 s, and bound there 10 s before it: it is new.
    state.set_usage(report("a", {"cpu": 1000}, pods_measured=False))
    state.set_pod(advised(), seen_at=after(-90))
    state.set_pod(advised("a"), seen_at=after(-10))
    assert counted(state) == {"a": BOUND}


def test_a_pod_that_finishes_or_goes_is_not_assumed_any_more(state: ClusterState) -> None:
    nothing = facts(state.view())
    state.set_pod(advised(), seen_at=NOW)
    state.set_pod(finished(advised()), seen_at=NOW)
    assert facts(state.view()) == nothing
    state.set_pod(advised(), seen_at=NOW)
    state.delete_pod(KEY)
    assert facts(state.view()) == nothing
    state.release_assumed(after(1000))
    assert facts(state.view()) == nothing


def test_a_pod_that_nobody_takes_gives_its_node_free_in_the_end(state: ClusterState) -> None:
    state.set_pod(advised(age=100), seen_at=NOW)  # created 100 s ago: 200 s are left
    state.release_assumed(after(199))
    assert counted(state) == {"a": ASSUMED}
    state.release_assumed(after(200))
    assert counted(state) == {}
    assert state.view().namespaces.requested == {"shop": {"cpu": 500, "pods": 1}}
    # It stays so, whatever happens to the pod or to its nodes.
    state.set_pod(advised(age=100, priority=7), seen_at=after(201))
    state.delete_node("a")
    state.set_node(node("a", cpu="8"))
    assert counted(state) == {}
    state.set_pod(advised("b", age=100), seen_at=after(300))
    assert counted(state) == {"b": BOUND}


def test_a_replica_that_starts_late_does_not_assume_what_waits_for_long(
    state: ClusterState,
) -> None:
    state.set_pod(advised(age=3600), seen_at=NOW)
    state.release_assumed(NOW)
    assert counted(state) == {}


def test_releasing_is_no_event_while_nothing_is_too_old(state: ClusterState) -> None:
    state.set_pod(advised(), seen_at=NOW)
    before = state.view()
    state.release_assumed(after(299))
    assert state.view() is before


# In flight.


def test_a_pod_counts_from_its_advice_on_and_once_when_it_is_seen(state: ClusterState) -> None:
    state.assume(advised(), ADVICE, at=NOW)
    assert counted(state) == {"a": ASSUMED}
    assert len([*state.pods_containing("")]) == 0
    state.set_pod(advised(), seen_at=NOW)
    assert counted(state) == {"a": ASSUMED}
    fresh = cluster()
    fresh.set_pod(advised(), seen_at=NOW)
    assert facts(state.view()) == facts(fresh.view())
    state.release_assumed(after(10))  # its time in flight would be up
    assert counted(state) == {"a": ASSUMED}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (advised("c"), {"c": BOUND}),
        (finished(advised()), {}),
        (advised(schedulingGates=[{"name": "hold"}]), {}),
        (advised(text='{"nodes":["b"],"id":"1"}'), {"b": ASSUMED}),
    ],
)
def test_whatever_became_of_a_pod_its_flight_ends_when_it_is_seen(
    state: ClusterState, seen: Pod, expected: dict[str, tuple[int, ...]]
) -> None:
    state.assume(advised(), ADVICE, at=NOW)
    state.set_pod(seen, seen_at=NOW)
    assert counted(state) == expected


def test_a_pod_that_never_comes_gives_its_node_free(state: ClusterState) -> None:
    nothing = facts(state.view())
    state.assume(advised(), ADVICE, at=NOW)
    state.release_assumed(Micros(after(10) - 1))
    assert counted(state) == {"a": ASSUMED}
    state.release_assumed(after(10))
    assert facts(state.view()) == nothing
    state.set_pod(advised(), seen_at=after(60))  # late after all
    assert counted(state) == {"a": ASSUMED}


def test_many_that_never_come_are_released_a_few_at_a_time(state: ClusterState) -> None:
    nothing = facts(state.view())
    for number in range(10):
        state.assume(advised(), Advice(nodes=("a",), id=str(number)), at=NOW)
    left = []
    for _ in range(3):
        assert len([*state.pods_containing("")]) == 0  # none of them was ever seen
        are_left = state.release_assumed(after(10), most=4)
        left.append((counted(state).get("a", (0,))[0], are_left))
    assert left == [(6, True), (2, True), (0, False)]
    assert facts(state.view()) == nothing


def test_a_review_that_is_asked_twice_counts_once(state: ClusterState) -> None:
    state.assume(advised(), ADVICE, at=NOW)
    state.assume(advised(), ADVICE, at=NOW)
    assert counted(state) == {"a": ASSUMED}


def test_a_pod_of_another_advice_does_not_end_a_flight(state: ClusterState) -> None:
    state.assume(advised(), ADVICE, at=NOW)
    state.set_pod(advised(text='{"nodes":["b"],"id":"2"}'), seen_at=NOW)
    assert counted(state) == {"a": ASSUMED, "b": ASSUMED}


@pytest.mark.parametrize("advice", [Advice(nodes=("a",)), Advice(id="1")])
def test_what_could_not_be_told_again_or_names_no_node_is_not_assumed(
    state: ClusterState, advice: Advice
) -> None:
    before = state.view()
    state.assume(advised(), advice, at=NOW)
    assert state.view() is before


def of_namespace(namespace: str, name: str = "p") -> Pod:
    return msgspec.structs.replace(advised(), namespace=namespace, name=name)


def test_only_so_many_pods_are_in_flight(state: ClusterState) -> None:
    for number in range(MOST_IN_FLIGHT + 5):
        a_pod = of_namespace(f"team-{number % 50}")
        state.assume(a_pod, Advice(nodes=("a",), id=str(number)), at=NOW)
    assert counted(state)["a"][0] == MOST_IN_FLIGHT
    state.release_assumed(after(10))
    assert counted(state) == {}


def test_pods_of_one_namespace_that_never_come_leave_room_for_those_of_others(
    state: ClusterState,
) -> None:
    most = MOST_IN_FLIGHT_OF_NAMESPACE
    for number in range(most + 5):
        state.assume(of_namespace("loud"), Advice(nodes=("a",), id=str(number)), at=NOW)
    state.assume(of_namespace("quiet"), Advice(nodes=("b",), id="quiet"), at=NOW)
    counts = counted(state)
    assert (counts["a"][0], counts["b"][0]) == (most, 1)
    state.release_assumed(after(10))
    state.assume(of_namespace("loud"), Advice(nodes=("c",), id="again"), at=after(10))
    assert counted(state) == {"c": ASSUMED}


def test_only_so_many_pods_of_one_namespace_count_while_they_wait(state: ClusterState) -> None:
    for number in range(MOST_WAITING_OF_NAMESPACE + 5):
        state.set_pod(of_namespace("loud", f"p{number}"), seen_at=NOW)
    state.set_pod(of_namespace("quiet"), seen_at=NOW)
    assert counted(state)["a"][0] == MOST_WAITING_OF_NAMESPACE + 1
    state.set_pod(msgspec.structs.replace(of_namespace("loud", "p0"), node_name="b"), seen_at=NOW)
    state.set_pod(of_namespace("loud", "next"), seen_at=NOW)  # there is room again
    assert counted(state)["a"][0] == MOST_WAITING_OF_NAMESPACE + 1


def test_a_very_large_pod_is_not_held_in_flight(state: ClusterState) -> None:
    state.assume(hostile_pod(1, names=200), ADVICE, at=NOW)
    assert counted(state) == {}


# An advice for a node that the pod itself rules out.

ELSEWHERE = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]},
    ]
}
RULED_OUT: dict[str, dict[str, Any]] = {
    "node selector": {"nodeSelector": {"zone": "1"}},
    "required affinity": {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ELSEWHERE}}
    },
    "more than the node has": {
        "containers": [{"resources": {"requests": {"cpu": "9", "memory": "1Gi"}}}]
    },
    "constraints of any length": {"nodeSelector": {"x" * 300 + str(n): "" for n in range(20)}},
}


@pytest.mark.parametrize("spec", RULED_OUT.values(), ids=RULED_OUT)
def test_an_advice_for_a_node_that_the_pod_rules_out_does_not_count(
    state: ClusterState, spec: dict[str, Any]
) -> None:
    state.set_pod(advised(**spec), seen_at=NOW)
    assert counted(state) == {}
    state.assume(advised(**spec), ADVICE, at=NOW)
    assert counted(state) == {}


def test_an_advice_counts_on_the_first_node_that_the_pod_does_not_rule_out(
    state: ClusterState,
) -> None:
    tainted = replace(node("a", cpu="8"), taints=(api.Taint(key="gpu", effect="NoSchedule"),))
    cordoned = replace(node("b", cpu="8"), unschedulable=True)
    state.set_pod(advised(), seen_at=NOW)
    assert counted(state) == {"a": ASSUMED}
    state.set_node(tainted)
    assert counted(state) == {"b": ASSUMED}
    state.set_node(cordoned)
    assert counted(state) == {}
    state.set_node(node("a", cpu="8"))
    assert counted(state) == {"a": ASSUMED}
    state.set_node(tainted)
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    state.set_pod(advised(tolerations=tolerations), seen_at=NOW)
    assert counted(state) == {"a": ASSUMED}


@pytest.mark.parametrize("label", ["1", "2"])
def test_it_does_not_matter_whether_the_pod_or_its_node_comes_first(label: str) -> None:
    labelled = replace(node("a", cpu="8"), labels={"zone": label})
    a_pod = advised(nodeSelector={"zone": "1"})
    first, second = ClusterState(), ClusterState()
    first.set_node(labelled)
    first.set_pod(a_pod, seen_at=NOW)
    second.set_pod(a_pod, seen_at=NOW)
    second.set_node(node("a", cpu="8"))
    second.set_node(labelled)
    assert facts(first.view()) == facts(second.view())
    assert int(first.view().assumed.sum()) == (label == "1")


# When clocks jump.


def test_a_clock_that_is_set_back_keeps_no_pod_assumed_for_longer(state: ClusterState) -> None:
    state.assume(advised(), ADVICE, at=after(3_600))
    other = advised(text='{"nodes":["a"],"id":"2"}')
    state.set_pod(msgspec.structs.replace(other, name="q"), seen_at=after(3_600))
    state.release_assumed(after(3_600))
    state.release_assumed(NOW)  # an hour earlier: from now on the times count anew
    assert counted(state)["a"][0] == 2
    state.release_assumed(after(10))
    assert counted(state)["a"][0] == 1
    state.release_assumed(after(300))
    assert counted(state) == {}


def test_a_clock_that_is_set_forward_ends_what_is_assumed(state: ClusterState) -> None:
    state.assume(advised(), ADVICE, at=NOW)
    state.release_assumed(after(86_400))
    assert counted(state) == {}
    state.assume(advised(), Advice(nodes=("b",), id="2"), at=after(86_400))
    assert counted(state) == {"b": ASSUMED}


# Anyone can write the annotation.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"nodes":"a"}',
        '{"nodes":[]}',
        '{"nodes":["no such node"],"id":"1"}',
        '{"nodes":["a' + "a" * 1024 + '"]}',
        '{"nodes":' + "[" * 900,
    ],
)
def test_forged_advice_that_says_nothing_is_ignored(state: ClusterState, text: str) -> None:
    state.set_pod(advised(text=text), seen_at=NOW)
    assert counted(state) == {}
    assert state.view().rows.keys() == set("abc")
    state.delete_pod(KEY)
    assert not state.view().namespaces.requested


def test_forged_advice_counts_no_more_than_the_pod_itself(state: ClusterState) -> None:
    for number in range(5_000):  # the same pod, with ever other advice
        nodes = [*"abc"[number % 3], f"forged-{number}"] * 3
        text = msgspec.json.encode(Advice(nodes=tuple(nodes), id=str(number))).decode()
        state.set_pod(advised(text=text), seen_at=NOW)
    assert counted(state) == {"b": ASSUMED}  # 4,999 % 3 = 1: the second one
    assert state.view().rows.keys() == set("abc")


def test_only_the_row_of_the_advised_node_is_out_of_date(state: ClusterState) -> None:
    before = state.view().version
    state.assume(advised(), ADVICE, at=NOW)
    view = state.view()
    assert view.changed_since(before, (Domain.PODS,)).tolist() == [view.rows["a"]]
    assert view.changed_since(before, (Domain.NODES, Domain.METRICS)).size == 0
