from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.target_load_packing import (
    TargetLoadPackingArgs,
    TargetLoadPackingScore,
    points,
)
from engine.view import ClusterState
from tests.builders import pod_from
from tests.engine.measured_cluster import NOW, by_node, cluster, node, pod, report, seconds_ago

if TYPE_CHECKING:
    from engine.model.pod import Pod

CORES = {"cpu": "10"}  # 100 millicores are one percent


def predicted(one: Pod, **args: Any) -> int:  # noqa: ANN401 (any args of the plugin)
    return TargetLoadPackingArgs.model_validate(args).prediction.of(one.shape)


def scores(one: Pod, pods: list[Pod], age: int = 0) -> dict[str, int]:
    """Return the scores of a node with 2 of 10 cores used, by a report of so many seconds ago."""
    args = TargetLoadPackingArgs()
    rule = TargetLoadPackingScore(args)
    reports = [report("a", {"cpu": 2000}, age=age)]
    view = cluster([node("a", **CORES)], pods, reports, (args.prediction,))
    return by_node(view, rule.normalize(rule.score(Cycle(one, view, NOW)).values))


def bound(seconds: int, cpu: str = "1") -> Pod:
    """Return a pod on node `a` with a limit, scheduled so many seconds ago."""
    time = f"{np.datetime64(seconds_ago(seconds), 'us')}Z"
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
    return pod("p", "a", limits={"cpu": cpu}, conditions=[condition])


def test_points_rise_to_the_target_drop_and_fall() -> None:
    # 20 %: 60 * 20/40 + 40 = 70; 70 %: 40 * 30/60 = 20; 40.5 %: 40 * 59.5/60 = 39.67
    percents = np.array([0.0, 20, 40, 40.5, 70, 100, 100.1])
    assert points(percents, 40).tolist() == [40, 70, 100, 40, 20, 0, 0]


def test_half_points_are_rounded_up() -> None:
    assert points(np.array([25.0, 27.0]), 40).tolist() == [78, 81]  # 77.5 and 80.5


def test_a_target_of_all_never_falls() -> None:
    assert points(np.array([0.0, 100, 101]), 100).tolist() == [100, 100, 0]


def test_a_container_is_predicted_by_its_limit_else_its_request_else_the_default() -> None:
    assert predicted(pod(limits={"cpu": "0"}, requests={"cpu": "0"})) == 0
    assert predicted(pod(limits={"cpu": "3"}, requests={"cpu": "1"})) == 3000
    assert predicted(pod(requests={"cpu": "1"})) == 1500
    assert predicted(pod(limits={"memory": "1Gi"})) == 1000
    assert predicted(pod(), defaultRequests={}) == 0
    assert predicted(pod(), defaultRequests={"cpu": "200m"}) == 200


def test_each_request_is_rounded_by_itself_and_overhead_added() -> None:
    resources = {"resources": {"requests": {"cpu": "5m"}}}
    spec = {"containers": [resources] * 3, "overhead": {"cpu": "7m"}}
    one = pod_from({"spec": spec})
    assert predicted(one, defaultRequestsMultiplier="0.5") == 3 * 3 + 7  # 2.5 is rounded to 3


def test_a_huge_multiplier_does_not_overflow() -> None:
    assert predicted(pod(requests={"cpu": "1"}), defaultRequestsMultiplier="1e308") == 2**48


def test_a_pod_that_the_report_cannot_know_is_missing_from_its_usage() -> None:
    # 2 cores used and 1 for the pod: 30 % is 85 points; another core on top: 40 % is 100.
    one = pod(limits={"cpu": "1"})
    assert scores(one, []) == {"a": 85}
    assert scores(one, [bound(59)]) == {"a": 100}
    assert scores(one, [bound(60)]) == {"a": 85}
    assert scores(one, [bound(100)], age=41) == {"a": 100}


def test_a_pod_that_reserves_room_uses_nothing() -> None:
    annotation = {"scheduling.koordinator.sh/reserve-pod": "true"}
    reserve = pod("p", "a", limits={"cpu": "1"}, metadata={"annotations": annotation})
    assert scores(pod(limits={"cpu": "1"}), [reserve], age=-7200) == {"a": 85}


def test_a_node_without_usage_gets_nothing() -> None:
    args = TargetLoadPackingArgs()
    state = ClusterState()
    state.track_sums((args.prediction,))
    state.set_node(node("a", **CORES))
    scored = TargetLoadPackingScore(args).score(Cycle(pod(), state.view(), NOW))
    assert scored.values.tolist() == [0]


def test_a_target_of_nothing_is_the_default() -> None:
    for target in (0, -5, None):
        args = TargetLoadPackingArgs.model_validate({"targetUtilization": target})
        assert args.target_utilization == 40


@pytest.mark.parametrize(
    "args",
    [
        {"defaultRequestsMultiplier": "much"},
        {"defaultRequestsMultiplier": "1_0"},
        {"defaultRequestsMultiplier": "1e999"},
        {"defaultRequestsMultiplier": 1.5},
        {"defaultRequests": {"cpu": "lots"}},
        {"targetUtilization": 101},
        {"targetUtilization": "40"},
        {"target": 40},
    ],
)
def test_args_that_upstream_cannot_use_are_refused(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TargetLoadPackingArgs.model_validate(args)
