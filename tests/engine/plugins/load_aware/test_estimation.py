from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import SECOND
from engine.plugins.load_aware.estimation import (
    Estimation,
    deadline,
    estimate,
    estimate_vector,
    windows,
)
from engine.view.axis import GREATEST_AMOUNT
from tests.builders import pod_from
from tests.engine.measured_cluster import GI, pod

if TYPE_CHECKING:
    from engine.model.pod import Pod

PROFILE = Estimation(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70)))
CUSTOM = Estimation(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70)), customize=True)
FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
DEFAULT = {"cpu": 250, "memory": 200 * 1024 * 1024}


def _annotated(**annotations: str) -> Pod:
    return pod(requests={"cpu": "10", "memory": "10Gi"}, metadata={"annotations": annotations})


def _expected(a_pod: Pod, profile: Estimation = PROFILE) -> dict[str, int]:
    return dict(estimate(a_pod.shape, profile))


def test_the_greater_of_limit_and_request_is_scaled_and_rounded() -> None:
    # cpu: 85 % of 3 cores = 2550m; memory: 70 % of 1Gi = 751,619,276.8 -> 751,619,277
    both = pod(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "3"})
    assert _expected(both) == {"cpu": 2550, "memory": 751_619_277}


def test_a_half_rounds_away_from_zero() -> None:
    # 85 % of 250m = 212.5m -> 213m
    assert _expected(pod(requests={"cpu": "250m"}))["cpu"] == 213


def test_a_resize_in_place_has_no_say_before_the_specification_has() -> None:
    resized = {
        "spec": {
            "containers": [
                {"name": "app", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
            ]
        },
        "status": {
            "containerStatuses": [
                {"name": "app", "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "8"}}}
            ]
        },
    }
    a_pod = pod_from(resized)
    assert a_pod.shape.limits["cpu"] == 8000
    assert _expected(a_pod)["cpu"] == 1700  # 85 % of 2 cores


def test_an_estimate_never_exceeds_the_limit() -> None:
    # 85 % of the 8 cores requested = 6800m, but the limit is 2 cores.
    assert _expected(pod(requests={"cpu": "8"}, limits={"cpu": "2"}))["cpu"] == 2000


def test_a_pod_that_asks_for_nothing_is_expected_to_use_the_unscaled_default() -> None:
    assert _expected(pod()) == DEFAULT
    assert _expected(pod(requests={"cpu": "0", "memory": "0"})) == DEFAULT


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (5500, {"cpu": 1700, "memory": 751_619_277}),  # batch: 85 % of 2000 batch milli-cores
        (7500, {"cpu": 0, "memory": 0}),  # mid asks for mid resources; it has no default
        (3500, {"cpu": 0, "memory": 0}),  # free has no resources to ask for at all
        (9500, {"cpu": 3400, "memory": 1_503_238_554}),  # prod: 85 % of 4 cores, 70 % of 2Gi
    ],
)
def test_each_priority_class_asks_under_its_own_names(
    priority: int, expected: dict[str, int]
) -> None:
    requests = {
        "cpu": "4",
        "memory": "2Gi",
        "kubernetes.io/batch-cpu": "2k",
        "kubernetes.io/batch-memory": "1Gi",
    }
    assert _expected(pod(requests=requests, priority=priority)) == expected


def test_a_pods_own_factors_win_where_they_are_honoured() -> None:
    own = _annotated(**{FACTORS: '{"cpu":20,"x.com/gpu":100}'})
    assert _expected(own) == {"cpu": 8500, "memory": 7 * GI}
    assert _expected(own, CUSTOM) == {"cpu": 2000, "memory": 7 * GI, "x.com/gpu": 0}
    # What is not known has no place in the vector.
    assert estimate_vector(own.shape, CUSTOM) == (2000, 7 * GI)


@pytest.mark.parametrize(
    "text", ["", "{}", "bad", '{"cpu":"20"}', '{"cpu":1e400}', f'{{"cpu":{9**999}}}']
)
def test_malformed_or_empty_factors_are_ignored(text: str) -> None:
    own = _annotated(**{FACTORS: text})
    assert _expected(own, CUSTOM) == {"cpu": 8500, "memory": 7 * GI}


def test_wild_factors_stay_within_bounds() -> None:
    own = _annotated(**{FACTORS: f'{{"cpu":{2**63 - 1},"memory":-{2**63}}}'})
    assert _expected(own, CUSTOM) == {"cpu": GREATEST_AMOUNT, "memory": -GREATEST_AMOUNT}


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-200, 300))
def test_an_estimate_lies_between_nothing_and_the_limit(
    request: int, limit: int, factor: int
) -> None:
    profile = Estimation(known=("cpu",), factors=(("cpu", factor),))
    amount = _expected(pod(requests={"cpu": f"{request}m"}, limits={"cpu": f"{limit}m"}), profile)
    if request == limit == 0:
        assert amount["cpu"] == 250
    elif limit and factor >= 0:
        assert 0 <= amount["cpu"] <= limit
    else:
        # Within half a millicore of the exact share.
        assert abs(100 * amount["cpu"] - max(request, limit) * factor) <= 50


def _windows(**annotations: str) -> tuple[int, int]:
    profile = Estimation(
        known=("cpu",),
        factors=(),
        seconds_after_scheduled=600,
        seconds_after_initialized=-5,
        customize=True,
    )
    after_scheduled, after_initialized = windows(profile, _annotated(**annotations).shape)
    return after_scheduled // SECOND, after_initialized // SECOND


def test_a_pods_own_window_replaces_that_of_the_cluster() -> None:
    assert _windows() == (600, 0)  # a negative window is none
    assert _windows(**{AFTER_SCHEDULED: "30", AFTER_INITIALIZED: "7"}) == (30, 7)
    assert _windows(**{AFTER_SCHEDULED: "0"}) == (0, 0)
    assert _windows(**{AFTER_SCHEDULED: "-1"}) == (600, 0)
    assert _windows(**{AFTER_SCHEDULED: "soon"}) == (600, 0)


def test_a_window_of_ages_does_not_wrap() -> None:
    after_scheduled, _ = _windows(**{AFTER_SCHEDULED: "9" * 18})
    assert after_scheduled == 10**10


def test_initialization_begins_the_last_window() -> None:
    assert deadline(10, 0, 100, 5) == 110  # not initialized
    assert deadline(10, 50, 100, 5) == 55
    assert deadline(10, 50, 100, 0) == 110  # no such window
    assert deadline(10, 50, 0, 0) is None
