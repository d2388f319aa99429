from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.plugins.load_aware.estimation import RAW_ALLOCATABLE
from engine.policy import load_policies
from engine.report import (
    Crowd,
    Measure,
    NodeNames,
    NodeReport,
    PodName,
    Replicas,
    Threshold,
    node_report,
    nodes_report,
    pods_report,
    thresholds_of,
)
from engine.view import ClusterState
from tests.eks import SUFFIX, EksCluster
from tests.engine.measured_cluster import GI, NOW, cluster, node, pod, report
from tests.engine.simulation.recordings import of_daemon_set, of_deployment, recorded_pod
from webhook.cluster.recorded import load_recorded

EKS = ("ip-10-0-1-23.eu-central-1.compute.internal", "ip-10-0-2-7.eu-central-1.compute.internal")


@pytest.mark.parametrize(
    ("names", "suffix"),
    [
        (EKS, ".eu-central-1.compute.internal"),
        ((*EKS, "node1"), ""),
        (EKS[:1], ""),  # of one node nothing tells name from suffix
        (("a.internal", "b.internal"), ".internal"),
        (("a.lan", "b.lan"), ""),  # 4 characters are not worth a sentence
        (("gke-pool-1-x1z", "gke-pool-1-y1z"), ""),
        ((), ""),
    ],
)
def test_the_suffix_is_what_all_names_share_from_a_dot_on(
    names: tuple[str, ...], suffix: str
) -> None:
    assert NodeNames.of(names).suffix == suffix


def test_names_are_short_alone_and_in_texts() -> None:
    names = NodeNames.of(EKS)
    assert names.short(EKS[0]) == "ip-10-0-1-23"
    assert names.in_text(f"best {EKS[0]}, {EKS[1]}.") == "best ip-10-0-1-23, ip-10-0-2-7."
    assert names.in_text(f"{EKS[0]}-added-1") == f"{EKS[0]}-added-1"  # another name
    assert NodeNames().in_text("node1") == "node1"


def web(number: int, on: str) -> Pod:
    return of_deployment("web", number, on).pod


def test_the_most_pods_of_one_owner_on_one_node_are_found() -> None:
    replicas = Replicas()
    pods = [web(1, "b"), web(2, "b"), web(3, "a"), of_deployment("api", 1, "b").pod]
    for replica in pods:
        replicas.set(replica)
    assert replicas.crowd() == Crowd(pods=2, node="b", example=PodName("shop", "web-abc-1"))


def test_of_two_nodes_with_as_many_it_is_the_first_by_name() -> None:
    replicas = Replicas()
    for replica in (web(1, "b"), web(2, "a")):
        replicas.set(replica)
    assert (replicas.crowd().node, replicas.crowd().pods) == ("a", 1)


def test_pods_that_move_end_or_go_no_longer_count_where_they_were() -> None:
    replicas = Replicas()
    for replica in (web(1, "a"), web(2, "a"), web(3, "a")):
        replicas.set(replica)
    replicas.set(web(1, "b"))
    replicas.set(structs.replace(web(2, "a"), phase="Succeeded"))
    replicas.delete("shop/web-abc-3")
    replicas.delete("shop/nobody")
    assert replicas.crowd() == Crowd(pods=1, node="b", example=PodName("shop", "web-abc-1"))


def test_pods_without_an_owner_or_a_node_and_those_of_daemon_sets_do_not_count() -> None:
    replicas = Replicas()
    for each in (recorded_pod("alone", "a"), of_daemon_set("agent", "a"), of_deployment("web", 1)):
        replicas.set(each.pod)
    assert replicas.crowd() == Crowd()


NODE = f"ip-10-0-1-17{SUFFIX}"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> ClusterState:
    folder: Path = tmp_path_factory.mktemp("eks")
    EksCluster().write(folder)
    return load_recorded([folder]).state


def told(state: ClusterState, name: str) -> NodeReport | None:
    return node_report(state, nodes_report(state.view(), Micros(1)), name)


def test_a_node_has_its_pods_with_what_they_ask_for_and_use(state: ClusterState) -> None:
    report = told(state, NODE)
    assert report is not None
    assert [str(each.pod) for each in report.pods] == ["kube-system/aws-node-00", "ml/train-0"]
    train = report.pods[1]
    assert train.requests == {"cpu": 2_000, "memory": 8_192 << 20, "nvidia.com/gpu": 1}
    assert train.limits["cpu"] == 6_000
    assert train.usage == {"cpu": 1_500, "memory": 8_192 * 7 // 10 << 20}
    assert not train.is_expected


def test_there_is_no_report_on_a_node_that_does_not_exist(state: ClusterState) -> None:
    assert told(state, "elsewhere") is None


def test_pods_are_found_by_namespace_and_a_part_of_their_name(state: ClusterState) -> None:
    # 4 pods of train, in ml alone; "web" is no part of any name in ml.
    assert pods_report(state, "", "train-").total == 4
    assert pods_report(state, "ml", "web").total == 0
    found = pods_report(state, "shop", "web")
    assert found.total == 60
    assert found.pods[0].pod == PodName("shop", "web-6c5d9-00")
    assert found.pods[0].node.endswith(SUFFIX)
    assert "shop" in found.namespaces


def test_a_name_of_a_namespace_is_not_one_of_a_pod(state: ClusterState) -> None:
    assert pods_report(state, "", "shop").total == 0
    assert pods_report(state, "sho", "").total == 0


def test_a_pod_that_waits_is_on_no_node(state: ClusterState) -> None:
    assert {each.node for each in pods_report(state, "data", "rebuild").pods} == {""}


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
