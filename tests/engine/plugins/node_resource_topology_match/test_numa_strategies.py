from __future__ import annotations

from typing import TYPE_CHECKING

from engine.plugins.node_resource_topology_match.args import NodeResourceTopologyMatchArgs
from engine.plugins.node_resource_topology_match.plugin import NodeResourceTopologyMatchScore
from tests.engine.measured_cluster import NOW, by_node
from tests.engine.topology_cluster import cluster, node, pod, zones

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.view import ClusterView

SMALL = {"cpu": "4", "memory": "8Gi"}


def scores(one: Pod, view: ClusterView, strategy: str, **weights: int) -> dict[str, int]:
    resources = [{"name": name, "weight": weight} for name, weight in weights.items()]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    rule = NodeResourceTopologyMatchScore(NodeResourceTopologyMatchArgs.model_validate(args))
    return by_node(view, rule.normalize(rule.score(one, view, NOW).values))


def test_strategies_rank_by_the_worst_zone_that_holds_the_pod() -> None:
    big, full = {"cpu": "8", "memory": "8Gi"}, {"cpu": "1", "memory": "8Gi"}
    view = cluster(
        [node("roomy"), node("tight"), node("untold")],
        [zones("roomy", big, full), zones("tight", SMALL, big)],
    )
    one = pod({"cpu": "2", "memory": "2Gi"})
    # roomy: of 8 cores 6 are left, 75 %, of 8Gi 75 %; the full zone holds no 2 cores but 75 % of
    # its memory would be left: (0 + 75) / 2 = 37, the least. tight: (50 + 75) / 2 = 62.
    assert scores(one, view, "LeastAllocated") == {"roomy": 37, "tight": 62, "untold": 0}
    # Taken: roomy min((25 + 25) / 2, (0 + 25) / 2) = 12; tight min((50 + 25) / 2 = 37, 25).
    assert scores(one, view, "MostAllocated") == {"roomy": 12, "tight": 25, "untold": 0}
    # Weighed 3 to 1: roomy min(75, 75 / 4 = 18), tight min((3 * 50 + 75) / 4 = 56, 75).
    assert scores(one, view, "LeastAllocated", cpu=3) == {"roomy": 18, "tight": 56, "untold": 0}
    # Shares 1/4 and 1/4 are even, 100; 1/2 and 1/4 vary by 1/32: int(96.875). The full zone: 0.
    assert scores(one, view, "BalancedAllocation") == {"roomy": 100, "tight": 96, "untold": 0}


def test_cpu_counts_in_whole_cores_when_scored() -> None:
    view = cluster([node("a")], [zones("a", {"cpu": "3500m", "memory": "4Gi"})])
    # 1.5 of 3.5 cores are 2 of 4 in whole ones: 50 % left. Of the memory 75 %. (50 + 75) / 2.
    assert scores(pod({"cpu": "1500m", "memory": "1Gi"}), view, "LeastAllocated") == {"a": 62}


def test_each_container_is_scored_for_itself() -> None:
    view = cluster([node("a")], [zones("a", SMALL)])
    # (75 + 75) / 2 and (50 + 50) / 2: 75 and 50, the mean is 62.5.
    one = pod({"cpu": "1", "memory": "2Gi"}, {"cpu": "2", "memory": "4Gi"})
    assert scores(one, view, "LeastAllocated") == {"a": 62}
