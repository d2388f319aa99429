from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.report import RepackReport
from tests.webhook.cli.running import CLUSTER, Stowplan
from webhook.cli import simulate

NODES = """
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: node2}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: shop}
spec: {containers: [{name: c, resources: {requests: {cpu: "4"}}}]}
status: {phase: Pending}
"""

POD = """
---
apiVersion: v1
kind: Pod
metadata:
  name: %(name)s
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: web}]
spec: {nodeName: %(node)s, containers: [{name: c, resources: {requests: {cpu: "2"}}}]}
status: {phase: Running}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> tuple[str, Path]:
    """Return a recording in which a pod has to move so that another fits."""
    file = tmp_path / "cluster.yaml"
    pods = (POD % {"name": f"web-{number}", "node": f"node{number}"} for number in (1, 2))
    file.write_text(NODES + "".join(pods))
    return "--cluster", file


def test_the_plan_is_printed_with_what_was_asked_about_first(
    stowplan: Stowplan, cluster: tuple[str, Path]
) -> None:
    ran = stowplan("simulate", *cluster, "--repack")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[1:3] == [
        "1 of 1 waiting pods get a node.",
        "1 running pod would move; fewer are not enough.",
    ]
    words = [line.split() for line in lines]
    assert any(line[:2] == ["2", "shop/large"] and line[3] == "waits" for line in words)
    assert "running pods that leave their node" in ran.out


def test_the_plan_as_json_is_a_report(stowplan: Stowplan, cluster: tuple[str, Path]) -> None:
    ran = stowplan("simulate", *cluster, "--repack", "--free-nodes", "1", "--json")
    report = msgspec.json.decode(ran.out, type=RepackReport)
    assert (report.placed, report.moved, report.wanted_free) == (1, 1, 1)
    assert report.free_nodes == ()


@pytest.mark.parametrize(
    "more", [("--arrivals", "recording"), ("--drain", "node1"), ("--html", "report.html")]
)
def test_a_plan_is_of_the_cluster_as_it_is(stowplan: Stowplan, more: tuple[str, ...]) -> None:
    ran = stowplan("simulate", *CLUSTER, "--repack", *more)
    assert ran.status == 1
    assert "--repack: it plans for the cluster as it is" in ran.err


def test_free_nodes_belong_to_a_plan(stowplan: Stowplan) -> None:
    ran = stowplan("simulate", *CLUSTER, "--free-nodes", "1")
    assert (ran.status, "--free-nodes: it needs `--repack`" in ran.err) == (1, True)


def test_without_the_solver_a_hint_says_how_to_install_it(
    stowplan: Stowplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "can_solve", lambda: False)
    ran = stowplan("simulate", *CLUSTER, "--repack")
    assert ran.status == 1
    assert "`--repack` needs OR-Tools" in ran.err
    assert "pip install 'stowplan[solver]'" in ran.err
