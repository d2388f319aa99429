from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.node_resources_allocatable import (
    NodeResourcesAllocatableArgs,
    NodeResourcesAllocatableScore,
)
from tests.engine.measured_cluster import GI, NOW, by_node, cluster, node, pod

NODES = [
    node("small", cpu="2", memory="4Gi"),
    node("middle", cpu="4", memory="8Gi"),
    node("large", cpu="16", memory="32Gi", **{"x.com/gpu": "2"}),
]


def scores(**args: Any) -> tuple[dict[str, int], list[int]]:  # noqa: ANN401 (any args)
    """Return raw scores by node, and the points of the nodes in order."""
    rule = NodeResourcesAllocatableScore(NodeResourcesAllocatableArgs.model_validate(args))
    view = cluster(NODES, [pod("there", "small", requests={"cpu": "1"})])
    raw = rule.score(Cycle(pod(requests={"cpu": "1"}), view, NOW)).values
    return by_node(view, raw), rule.normalize(raw).tolist()


def test_small_nodes_are_preferred_unless_told_otherwise() -> None:
    # (2000 * 2**20 + 4 GiB) / (2**20 + 1), and so on: 2, 4 and 16 times 1000 * 2**20 + 2 GiB.
    raw, points = scores()
    assert raw["small"] == -((2000 * 2**20 + 4 * GI) // (2**20 + 1))
    assert points == [100, 85, 0]
    assert scores(mode="Most")[1] == [0, 14, 100]


def test_the_last_weight_of_a_resource_counts_and_what_a_node_lacks_is_0() -> None:
    gpus = [{"name": "x.com/gpu", "weight": 1}, {"name": "x.com/gpu", "weight": 10**30}]
    assert scores(mode="Most", resources=gpus)[0] == {"small": 0, "middle": 0, "large": 2}


def test_a_name_that_no_resource_has_takes_its_share_of_the_weight() -> None:
    named = [{"name": "cpu", "weight": 1}, {"name": "gpu", "weight": 1}]
    assert scores(mode="Most", resources=named)[0]["small"] == 1000


def test_no_resources_are_the_default_ones() -> None:
    assert scores(resources=[]) == scores()


@pytest.mark.parametrize(
    ("args", "place", "message"),
    [
        (
            {"resources": [{"name": "cpu", "weight": 0}]},
            ("resources", 0, "weight"),
            "resource weight of cpu should be a positive value, got :0",
        ),
        ({"resources": [{"name": "cpu"}]}, ("resources", 0, "weight"), "required"),
        ({"mode": "Middle"}, ("mode",), "'Least' or 'Most'"),
    ],
)
def test_mistakes_are_told_where_they_are(
    args: dict[str, Any], place: tuple[object, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        NodeResourcesAllocatableArgs.model_validate(args)
    (error,) = caught.value.errors()
    assert error["loc"] == place
    assert message in error["msg"]
