from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesBalancedAllocationScore,
)
from tests.engine.measured_cluster import NOW, by_node, cluster, node, pod

GPU = "x.com/gpu"


def rule(*names: str, version: str = "1.35") -> NodeResourcesBalancedAllocationScore:
    args: dict[str, Any] = {"kubernetesVersion": version}
    if names:
        args["resources"] = [{"name": name} for name in names]
    return NodeResourcesBalancedAllocationScore(
        NodeResourcesBalancedAllocationArgs.model_validate(args)
    )


def score(
    scorer: NodeResourcesBalancedAllocationScore,
    offers: dict[str, str],
    requests: dict[str, str],
    used: dict[str, str] | None = None,
) -> int:
    """Return the score of a node for a pod of these requests, the node being used so far."""
    view = cluster([node("n", **offers)], [pod("there", "n", requests=used)] if used else [])
    return by_node(view, scorer.score(Cycle(pod(requests=requests), view, NOW)).values)["n"]


OFFERS = {"cpu": "10", "memory": "100"}


def test_even_use_beats_lopsided_use() -> None:
    # 50 % and 50 %: no deviation. 75 % and 50 %: (1 - 0.25 / 2) * 100 = 87.5.
    assert score(rule(), OFFERS, {"cpu": "5", "memory": "50"}) == 100
    assert score(rule(), OFFERS, {"cpu": "7500m", "memory": "50"}) == 87


def test_of_more_than_two_resources_the_standard_deviation_counts() -> None:
    # 100 %, 0 and 50 %: sqrt((0.25 + 0.25 + 0) / 3) = 0.408.
    asked = {"cpu": "10", GPU: "1"}
    scorer = rule("cpu", "memory", GPU)
    assert score(scorer, OFFERS | {GPU: "2"}, asked) == 59
    # A node without any GPU is judged by the other two: 1 - 1 / 2.
    assert score(scorer, OFFERS, asked) == 50


def test_a_device_that_the_pod_does_not_request_is_not_looked_at() -> None:
    scorer = rule("cpu", "memory", GPU)
    assert score(scorer, OFFERS | {GPU: "8"}, {"cpu": "5", "memory": "50"}) == 100


def test_more_than_all_is_all() -> None:
    assert score(rule(), OFFERS, {"cpu": "50", "memory": "100"}) == 100


def test_from_kubernetes_1_36_on_the_change_counts() -> None:
    new = rule(version="v1.36.2")
    # Balance of the node alone: 60 % and 0, 70. With the pod 60 % and 50 %: 95.
    # 50 + (50 + 95 - 70) / 2 = 87.5.
    assert score(new, OFFERS, {"memory": "50"}, used={"cpu": "6"}) == 87
    # The other way: 100 to 75 is 50 + 25 / 2 = 62.5.
    assert score(new, OFFERS, {"cpu": "5"}) == 62
    assert score(new, OFFERS, {"cpu": "5", "memory": "50"}) == 75
    assert score(rule(version="1.35"), OFFERS, {"memory": "50"}, used={"cpu": "6"}) == 95


def test_a_pod_that_requests_nothing_gets_no_points_anywhere() -> None:
    assert rule().skips(pod())
    assert score(rule(), OFFERS, {}) == 0
    assert not rule(GPU).skips(pod(requests={GPU: "1"}))


def test_without_any_resource_nothing_can_be_scored() -> None:
    none = NodeResourcesBalancedAllocationArgs.model_validate({"resources": []})
    scorer, view = NodeResourcesBalancedAllocationScore(none), cluster([node("n")])
    faults = scorer.score(Cycle(pod(), view, NOW)).faults
    assert faults is not None
    assert faults.all()
    assert scorer.fault(Cycle(pod(), view, NOW), 0) == "resources not found"


@pytest.mark.parametrize(
    ("args", "place", "message"),
    [
        ({"resources": [{"name": "cpu", "weight": 2}]}, ("resources", 0, "weight"), "must be 1"),
        (
            {"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "cpu"}]},
            ("resources", 2, "name"),
            "duplicate value",
        ),
        ({"kubernetesVersion": "new"}, ("kubernetesVersion",), "not a version of Kubernetes"),
        ({"kubernetesVersion": 1.36}, ("kubernetesVersion",), "valid string"),
    ],
)
def test_mistakes_are_told_where_they_are(
    args: dict[str, Any], place: tuple[object, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        NodeResourcesBalancedAllocationArgs.model_validate(args)
    (error,) = caught.value.errors()
    assert error["loc"] == place
    assert message in error["msg"]


def _balance(shares: list[float]) -> int:
    """Return the balance as upstream computes it, one number after the other."""
    deviation, total = 0.0, 0.0
    for share in shares:
        total += share
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        squares = 0.0
        for share in shares:
            squares += (share - total / len(shares)) * (share - total / len(shares))
        deviation = math.sqrt(squares / len(shares))
    return int((1 - deviation) * 100)


_TO_MIX = ["cpu", "memory", "ephemeral-storage", GPU]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 9)), min_size=4, max_size=4))
def test_the_columns_agree_with_upstream_to_the_last_bit(amounts: list[tuple[int, int]]) -> None:
    by_name = dict(zip(_TO_MIX, amounts, strict=True))
    offers = {name: str(offered) for name, (offered, _) in by_name.items()}
    requests = {name: str(asked) for name, (_, asked) in by_name.items()}
    shares = [min(asked / offered, 1) for offered, asked in amounts if offered]
    assert score(rule(*_TO_MIX), offers, requests) == _balance(shares)
