from __future__ import annotations

from pathlib import Path

import pytest

from engine.model.time import Micros
from engine.report import NodeReport, PodName, node_report, nodes_report, pods_report
from engine.view import ClusterState
from tests.eks import SUFFIX, EksCluster
from webhook.cluster.files.recorded import load_recorded

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
