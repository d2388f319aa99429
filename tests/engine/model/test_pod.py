from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from engine.errors import QuantityError
from engine.model import api
from engine.model.hold import HOLD_GATE
from engine.model.pod import (
    LONGEST_TRAITS,
    REQUIRED,
    Pod,
    decoded_traits,
    is_never_held,
    pod_of,
    traits_of,
)
from engine.model.pod_shape import PodShape, ShapeCache, requests_of, shape_of
from engine.model.resources import (
    amounts,
    pod_limits,
    pod_requests,
    requests_without_overhead,
)
from tests.builders import pod_from
from tests.engine.measured_cluster import pod


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


Json = dict[str, Any]


def term(**more: object) -> Json:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, **more}


def preferring(side: str, *weights: int, **more: object) -> Pod:
    terms = [{"weight": weight, "podAffinityTerm": term(**more)} for weight in weights]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return pod("p", affinity={side: preferred}, metadata={"labels": {"version": "1"}})


@pytest.mark.parametrize(("side", "sign"), [("podAffinity", 1), ("podAntiAffinity", -1)])
def test_preferred_terms_count_for_or_against_a_node(side: str, sign: int) -> None:
    # Weights that the API server refuses, of any size, are left out.
    weights = [1, 100, 0, 101, -1, 2**70]
    found = decoded_traits(traits_of(preferring(side, *weights))).attraction
    assert [each.weight for each in found] == [sign * 1, sign * 100]


def test_a_required_term_of_affinity_makes_a_node_better() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term()]}
    attracting = pod("p", affinity={"podAffinity": required})
    (found,) = decoded_traits(traits_of(attracting)).attraction
    assert (found.weight, found.pod_affinity_term.topology_key) == (REQUIRED, "zone")


def test_label_keys_of_a_pod_that_is_not_stored_are_in_its_selectors() -> None:
    (found,) = preferring("podAffinity", 5, matchLabelKeys=["version"]).preferred_pod_affinity
    selector = found.pod_affinity_term.label_selector
    assert selector is not None
    assert [each.values for each in selector.match_expressions or ()] == [["1"]]


def test_what_a_pod_prefers_is_left_out_before_all_else() -> None:
    namespaces = [f"namespace-{i}" for i in range(LONGEST_TRAITS // 10)]
    large = preferring("podAffinity", 5, namespaces=namespaces)
    traits = decoded_traits(traits_of(large))
    assert traits.attraction == ()
    assert traits.labels == {"version": "1"}


def test_constraints_of_topology_spread_are_hard_or_soft() -> None:
    constraints = [
        {"topologyKey": when, "maxSkew": 1, "whenUnsatisfiable": when}
        for when in ("DoNotSchedule", "ScheduleAnyway", "Never")
    ]
    found = pod("p", topologySpreadConstraints=constraints)
    assert [each.topology_key for each in found.topology_spread] == ["DoNotSchedule"]
    assert [each.topology_key for each in found.soft_topology_spread] == ["ScheduleAnyway"]


OURS, THEIRS = {"name": HOLD_GATE}, {"name": "example.org/theirs"}


@pytest.mark.parametrize(
    ("metadata", "spec", "never"),
    [
        ({}, {}, False),
        ({}, {"priority": 999_999_999}, False),
        ({}, {"priority": 1_000_000_000}, True),
        ({}, {"schedulingGates": [OURS]}, False),  # a second round of admission
        ({}, {"schedulingGates": [THEIRS]}, True),
        ({}, {"schedulingGates": [OURS, THEIRS]}, True),
        ({}, {"schedulingGroup": {"podGroupName": "gang"}}, True),
        ({}, {"schedulingGroup": None}, False),
        ({"labels": {"kueue.x-k8s.io/queue-name": "team"}}, {}, True),
        ({"annotations": {"kueue.x-k8s.io/workload": "job"}}, {}, True),
        ({"labels": {"example.org/kueue.x-k8s.io": "no"}}, {}, False),
        # 256 KiB of annotations are possible, and 16 KiB of them are left for ours.
        ({"annotations": {"a": "x" * (240 * 1024 - 1)}}, {}, False),
        ({"annotations": {"a": "x" * 240 * 1024}}, {}, True),
        ({"annotations": {"a": "é" * 120 * 1024}}, {}, True),
    ],
)
def test_only_pods_that_can_wait_for_us_are_held(
    metadata: dict[str, Any], spec: dict[str, Any], *, never: bool
) -> None:
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, api.Pod)
    assert is_never_held(pod_of(pod)) is never
