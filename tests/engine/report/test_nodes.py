from __future__ import annotations

from pathlib import Path

from engine.plugins.load_aware.usage import RAW_ALLOCATABLE
from engine.policy import load_policies
from engine.report import Measure, Threshold, nodes_report, thresholds_of
from tests.engine.measured_cluster import GI, NOW, cluster, node, pod, report

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: calm}
spec:
  filters:
    - {plugin: LoadAware, args: {usageThresholds: {cpu: 70, memory: 0}}}
    - name: percentile
      plugin: LoadAware
      args: {aggregated: {usageThresholds: {memory: 80}, usageAggregationType: p95}}
    - {plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: "150%"}}}
"""


def test_the_columns_are_in_order_of_names_and_in_base_units() -> None:
    nodes = [node("b", cpu="4", memory="8Gi"), node("a", cpu="2", memory="4Gi")]
    on_b = [pod("1", "b", requests={"cpu": "1"}, limits={"cpu": "3", "memory": "1Gi"})]
    view = cluster(nodes, on_b, [report("b", {"cpu": 1500, "memory": GI}, age=7)])
    found = nodes_report(view, NOW)
    assert found.names == ["a", "b"]
    assert found.pods == [0, 1]
    assert found.report_age_seconds == [None, 7]
    cpu = found.resources["cpu"]
    assert cpu.allocatable == [2000, 4000]
    assert cpu.requests == [0, 1000]
    assert cpu.limits == [0, 3000]
    assert cpu.usage == [None, 1500]
    assert found.resources["memory"].limits == [0, GI]


def test_usage_is_compared_with_what_a_node_has_before_amplification() -> None:
    amplified = {RAW_ALLOCATABLE: '{"cpu":"2"}'}
    view = cluster([node("a", amplified, cpu="4", memory="8Gi")])
    found = nodes_report(view, NOW).resources
    assert (found["cpu"].allocatable, found["cpu"].raw_allocatable) == ([4000], [2000])
    assert found["memory"].raw_allocatable == found["memory"].allocatable == [8 * GI]


def test_rows_that_are_no_nodes_are_left_out() -> None:
    view = cluster([node("a", cpu="2")], [pod("1", "gone", requests={"cpu": "1"})])
    assert nodes_report(view, NOW).names == ["a"]


def test_every_resource_that_a_node_offers_is_reported() -> None:
    gpus = {"cpu": "2", "example.com/gpu": "4"}
    view = cluster([node("a", **gpus), node("b", cpu="2")], [])
    report = nodes_report(view, NOW)
    assert [*report.resources][:2] == ["cpu", "memory"]
    assert report.resources["example.com/gpu"].allocatable == [4, 0]
    assert "example.com/gpu" not in nodes_report(cluster([node("b", cpu="2")]), NOW).resources


def test_thresholds_are_passed_on() -> None:
    limit = Threshold(measure=Measure.LOAD, resource="cpu", percent=65, policy="p", rule="busy")
    assert nodes_report(cluster([node("a", cpu="2")]), NOW, thresholds=[limit]).thresholds == [
        limit
    ]


def test_thresholds_are_those_that_filters_of_policies_are_given(tmp_path: Path) -> None:
    (tmp_path / "calm.yaml").write_text(POLICY)
    found = thresholds_of(load_policies([tmp_path]))
    assert [(each.measure, each.resource, each.percent, each.rule) for each in found] == [
        (Measure.LOAD, "cpu", 70, "LoadAware"),
        (Measure.LOAD, "memory", 80, "percentile"),
        (Measure.LIMITS, "cpu", 150, "LimitAware"),
    ]
    assert {each.policy for each in found} == {"calm"}
