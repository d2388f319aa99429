from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.plugins.base import FAULT, Cycle
from engine.plugins.limit_aware import (
    LIMIT_TO_ALLOCATABLE,
    MOST_CAPACITY,
    MOST_PERCENT,
    PLUGIN,
    LimitAwareArgs,
    LimitAwareFilter,
    LimitAwareScore,
    NodeRatios,
    Written,
    read,
)
from tests.engine.measured_cluster import NOW, by_node, cluster, node, pod

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.view import ClusterView


GPU = "x.com/gpu"


def _args(ratios: dict[str, Any], weights: dict[str, int] | None = None) -> LimitAwareArgs:
    return LimitAwareArgs.model_validate(
        {"defaultLimitToAllocatableRatio": ratios, "scoringResourceWeights": weights}
    )


def _reasons(one: Pod, view: ClusterView, **ratios: Any) -> tuple[str, ...]:  # noqa: ANN401 (an integer or a text)
    """Return why the only node does not fit, under ratios by resource name."""
    rule = LimitAwareFilter(_args(ratios))
    code = int(rule.filter(Cycle(one, view, NOW)).codes[0])
    return (
        (rule.fault(Cycle(one, view, NOW), 0),)
        if code == FAULT
        else rule.reasons(code, Cycle(one, view, NOW))
    )


def _scores(one: Pod, view: ClusterView, args: LimitAwareArgs) -> dict[str, int]:
    return by_node(view, LimitAwareScore(args).score(Cycle(one, view, NOW)).values)


def test_limits_may_add_up_to_the_ratio_and_no_further() -> None:
    # 150 % of 8 cores is 12; 11 are taken.
    view = cluster([node("a", cpu="8")], [pod("p", "a", limits={"cpu": "11"})])
    assert _reasons(pod(limits={"cpu": "1"}), view, cpu="150%") == ()
    assert _reasons(pod(limits={"cpu": "1001m"}), view, cpu="150%") == ("Insufficient cpu limit",)


def test_every_resource_that_falls_short_is_told_in_order() -> None:
    view = cluster([node("a", cpu="1", memory="1Gi", **{"ephemeral-storage": "1", GPU: "1"})])
    wide = pod(limits={"z.com/tpu": "1", GPU: "2", "memory": "2Gi", "cpu": "2"})
    every = dict.fromkeys(("cpu", "memory", "ephemeral-storage", GPU, "z.com/tpu"), 100)
    assert _reasons(wide, view, **every) == (
        "Insufficient cpu limit",
        "Insufficient memory limit",
        "Insufficient x.com/gpu limit",
        "Insufficient z.com/tpu limit",
    )


def test_a_node_over_its_capacity_takes_no_pod_with_any_limit() -> None:
    view = cluster([node("a", cpu="8")], [pod("p", "a", limits={"cpu": "12"})])
    assert _reasons(pod(limits={"memory": "1"}), view, cpu=100) == ("Insufficient cpu limit",)
    assert _reasons(pod(limits={GPU: "0"}), view, cpu=100) == ("Insufficient cpu limit",)
    assert _reasons(pod(limits={"cpu": "0"}), view, cpu=100) == ()
    assert _reasons(pod(), view, cpu=100) == ()


def test_a_daemon_set_pod_passes_before_anything_else() -> None:
    view = cluster([node("a", {LIMIT_TO_ALLOCATABLE: "{"}, cpu="1")])
    owners = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}]
    daemon = pod(limits={"cpu": "9"}, metadata={"ownerReferences": owners})
    assert _reasons(daemon, view, cpu=100) == ()
    assert "not a JSON map" in _reasons(pod(), view, cpu=100)[0]


def test_a_pod_with_more_resources_than_a_code_has_bits_is_still_told_apart() -> None:
    names = [f"x.com/r{i:03}" for i in range(80)]
    view = cluster([node("a", cpu="1")])
    greedy = pod(limits=dict.fromkeys(names, "1"))
    reasons = _reasons(greedy, view, **dict.fromkeys(names, 100))
    assert len(reasons) == 60  # 63 bits, less cpu, memory, ephemeral-storage and ...
    assert reasons[-1] == "Insufficient extended resources limit"  # ... with the last one shared


def test_the_score_is_the_mean_of_what_is_left_truncated() -> None:
    # cpu: (8 - 2 - 1) / 8 = 62.5 -> 62; memory: (16 - 14 - 1) / 16 = 6.25 -> 6; (62 + 6) / 2 = 34
    # without memory in the ratio: 62
    view = cluster(
        [
            node("both", cpu="8", memory="16Gi"),
            node("cpu", {LIMIT_TO_ALLOCATABLE: '{"cpu":100}'}, cpu="8", memory="16Gi"),
            node("none", {LIMIT_TO_ALLOCATABLE: "{}"}, cpu="8", memory="16Gi"),
        ],
        [
            pod(f"p-{on}", on, limits={"cpu": "2", "memory": "14Gi"})
            for on in ("both", "cpu", "none")
        ],
    )
    incoming = pod(limits={"cpu": "1", "memory": "1Gi"})
    scores = _scores(incoming, view, _args({"cpu": 100, "memory": 100}))
    assert scores == {"both": 34, "cpu": 62, "none": 0}


def test_an_overcommitted_node_scores_below_zero_toward_which_it_truncates() -> None:
    # (3 - 3 - 0.1) / 3 = -3.33 % -> -3, weight 3; memory (1 - 0.5) / 1 = 50 %, weight 1
    # (-9 + 50) / 4 = 10.25 -> 10
    view = cluster(
        [node("a", cpu="3", memory="1Gi")], [pod("p", "a", limits={"cpu": "3", "memory": "0"})]
    )
    incoming = pod(limits={"cpu": "100m", "memory": "512Mi"})
    ratios = {"cpu": 100, "memory": 100}
    assert _scores(incoming, view, _args(ratios, {"cpu": 1})) == {"a": -3}
    assert _scores(incoming, view, _args(ratios, {"cpu": 3, "memory": 1})) == {"a": 10}


def test_containers_that_say_nothing_are_scored_as_100m_and_200mi() -> None:
    # 2 cores - 5 * 100m - 100m = 1400m of 2000m = 70 %
    view = cluster([node("a", cpu="2")], [pod(f"p{i}", "a") for i in range(5)])
    assert _scores(pod(), view, _args({"cpu": 100}, {"cpu": 1})) == {"a": 70}


def test_resources_that_the_scheduler_does_not_count_are_not_scored() -> None:
    view = cluster([node("a", cpu="2", pods="10", gpu="4")])
    args = _args({"cpu": 100, "pods": 100, "gpu": 100}, {"cpu": 1, "pods": 9, "gpu": 9})
    assert _scores(pod(limits={"cpu": "1"}), view, args) == {"a": 50}


def test_a_node_with_unreadable_ratios_is_a_fault_of_the_score() -> None:
    view = cluster([node("a", cpu="2"), node("b", {LIMIT_TO_ALLOCATABLE: "?"}, cpu="2")])
    rule = LimitAwareScore(_args({"cpu": 100}))
    scores = rule.score(Cycle(pod(limits={"cpu": "1"}), view, NOW))
    assert scores.faults is not None
    assert (scores.faults.tolist(), scores.values.tolist()) == ([False, True], [50, 0])
    assert "not a JSON map" in rule.fault(Cycle(pod(), view, NOW), 1)
    assert rule.fault(Cycle(pod(), view, NOW), 0) == ""


@pytest.mark.parametrize(
    ("raw", "normalized"),
    [
        ([-17, 63, 55], [0, 100, 90]),  # 72 / 80 = 0.9
        ([0, 29, 100], [0, 28, 100]),  # 0.29 * 100 = 28.999... in float64, as upstream
        ([7], [0]),
        ([5, 5], [0, 0]),
        ([], []),
    ],
)
def test_scores_are_stretched_over_the_whole_range(raw: list[int], normalized: list[int]) -> None:
    rule = LimitAwareScore(_args({}))
    assert rule.normalize(np.array(raw, np.int64)).tolist() == normalized


@given(st.lists(st.integers(-(2**47), 2**47), min_size=1))
def test_normalized_scores_keep_their_order_within_bounds(raw: list[int]) -> None:
    normalized = LimitAwareScore(_args({})).normalize(np.array(raw, np.int64)).tolist()
    assert all(0 <= score <= 100 for score in normalized)
    ranked = [score for _, score in sorted(zip(raw, normalized, strict=True))]
    assert ranked == sorted(ranked)


def test_weights_are_defaulted_and_checked() -> None:
    assert _args({}).scoring_resource_weights == {"cpu": 1, "memory": 1}
    assert _args({}, {}).scoring_resource_weights == {"cpu": 1, "memory": 1}
    assert _args({}, {"cpu": 0}).scoring_resource_weights == {"cpu": 1}
    for weight in (-1, 101):
        with pytest.raises(ValidationError):
            _args({}, {"cpu": weight})


@pytest.mark.parametrize("ratio", [1.5, True, 2**31, None, [1]])
def test_a_ratio_that_could_not_be_decoded_upstream_is_refused(ratio: object) -> None:
    with pytest.raises(ValidationError):
        _args({"cpu": ratio})


def test_hostile_limits_do_not_wrap() -> None:
    huge = pod("p", "a", limits={"cpu": "9e18", "memory": "9e18"})
    view = cluster([node("a", cpu="1m", memory="1")], [huge])
    incoming = pod(limits={"cpu": "9e18", "memory": "9e18"})
    assert _reasons(incoming, view, cpu=1000, memory=100) == (
        "Insufficient cpu limit",
        "Insufficient memory limit",
    )
    weights = {"cpu": 100, "memory": 100}
    assert _scores(incoming, view, _args({"cpu": 1000, "memory": 100}, weights))["a"] < -(10**9)


BY_CLUSTER: Written = {"cpu": 150, "memory": "50%"}


def _capacity(name: str, own: str | None, **allocatable: str) -> tuple[bool, int]:
    view = cluster([node("a", {} if own is None else {LIMIT_TO_ALLOCATABLE: own}, **allocatable)])
    covered, amounts = NodeRatios(BY_CLUSTER).capacity(view, name)
    return bool(covered[0]), int(amounts[0])


def _fault(own: str, **allocatable: str) -> str:
    one = node("a", {LIMIT_TO_ALLOCATABLE: own}, **allocatable)
    ratios, view = NodeRatios(BY_CLUSTER), cluster([one])
    assert ratios.faulty(view).tolist() == [bool(ratios.fault_of(one))]
    return ratios.fault_of(one)


def test_a_ratio_scales_what_a_node_offers_and_truncates() -> None:
    assert _capacity("cpu", None, cpu="7m") == (True, 10)  # 7 * 150 / 100 = 10.5
    assert _capacity("memory", None, memory="101") == (True, 50)
    assert _capacity("ephemeral-storage", None, **{"ephemeral-storage": "9"}) == (False, 9)


def test_an_annotation_replaces_all_ratios_of_the_cluster() -> None:
    assert _capacity("cpu", '{"memory":200}', cpu="8") == (False, 8000)
    assert _capacity("memory", '{"memory":"200%"}', memory="8") == (True, 16)
    assert _capacity("cpu", "{}", cpu="8") == (False, 8000)
    assert _capacity("cpu", "null", cpu="8") == (False, 8000)
    assert _capacity("cpu", '{"cpu":null}', cpu="8") == (True, 0)


@pytest.mark.parametrize("text", ["150", "1.5%", "%", "x%", " 5%", "5 %", ""])
def test_a_text_that_is_not_a_whole_percentage_is_a_fault(text: str) -> None:
    faults = read({"cpu": text}).faults
    assert faults == {"cpu": f"the ratio of cpu, `{text}`, is neither an integer nor a percentage"}


@pytest.mark.parametrize(("text", "percent"), [("5%", 5), ("+5%", 5), ("-5%", -5), ("007%", 7)])
def test_a_percentage_is_read_as_go_reads_it(text: str, percent: int) -> None:
    assert read({"cpu": text}).percents == {"cpu": percent}


@pytest.mark.parametrize(
    "own", ["", "{", "[]", "5", '{"cpu":1.5}', '{"cpu":3000000000}', '{"cpu":true}']
)
def test_a_malformed_annotation_is_a_fault_of_its_node(own: str) -> None:
    assert _fault(own) == f"annotation `{LIMIT_TO_ALLOCATABLE}` is not a JSON map of ratios"


def test_a_fault_in_a_scalar_ratio_harms_only_nodes_that_offer_the_resource() -> None:
    own = '{"x.com/gpu":"many"}'
    assert _fault(own, cpu="1") == ""
    assert "`many`" in _fault(own, cpu="1", **{"x.com/gpu": "0"})
    assert "`all`" in _fault('{"ephemeral-storage":"all"}', cpu="1")
    assert _fault('{"gpu":"many"}', gpu="1") == ""  # counted nowhere


@given(st.integers(0, 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_no_capacity_wraps(amount: int, percent: int) -> None:
    covered, capacity = _capacity("memory", f'{{"memory":{percent}}}', memory=str(amount))
    assert covered
    bounded = max(-MOST_PERCENT, min(percent, MOST_PERCENT))
    exact = min(amount, 2**48) * abs(bounded) // 100
    assert abs(capacity) == min(exact, MOST_CAPACITY)
    assert capacity * percent >= 0


def test_balanced_makes_the_share_of_limits_most_even() -> None:
    # x = 0.2 and 0.6, m = 0.4, and the pod takes 0.1:
    # 50 - 50 * (2 * -0.2 + 0.1) = 65 and 50 - 50 * (2 * 0.2 + 0.1) = 25.
    ratios = {"defaultLimitToAllocatableRatio": {"cpu": 100}, "strategy": "Balanced"}
    args = LimitAwareArgs.model_validate({**ratios, "scoringResourceWeights": {"cpu": 1}})
    pods = [pod("p", "a", limits={"cpu": "2"}), pod("q", "b", limits={"cpu": "6"})]
    view = cluster([node("a", cpu="10"), node("b", cpu="10")], pods)
    assert PLUGIN.score
    score = PLUGIN.score(args).score(Cycle(pod(limits={"cpu": "1"}), view, NOW))
    assert by_node(view, score.values) == {"a": 65, "b": 25}
