from __future__ import annotations

import msgspec

from engine.model.time import SECOND
from engine.model.usage import PodUsage
from engine.report import ArrivalSource
from engine.simulation import generated_arrivals, manifest_arrivals, recorded_arrivals
from engine.simulation.arrivals import DAY_SECONDS, base_load, loads_on_node
from tests.engine.measured_cluster import GI, pod, report
from tests.engine.simulation.recordings import of_daemon_set, recorded_pod

CPU, MEMORY = 0, 1


def test_what_is_not_measured_is_divided_by_requests() -> None:
    pods = [pod("a", requests={"cpu": "1"}), pod("b", requests={"cpu": "3"})]
    loads = loads_on_node(pods, report("n", {"cpu": 2000}))
    assert loads["default/a"][CPU] == 500  # 2000 * 1 / (1 + 3)
    assert loads["default/b"][CPU] == 1500


def test_what_the_system_uses_is_nobodys() -> None:
    pods = [pod("a", requests={"cpu": "1"})]
    loads = loads_on_node(pods, report("n", {"cpu": 2000}, system_usage={"cpu": 500}))
    assert loads["default/a"][CPU] == 1500


def test_a_measured_pod_has_its_measurement() -> None:
    pods = [pod("a", requests={"cpu": "1"}), pod("b", requests={"cpu": "3"})]
    measured = {"a": PodUsage({"cpu": 1800, "memory": GI}, is_prod=True)}
    loads = loads_on_node(pods, report("n", {"cpu": 2000, "memory": 2 * GI}, pods=measured))
    assert loads["default/a"].tolist() == [1800, GI]
    assert loads["default/b"].tolist() == [200, GI]


def test_a_pod_that_requests_nothing_has_the_part_of_its_estimate() -> None:
    # LoadAware's default for a pod without requests is 250 millicores: 250 of 250 + 750.
    pods = [pod("a"), pod("b", requests={"cpu": "750m"})]
    loads = loads_on_node(pods, report("n", {"cpu": 1000}))
    assert [load[CPU] for load in loads.values()] == [250, 750]


def test_without_a_report_a_pod_has_its_estimate() -> None:
    # 85 % of 1000 millicores, 70 % of 1Gi
    loads = loads_on_node([pod("a", requests={"cpu": "1", "memory": "1Gi"})], None)
    assert loads["default/a"].tolist() == [850, round(0.7 * GI)]


def test_a_node_without_its_pods_has_the_rest_and_never_less_than_nothing() -> None:
    pods = [pod("a", requests={"cpu": "1"}), pod("b", requests={"cpu": "3"})]
    usage = report("n", {"cpu": 2000}, system_usage={"cpu": 400})
    loads = loads_on_node(pods, usage)
    assert base_load(usage, [loads["default/b"]])[CPU] == 2000 - 1200
    assert base_load(None, [loads["default/b"]])[CPU] == 0


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
