from __future__ import annotations

import msgspec

from engine.model.time import SECOND
from engine.report import ArrivalSource
from engine.simulation import generated_arrivals, manifest_arrivals, recorded_arrivals
from engine.simulation.arrivals import DAY_SECONDS
from tests.engine.simulation.recordings import of_daemon_set, recorded_pod


def test_recorded_pods_arrive_in_order_of_creation() -> None:
    pods = [recorded_pod("late", "n", second=60), recorded_pod("early", "n")]
    arrivals = recorded_arrivals(pods)
    assert [(each.pod.name, each.at) for each in arrivals.pods] == [
        ("early", 0),
        ("late", 60 * SECOND),
    ]
    assert arrivals.figures_at == 60 * SECOND
    assert arrivals.moves == {"shop/early", "shop/late"}


def test_pods_that_are_pinned_to_their_node_stay() -> None:
    mirror = {"annotations": {"kubernetes.io/config.mirror": "1"}}
    pods = [of_daemon_set("agent", "n"), recorded_pod("static", "n", metadata=mirror)]
    assert not recorded_arrivals(pods).pods


def test_a_pod_arrives_as_it_was_created() -> None:
    metadata = {"annotations": {"stowplan.dev/advice": "{}", "team": "a"}}
    pod = recorded_pod("a", "n", metadata=metadata, schedulingGates=[{"name": "g"}])
    (arrival,) = recorded_arrivals([pod]).pods
    document = msgspec.json.decode(arrival.raw)
    assert (arrival.pod.node_name, arrival.pod.scheduling_gates) == ("", ())
    assert "nodeName" not in document["spec"]
    assert "schedulingGates" not in document["spec"]
    assert "status" not in document
    assert document["metadata"]["annotations"] == arrival.pod.annotations == {"team": "a"}
    assert arrival.recorded_on == "n"


def test_pods_of_manifests_arrive_at_once_and_nobody_moves() -> None:
    arrivals = manifest_arrivals([recorded_pod("b", second=60), recorded_pod("a")])
    assert [(each.pod.name, each.at) for each in arrivals.pods] == [("b", 0), ("a", 0)]
    assert (arrivals.moves, arrivals.source) == (frozenset(), ArrivalSource.MANIFESTS)


def test_a_generated_day_has_as_many_pods_again_in_order_each_of_its_own_name() -> None:
    pods = [recorded_pod(f"p{number}", "n") for number in range(200)]
    arrivals = generated_arrivals(pods, seed=1).pods
    moments = [each.at for each in arrivals]
    assert moments == sorted(moments)
    assert moments[199] == 0
    assert 0 < moments[200] <= moments[-1] <= DAY_SECONDS * SECOND
    assert len({each.pod.key for each in arrivals}) == 400
    assert all(each.ends_at is not None and each.ends_at > each.at for each in arrivals)


def test_a_generated_day_is_busiest_in_the_afternoon() -> None:
    pods = [recorded_pod(f"p{number}", "n") for number in range(2000)]
    hours = [each.at // (3600 * SECOND) for each in generated_arrivals(pods, seed=1).pods[2000:]]
    night = sum(0 <= hour < 4 for hour in hours)
    afternoon = sum(12 <= hour < 16 for hour in hours)
    # Integral of 1 + 0.75 cos over four hours around the least and the greatest rate, of 24:
    # 4/24 +- 2 * 0.75 / (2 pi) * sin(2 pi 2/24) = 0.1667 +- 0.1194: 0.047 and 0.286 of 2000.
    assert 60 <= night <= 130
    assert 510 <= afternoon <= 635


def test_the_same_seed_gives_the_same_day() -> None:
    pods = [recorded_pod(f"p{number}", "n") for number in range(20)]
    assert generated_arrivals(pods, 3) == generated_arrivals(pods, 3)
    assert generated_arrivals(pods, 3) != generated_arrivals(pods, 4)


def test_figures_are_of_the_moment_when_most_pods_run() -> None:
    arrivals = generated_arrivals([recorded_pod(f"p{n}", "n") for n in range(50)], seed=1)
    at = arrivals.figures_at

    def running(moment: int) -> int:
        return sum(each.at <= moment < (each.ends_at or 0) for each in arrivals.pods)

    assert running(at) == max(running(each.at) for each in arrivals.pods)
