from __future__ import annotations

import re
from typing import Any

import pytest

from engine.errors import QuantityError
from engine.model import api
from engine.model.pod import pod_of
from engine.model.pod_shape import PodShape
from engine.model.resources import (
    amounts,
    pod_limits,
    pod_requests,
    requests_without_overhead,
)
from engine.model.shape_computation import ShapeCache, requests_of, shape_of
from tests.builders import pod_from


def _shape(*requests: api.ResourceList) -> PodShape:
    containers = [
        api.Container(resources=api.ResourceRequirements(requests=each)) for each in requests
    ]
    return shape_of(api.Pod(spec=api.PodSpec(containers=containers)))


def test_pods_of_one_template_share_one_shape() -> None:
    assert _shape({"cpu": "1"}) is _shape({"cpu": "1"})


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([{"cpu": "1m"}] * 1_000, id="containers"),
        pytest.param([{f"example.com/{n}": "1" for n in range(1_000)}], id="resources"),
    ],
)
def test_the_shape_of_a_pod_of_hostile_size_is_right_and_not_kept(
    requests: list[api.ResourceList],
) -> None:
    shape, again = _shape(*requests), _shape(*requests)

    assert shape is not again
    assert shape.requests == again.requests
    assert sum(shape.requests.values()) == 1_000


@pytest.mark.parametrize("amount", [10**30, float("nan")])
def test_a_bare_number_of_any_size_is_read_as_it_is_elsewhere(amount: float) -> None:
    try:
        expected: object = amounts({"cpu": amount})
    except QuantityError as error:
        with pytest.raises(QuantityError, match=re.escape(str(error))):
            _shape({"cpu": amount})
    else:
        assert _shape({"cpu": amount}).requests == expected


def test_half_a_character_in_a_label_makes_no_other_shape() -> None:
    labels = {"koordinator.sh/qosClass": "\ud800"}
    shape = shape_of(api.Pod(metadata=api.ObjectMeta(labels=labels)))
    assert shape.requests == {}


def test_a_pod_has_the_images_of_all_its_containers_and_where_room_is_made_for_it() -> None:
    spec = api.PodSpec(
        containers=[api.Container(image="app"), api.Container()],
        init_containers=[api.Container(image="app")],
    )
    pod = pod_of(api.Pod(spec=spec, status=api.PodStatus(nominated_node_name="a")))
    assert pod.images == ("app", "", "app")
    assert pod.nominated_node_name == "a"
    assert pod_of(api.Pod()).images == ()


def hostile(number: int, cache: ShapeCache) -> PodShape:
    requests: api.ResourceList = {f"{number}.io/{name}": f"{name}" for name in range(99)}
    resources = api.ResourceRequirements(requests=requests)
    return shape_of(
        api.Pod(spec=api.PodSpec(containers=[api.Container(resources=resources)])), cache
    )


def test_shapes_of_hostile_pods_are_held_within_bounds() -> None:
    cache, most = ShapeCache(100 * 2**10), 0
    for number in range(30):
        hostile(number, cache)
        most = max(most, cache.held.size)
    assert 2 * hostile(0, cache).size < most <= 100 * 2**10


def test_templates_share_a_shape_while_pods_of_them_exist_whatever_passes_meanwhile() -> None:
    cache = ShapeCache(100 * 2**10)
    existing = hostile(0, cache)
    for number in range(1, 30):
        hostile(number, cache)
    assert hostile(0, cache) is existing


def test_of_a_large_pod_what_quota_counts_is_exact() -> None:
    containers = [
        api.Container(
            name=str(number),
            resources=api.ResourceRequirements(
                requests={"cpu": f"0.{number}", f"example.com/{number}": "1"}, limits={"cpu": "7"}
            ),
        )
        for number in range(1, 1_000)
    ]
    wire = api.Pod(
        spec=api.PodSpec(containers=containers, init_containers=containers, overhead={"cpu": "1m"})
    )
    shape = shape_of(wire)
    assert shape.requests == requests_of(wire) == pod_requests(wire)
    assert shape.limits == pod_limits(wire) == {"cpu": 999 * 7_000 + 1}
    assert shape.bare_requests == requests_without_overhead(wire)
    assert shape.effective_limits["cpu"] == 999 * 7_000 + 1
    assert shape.effective_limits["example.com/1"] == 1


@pytest.mark.parametrize("count", [0, 1, 9, 90])
def test_requests_alone_are_those_of_the_shape(count: int) -> None:
    requirements = api.ResourceRequirements(requests={"cpu": "100m", "memory": "1Mi"})
    wire = api.Pod(spec=api.PodSpec(containers=[api.Container(resources=requirements)] * count))
    assert requests_of(wire) == shape_of(wire).requests


@pytest.mark.parametrize(
    ("spec", "has_claims"),
    [
        ({}, False),
        ({"volumes": [{"name": "token", "projected": {"sources": []}}]}, False),
        ({"volumes": [{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "data"}}]}, True),
        ({"volumes": [{"ephemeral": {"volumeClaimTemplate": {}}}]}, True),
        ({"volumes": [{"csi": {"driver": "example.com"}}]}, True),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, True),
    ],
)
def test_a_pod_has_claims_where_volumes_or_devices_may_tie_it_to_nodes(
    spec: dict[str, Any], *, has_claims: bool
) -> None:
    assert pod_from({"spec": spec}).has_claims is has_claims
