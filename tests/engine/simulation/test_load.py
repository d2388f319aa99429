from __future__ import annotations

from engine.model.usage import PodUsage
from engine.simulation.load import base_load, loads_on_node
from tests.engine.measured_cluster import GI, pod, report

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
