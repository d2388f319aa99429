from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.resource_limit_aware import ResourceLimitAwareArgs, ResourceLimitAwareScore
from tests.engine.measured_cluster import NOW, by_node, cluster, node, pod

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.view import ClusterView

CPU_ONLY = {"resources": [{"name": "cpu"}]}


def _rule(args: dict[str, Any]) -> ResourceLimitAwareScore:
    return ResourceLimitAwareScore(ResourceLimitAwareArgs.model_validate(args))


def _scores(one: Pod, view: ClusterView, args: dict[str, Any]) -> dict[str, int]:
    return by_node(view, _rule(args).score(Cycle(one, view, NOW)).values)


def test_the_example_of_the_proposal_comes_out() -> None:
    # node1: (8 - 6 - 4 - 4) / 8 = -75 %; node2: (8 - 3 - 2 - 4) / 8 = -12.5 % -> -12
    taken = {"pod1": ("node1", 6), "pod2": ("node1", 4), "pod3": ("node2", 3), "pod4": ("node2", 2)}
    view = cluster(
        [node("node1", cpu="8"), node("node2", cpu="8")],
        [pod(name, on, limits={"cpu": str(cpu)}) for name, (on, cpu) in taken.items()],
    )
    scores = _rule(CPU_ONLY).score(Cycle(pod(limits={"cpu": "4"}), view, NOW)).values
    assert by_node(view, scores) == {"node1": -75, "node2": -12}
    assert by_node(view, _rule(CPU_ONLY).normalize(scores)) == {"node1": 0, "node2": 100}


def test_resources_add_up_by_weight() -> None:
    # cpu (4 - 1) / 4 = 75 %, memory (2 - 1) / 2 = 50 %: 2 * 75 + 50 = 200
    view = cluster([node("a", cpu="4", memory="2Gi", gpu="1")])
    weighted = {"resources": [{"name": "cpu", "weight": 2}, {"name": "memory"}, {"name": "gpu"}]}
    incoming = pod(limits={"cpu": "1", "memory": "1Gi", "gpu": "1"})
    assert _scores(incoming, view, weighted) == {"a": 200}
    assert _scores(incoming, view, {}) == {"a": 125}


def test_init_containers_and_overhead_count_for_the_incoming_pod_alone() -> None:
    spec: dict[str, Any] = {
        "containers": [{"resources": {"limits": {"cpu": "1"}}}],
        "initContainers": [{"resources": {"limits": {"cpu": "3"}}, "restartPolicy": "Always"}],
        "overhead": {"cpu": "500m"},
    }
    # The pod there counts 1 core, the new one max(1, 3) + 0.5: (10 - 1 - 3.5) / 10 = 55 %
    view = cluster([node("a", cpu="10")], [pod("p", "a", **spec)])
    assert _scores(pod(**spec), view, CPU_ONLY) == {"a": 55}


def test_an_incoming_pod_without_limits_takes_all_that_a_node_offers() -> None:
    # (8 - 2 - 8) / 8 = -25 %; requests are no limits
    view = cluster([node("a", cpu="8")], [pod("p", "a", limits={"cpu": "2"})])
    assert _scores(pod(requests={"cpu": "1"}), view, CPU_ONLY) == {"a": -25}
    # With any limit, those that it lacks count nothing: (8 - 2) / 8 = 75 %
    assert _scores(pod(limits={"memory": "1Gi"}), view, CPU_ONLY) == {"a": 75}


def test_an_incoming_pod_without_limits_takes_the_configured_ones() -> None:
    # cpu: (8 - 2 - 4) / 8 = 25 %, memory is not named: (1 - 1) / 1 = 0 %
    view = cluster([node("a", cpu="8", memory="1Gi")], [pod("p", "a", limits={"cpu": "2"})])
    assert _scores(pod(), view, {"defaultLimits": {"cpu": 4}}) == {"a": 25}
    assert _scores(pod(), view, {"defaultLimits": {"cpu": "500m", "memory": "0"}}) == {"a": 168}


def test_pods_on_a_node_without_limits_count_nothing() -> None:
    view = cluster([node("a", cpu="8")], [pod("p", "a", requests={"cpu": "7"})])
    assert _scores(pod(limits={"cpu": "2"}), view, CPU_ONLY) == {"a": 75}


def test_a_resource_that_a_node_does_not_offer_counts_nothing_there() -> None:
    view = cluster([node("a", cpu="8"), node("b", cpu="8", memory="2Gi")])
    incoming = pod(limits={"cpu": "2", "memory": "1Gi"})
    assert _scores(incoming, view, {}) == {"a": 75, "b": 125}


@pytest.mark.parametrize(
    ("raw", "normalized"),
    [([0, 29, 100], [0, 29, 100]), ([0, 2, 3], [0, 66, 100]), ([4, 4], [0, 0]), ([], [])],
)
def test_scores_are_stretched_over_the_whole_range(raw: list[int], normalized: list[int]) -> None:
    assert _rule({}).normalize(np.array(raw, np.int64)).tolist() == normalized


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1))
def test_normalized_scores_are_exact(raw: list[int]) -> None:
    least, spread = min(raw), (max(raw) - min(raw)) or 1
    expected = [(one - least) * 100 // spread for one in raw]
    assert _rule({}).normalize(np.array(raw, np.int64)).tolist() == expected


@pytest.mark.parametrize(
    "args",
    [
        {"resources": [{"name": "cpu", "weight": 0}]},
        {"resources": [{"name": "cpu", "weight": 101}]},
        {"defaultLimits": {"cpu": "much"}},
        {"defaultLimits": {"cpu": True}},
    ],
)
def test_nonsense_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ResourceLimitAwareArgs.model_validate(args)
