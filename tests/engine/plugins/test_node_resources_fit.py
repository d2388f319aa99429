from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.model.node import IMPLICIT_DOMAIN, DeviceClass
from engine.plugins.base import PASS, Cycle
from engine.plugins.lib.arithmetic import broken_line
from engine.plugins.node_resources_fit import PLUGIN, NodeResourcesFitArgs
from tests.conformance.cluster import NOW, cluster_of, incoming

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.view import ClusterView


_ROOM = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10"}


def _containers(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"resources": {"requests": its}} for its in requests]}


def _pod(*requests: dict[str, Any]) -> Pod:
    return incoming({"pod": {"spec": _containers(*requests)}})


def _cluster(*bound: dict[str, Any], **nodes: dict[str, Any]) -> ClusterView:
    """Return nodes by what they offer; each of `bound` is what a pod on the first one requests."""
    first = next(iter(nodes))
    return cluster_of(
        {
            "nodes": [
                {"metadata": {"name": name}, "status": {"allocatable": offered}}
                for name, offered in nodes.items()
            ],
            "pods": [
                {
                    "metadata": {"name": f"p{i}"},
                    "spec": {"nodeName": first, **_containers(requests)},
                }
                for i, requests in enumerate(bound)
            ],
        }
    )


def _args(**args: Any) -> NodeResourcesFitArgs:  # noqa: ANN401 (JSON)
    return NodeResourcesFitArgs.model_validate(args)


def _strategy(kind: str, *resources: tuple[str, int], **more: Any) -> NodeResourcesFitArgs:  # noqa: ANN401 (JSON)
    listed = [{"name": name, "weight": weight} for name, weight in resources]
    return _args(scoringStrategy={"type": kind, "resources": listed, **more})


def _rejections(
    pod: Pod, view: ClusterView, args: NodeResourcesFitArgs | None = None
) -> list[tuple[str, ...]]:
    assert PLUGIN.filter
    rule = PLUGIN.filter(args or _args())
    codes = rule.filter(Cycle(pod, view, NOW)).codes.tolist()
    return [() if code == PASS else rule.reasons(code, Cycle(pod, view, NOW)) for code in codes]


def test_what_devices_may_provide_rejects_only_nodes_that_offer_some_of_it() -> None:
    gpu = DeviceClass(name="gpu", resource="x.com/gpu")
    used = {"x.com/gpu": "1"}
    view = _cluster(used, plugin={**_ROOM, "x.com/gpu": "1"}, devices=_ROOM)
    view = replace(view, extras={(DeviceClass, gpu.key): gpu})
    insufficient = ("Insufficient x.com/gpu",)
    assert _rejections(_pod({"x.com/gpu": "1"}), view) == [insufficient, ()]
    # Of the same kind by its name alone; of another resource there is no class.
    assert _rejections(_pod({f"{IMPLICIT_DOMAIN}nic": "1"}), view) == [(), ()]
    assert _rejections(_pod({"x.com/nic": "1"}), view) == [("Insufficient x.com/nic",)] * 2
    # Nothing else that they lack is forgiven.
    assert _rejections(_pod({"cpu": "9", "x.com/gpu": "1"}), view)[1] == ("Insufficient cpu",)


def test_an_incoming_pod_is_scored_by_its_containers_and_counts_with_its_own_requests() -> None:
    spec = {**_containers({"cpu": "1"}), "resources": {"requests": {"cpu": "3"}}}
    pod = incoming({"pod": {"spec": spec}})
    least = _strategy("LeastAllocated", ("cpu", 1))
    # (4 - 1) / 4 by the container, where 3 of 4 cores would be gone.
    assert _scores(pod, _cluster(n=_ROOM), least) == [75]
    assert _rejections(pod, _cluster({"cpu": "2"}, n=_ROOM)) == [("Insufficient cpu",)]


def _scores(pod: Pod, view: ClusterView, args: NodeResourcesFitArgs) -> list[int]:
    assert PLUGIN.score
    scores = PLUGIN.score(args).score(Cycle(pod, view, NOW))
    assert scores.faults is None
    values: list[int] = scores.values.tolist()
    return values


# The filter.


def test_a_pod_fits_where_what_it_requests_is_exactly_free() -> None:
    view = _cluster({"cpu": "1", "memory": "1Gi"}, a=_ROOM)
    assert _rejections(_pod({"cpu": "3", "memory": "7Gi"}), view) == [()]
    assert _rejections(_pod({"cpu": "3001m", "memory": "7Gi"}), view) == [("Insufficient cpu",)]


def test_all_that_falls_short_is_named_in_order() -> None:
    view = _cluster(a=_ROOM | {"pods": "0"}, b=_ROOM)
    greedy = _pod(
        {"x.com/b": 1, "x.com/a": 1, "ephemeral-storage": "1Ti", "memory": "1Ti", "cpu": 99}
    )
    short = ("cpu", "memory", "ephemeral-storage", "x.com/a", "x.com/b")
    insufficient = tuple(f"Insufficient {name}" for name in short)
    assert _rejections(greedy, view) == [("Too many pods", *insufficient), insufficient]


def test_a_pod_that_requests_nothing_needs_only_a_place() -> None:
    overcommitted = _cluster({"cpu": "9", "memory": "9Gi"}, a=_ROOM, b={})
    assert _rejections(_pod({"cpu": 0, "x.com/a": 0}), overcommitted) == [(), ("Too many pods",)]


def test_true_requests_count_and_not_the_defaults_of_scoring() -> None:
    assert _rejections(_pod({}), _cluster(a={"pods": 1})) == [()]


def test_what_the_scheduler_counts_nowhere_is_not_asked_for() -> None:
    assert _rejections(_pod({"gpu": 5}), _cluster(a=_ROOM)) == [()]


def test_ignored_resources_and_groups_are_not_asked_for() -> None:
    pod = _pod({"x.com/a": 1, "x.com/b": 1, "y.com/c": 1, "hugepages-2Mi": "2Mi"})
    view = _cluster(a=_ROOM)
    ignoring = _args(ignoredResources=["x.com/a", "hugepages-2Mi"], ignoredResourceGroups=["y.com"])
    # Huge pages are no extended resource and so cannot be ignored.
    assert _rejections(pod, view, ignoring) == [
        ("Insufficient hugepages-2Mi", "Insufficient x.com/b")
    ]


def test_more_resources_than_bits_still_keep_a_pod_away() -> None:
    view = _cluster(a=_ROOM | {f"x.com/r{i:03}": 1 for i in range(99)})
    wanted = {f"x.com/r{i:03}": 1 for i in range(100)}
    assert _rejections(_pod(wanted), view) == [("Insufficient extended resources",)]
    (reasons,) = _rejections(_pod(wanted | {"x.com/r000": 2, "x.com/r060": 2}), view)
    assert reasons == (
        "Insufficient x.com/r000",
        "Insufficient x.com/r060",
        "Insufficient extended resources",
    )
    assert _rejections(_pod({name: 1 for name in wanted if name != "x.com/r099"}), view) == [()]


def test_an_absurd_request_neither_fits_nor_wraps() -> None:
    view = _cluster(a=_ROOM, b={"pods": 1, "memory": "8Ei"})
    pod = _pod({"memory": "7Ei", "cpu": "9E"}, {"memory": "7Ei"})
    assert _rejections(pod, view)[0] == ("Insufficient cpu", "Insufficient memory")
    assert _scores(pod, view, _args()) == [0, 0]


def test_a_negative_request_gains_nothing() -> None:
    pod = _pod({"cpu": "-900", "memory": "-1Gi"})
    view = _cluster(a=_ROOM)
    shape = [{"utilization": 0, "score": 3}]
    along = _strategy(
        "RequestedToCapacityRatio", ("cpu", 1), requestedToCapacityRatio={"shape": shape}
    )
    assert _rejections(pod, view) == [()]
    assert _scores(pod, view, _args()) == [100]
    assert _scores(pod, view, along) == [30]


# The scores.


def test_least_allocated_is_the_mean_of_what_is_left() -> None:
    view = _cluster({"cpu": "1", "memory": "2Gi"}, a=_ROOM, b=_ROOM)
    pod = _pod({"cpu": "1500m", "memory": "1Gi"})
    # a: cpu (4000 - 1000 - 1500) * 100 / 4000 = 37 (37.5), memory (8 - 3) * 100 / 8 = 62 (62.5);
    #    (37 + 62) / 2 = 49 (49.5).  b: cpu 62, memory 87; 149 / 2 = 74.
    assert _scores(pod, view, _args()) == [49, 74]


def test_containers_that_request_nothing_count_a_little() -> None:
    offered = {"cpu": "1", "memory": "1000Mi", "pods": 9}
    view = _cluster({}, a=offered, b=offered)
    # 100m and 200Mi for the pod, and on a for the other pod as well.
    assert _scores(_pod({}), view, _strategy("MostAllocated", ("cpu", 1))) == [20, 10]
    assert _scores(_pod({}), view, _strategy("MostAllocated", ("memory", 1))) == [40, 20]


def test_most_allocated_weighs_and_stops_at_full() -> None:
    view = _cluster({"cpu": "3", "memory": "1Gi"}, a=_ROOM, b=_ROOM)
    pod = _pod({"cpu": "3", "memory": "1Gi"})
    # a: cpu min(6, 4) * 100 / 4 = 100, memory 25; (3 * 100 + 25) / 4 = 81 (81.25)
    # b: cpu 75, memory 12 (12.5); (3 * 75 + 12) / 4 = 59 (59.25)
    assert _scores(pod, view, _strategy("MostAllocated", ("cpu", 3), ("memory", 1))) == [81, 59]


def test_devices_count_only_where_they_are_and_for_pods_that_want_some() -> None:
    with_gpu = _ROOM | {"x.com/gpu": 4}
    view = _cluster(a=with_gpu, b=_ROOM)
    args = _strategy("LeastAllocated", ("cpu", 1), ("x.com/gpu", 1))
    assert _scores(_pod({"cpu": 1}), view, args) == [75, 75]
    # a: (75 + 75) / 2, b: cpu alone
    assert _scores(_pod({"cpu": 1, "x.com/gpu": 1}), view, args) == [75, 75]
    # Now the mean on a is that of 75 and 25.
    assert _scores(_pod({"cpu": 1, "x.com/gpu": 3}), view, args) == [50, 75]


def test_ephemeral_storage_counts_true_requests() -> None:
    view = _cluster({"ephemeral-storage": "5Gi"}, a=_ROOM, b=_ROOM)
    args = _strategy("LeastAllocated", ("ephemeral-storage", 1), ("pods", 9), ("gpu", 9))
    # 5 of 10 are left on a, all on b; pods and unprefixed names take no part.
    assert _scores(_pod({}), view, args) == [50, 100]


def test_a_shape_is_followed_and_zeros_drop_out_of_the_mean() -> None:
    view = _cluster({"cpu": "1"}, a=_ROOM, b=_ROOM)
    pod = _pod({"cpu": "1", "memory": "4Gi"})
    shape = [{"utilization": 50, "score": 0}, {"utilization": 100, "score": 10}]
    args = _strategy(
        "RequestedToCapacityRatio",
        ("cpu", 2),
        ("memory", 1),
        requestedToCapacityRatio={"shape": shape},
    )
    # a: cpu 50 % -> 0, drops out; memory (4 Gi + 200 Mi) of 8 Gi = 52 % -> 100 * 2 / 50 = 4.
    # b: cpu 25 % -> 0; memory 50 % -> 0; nothing is left.
    assert _scores(pod, view, args) == [4, 0]


def test_the_mean_along_a_shape_is_rounded_half_up() -> None:
    view = _cluster(a={"cpu": "100", "memory": "100", "pods": 1})
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    args = _strategy(
        "RequestedToCapacityRatio",
        ("cpu", 1),
        ("memory", 1),
        requestedToCapacityRatio={"shape": shape},
    )
    # (20 + 21) / 2 = 20.5
    assert _scores(_pod({"cpu": "20", "memory": "21"}), view, args) == [21]


def test_without_resources_there_is_nothing_to_score_by() -> None:
    view = _cluster(a=_ROOM, b=_ROOM)
    assert PLUGIN.score
    rule = PLUGIN.score(_strategy("MostAllocated"))
    scores = rule.score(Cycle(_pod({}), view, NOW))
    assert scores.faults is not None
    assert scores.faults.tolist() == [True, True]
    assert rule.fault(Cycle(_pod({}), view, NOW), 0) == "resources not found"


def test_a_descending_line_truncates_toward_zero() -> None:
    # 10 + (0 - 10) * (50 - 40) / 60 = 10 - 100 / 60 = 10 - 1; a floor would take off 2.
    assert broken_line([(40, 10), (100, 0)], 50) == 9


@given(
    st.dictionaries(st.integers(0, 100), st.integers(0, 100), min_size=1, max_size=5),
    st.integers(-5, 105),
)
def test_a_line_stays_within_one_of_the_exact_one(heights: dict[int, int], at: int) -> None:
    points = sorted(heights.items())
    below = [point for point in points if point[0] <= at] or points[:1]
    above = [point for point in points if point[0] >= at] or points[-1:]
    (left, low), (right, high) = below[-1], above[0]
    run = Fraction(at - left, right - left) if right > left else Fraction(0)
    assert abs(broken_line(points, at) - (low + (high - low) * run)) < 1


# The args.


def test_the_defaults_are_those_of_the_scheduler() -> None:
    strategy = _args().scoring_strategy
    assert strategy.type == "LeastAllocated"
    assert [(spec.name, spec.weight) for spec in strategy.resources] == [("cpu", 1), ("memory", 1)]


@pytest.mark.parametrize(
    ("args", "place", "message"),
    [
        ({"ignoredResources": ["x.com/a", "a b"]}, ("ignoredResources", 1), "not the name"),
        (
            {"ignoredResourceGroups": ["x.com/a"]},
            ("ignoredResourceGroups", 0),
            "resource group name can't contain '/'",
        ),
        (
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}},
            ("scoringStrategy", "resources", 0, "weight"),
            r"resource weight of cpu not in valid range \(0, 100\]",
        ),
        ({"scoringStrategy": {"type": "Least"}}, ("scoringStrategy", "type"), "LeastAllocated"),
        (
            {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
            ("scoringStrategy",),
            "`requestedToCapacityRatio` is required for type RequestedToCapacityRatio",
        ),
        (
            {"scoringStrategy": {"requestedToCapacityRatio": {"shape": [{}]}}},
            ("scoringStrategy", "requestedToCapacityRatio", "shape", 0, "utilization"),
            "required",
        ),
        (
            {
                "scoringStrategy": {
                    "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 1}]}
                }
            },
            ("scoringStrategy",),
            "`requestedToCapacityRatio` is only for type RequestedToCapacityRatio",
        ),
    ],
)
def test_mistakes_in_the_args_are_refused_where_they_stand(
    args: dict[str, Any], place: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(ValidationError, match=message) as invalid:
        _args(**args)
    assert invalid.value.errors()[0]["loc"] == place


@pytest.mark.parametrize(
    ("points", "place", "message"),
    [
        ([], (), "at least one point must be specified"),
        ([(5, 1), (5, 2)], (), "sorted in increasing order"),
        ([(-1, 1)], (0, "utilization"), r"not in valid range \[0, 100\]"),
        ([(0, 11)], (0, "score"), r"not in valid range \[0, 10\]"),
    ],
)
def test_a_shape_must_be_a_line_from_left_to_right(
    points: list[tuple[int, int]], place: tuple[str | int, ...], message: str
) -> None:
    shape = [{"utilization": at, "score": score} for at, score in points]
    with pytest.raises(ValidationError, match=message) as invalid:
        _strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape})
    loc = ("scoringStrategy", "requestedToCapacityRatio", "shape", *place)
    assert invalid.value.errors()[0]["loc"] == loc


def test_balanced_makes_the_share_of_requests_most_even() -> None:
    # x = 0.25 and 0, m = 0.125, and the pod takes 0.25:
    # 50 - 50 * (2 * 0.125 + 0.25) = 25 and 50 - 50 * (2 * -0.125 + 0.25) = 50.
    view = _cluster({"cpu": "1"}, full=_ROOM, empty=_ROOM)
    assert PLUGIN.score
    rule = PLUGIN.score(_strategy("Balanced", ("cpu", 1)))
    assert rule.score(Cycle(_pod({"cpu": "1"}), view, NOW)).values.tolist() == [25, 50]
