from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import QuantityError
from engine.model import api
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.pod_shape import PodShape, requests_of, shape_of
from engine.model.quantity import INT64_MAX
from engine.model.resources import (
    AmountsTable,
    ResourceOptions,
    amounts,
    container_cpu,
    container_limits,
    cpu_request,
    effective_limits,
    non_zero_requests,
    peak_limits,
    peak_requests,
    pod_limits,
    pod_requests,
    qos_class,
)
from engine.model.usage import PodUsage, PodUsages


def shape(
    asks: str,
    has: str | None = None,
    allocated: str | None = None,
    *,
    sidecar: bool = False,
    reason: str = "",
) -> PodShape:
    """Return the shape of a pod with one container, or one sidecar, of so much cpu."""
    container: dict[str, Any] = {"name": "app", "resources": {"requests": {"cpu": asks}}}
    status: dict[str, Any] = {"name": "app"}
    if has is not None:
        status["resources"] = {"requests": {"cpu": has}}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    pod: dict[str, Any] = {
        "spec": {"containers": [container]},
        "status": {"containerStatuses": [status]},
    }
    if sidecar:
        pod = {
            "spec": {"initContainers": [{**container, "restartPolicy": "Always"}]},
            "status": {"initContainerStatuses": [status]},
        }
    if reason:
        pod["status"]["conditions"] = [{"type": "PodResizePending", "reason": reason}]
    return shape_of(msgspec.convert(pod, api.Pod))


def test_a_pod_that_has_what_it_asks_for_has_the_shape_of_its_template() -> None:
    assert shape("2", "2", "2") is shape("2", "2") is shape("2")


def test_while_it_is_resized_a_pod_counts_for_what_is_greater() -> None:
    assert shape("4", "2", "2").requests == {"cpu": 4000}  # asked for, not given yet
    assert shape("2", "4", "4").requests == {"cpu": 4000}  # not given back yet
    assert shape("2", "2", "3").requests == {"cpu": 3000}  # allocated, not in force yet
    assert shape("1", "4", sidecar=True).requests == {"cpu": 4000}
    assert shape("50m", "80m").non_zero_requests == {"cpu": 80, "memory": 200 * 2**20}


def test_from_1_37_on_the_sums_over_the_containers_are_compared() -> None:
    grows = {"name": "a", "resources": {"requests": {"cpu": "2"}}}
    shrinks = {"name": "b", "resources": {"requests": {"cpu": "1"}}}
    statuses = [{**grows, **shrinks, "name": "a"}, {**shrinks, **grows, "name": "b"}]
    pod = msgspec.convert(
        {
            "spec": {"containers": [grows, shrinks]},
            "status": {"containerStatuses": statuses},
        },
        api.Pod,
    )
    # max(2, 1) + max(1, 2), and max(2 + 1, 1 + 2).
    assert shape_of(pod).requests == {"cpu": 4000}
    assert shape_of(pod, kubernetes=KubernetesVersion(1, 37)).requests == {"cpu": 3000}


def pod_shape(
    asks: str,
    has: str | None = None,
    allocated: str | None = None,
    *,
    side: str = "requests",
    reason: str = "",
) -> PodShape:
    """Return the shape of a pod that itself names so much cpu, with a container of 1."""
    container = {"name": "app", "resources": {side: {"cpu": "1"}}}
    status: dict[str, Any] = {}
    if has is not None:
        status["resources"] = {side: {"cpu": has}}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "reason": reason}]
    spec = {"containers": [container], "resources": {side: {"cpu": asks}}}
    return shape_of(msgspec.convert({"spec": spec, "status": status}, api.Pod))


def test_a_pod_that_itself_has_what_it_asks_for_has_the_shape_of_its_template() -> None:
    assert pod_shape("2", "2", "2") is pod_shape("2", "2") is pod_shape("2")


def test_while_a_pod_itself_is_resized_it_counts_for_what_is_greater() -> None:
    assert pod_shape("4", "2", "2").requests == {"cpu": 4000}  # asked for, not given yet
    assert pod_shape("2", "4", "4").requests == {"cpu": 4000}  # not given back yet
    assert pod_shape("2", "2", "3").requests == {"cpu": 3000}  # allocated, not in force yet
    assert pod_shape("2", None, "3").requests == {"cpu": 2000}  # upstream needs `resources`
    assert pod_shape("2", "4", "4").spec_requests == {"cpu": 2000}
    assert pod_shape("2", "4", side="limits").limits == {"cpu": 4000}
    assert pod_shape("4", "2", side="limits").limits == {"cpu": 4000}


def test_only_what_a_pod_itself_asks_for_is_resized() -> None:
    # Upstream goes by the names in the specification.
    pod = {
        "spec": {"containers": [], "resources": {"requests": {"cpu": "1"}}},
        "status": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
    }
    assert shape_of(msgspec.convert(pod, api.Pod)).requests == {"cpu": 1000}


def test_a_resize_that_is_infeasible_counts_for_quota_alone() -> None:
    of_pod = shape("8", "2", "3", reason="Infeasible")
    assert of_pod.requests == {"cpu": 3000}  # max(2, 3): the node never provides the 8
    assert of_pod.non_zero_requests == {"cpu": 3000, "memory": 200 * 2**20}
    assert of_pod.quota_requests == {"cpu": 8000}
    assert shape("8", "2", "2", reason="Deferred").requests == {"cpu": 8000}
    assert shape("8", "2", "2", reason="Infeasible", sidecar=True).requests == {"cpu": 2000}


def test_an_infeasible_resize_of_a_pod_itself_counts_for_quota_alone() -> None:
    of_pod = pod_shape("8", "2", "3", reason="Infeasible")
    assert (of_pod.requests, of_pod.quota_requests) == ({"cpu": 3000}, {"cpu": 8000})
    # Limits are not allocated, only actuated.
    assert pod_shape("8", "2", side="limits", reason="Infeasible").limits == {"cpu": 2000}


def test_a_large_pod_is_charged_what_it_is_resized_to() -> None:
    app = {"name": "app", "resources": {"requests": {"cpu": "8"}}}
    more = {f"example.com/{number}": "1" for number in range(2_000)}
    large = {"name": "large", "resources": {"requests": more}}
    status = {
        "containerStatuses": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}],
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
    }
    pod = msgspec.convert({"spec": {"containers": [app, large]}, "status": status}, api.Pod)
    assert requests_of(pod)["cpu"] == shape_of(pod).quota_requests["cpu"] == 8000
    assert shape_of(pod).requests["cpu"] == 2000


def test_an_app_container_and_a_sidecar_are_resized_each_by_itself() -> None:
    cpu = {"app": "2", "proxy": "100m", "setup": "9"}
    app, proxy, setup = (
        {"name": name, "resources": {"requests": {"cpu": amount}, "limits": {"cpu": amount}}}
        for name, amount in cpu.items()
    )
    spec = {"containers": [app], "initContainers": [{**proxy, "restartPolicy": "Always"}]}

    # The app has 3 where 2 are requested: 3000 + 100.
    growing = {"containerStatuses": [{**app, "resources": amounts_of("3")}]}
    assert both_of(spec, growing) == (3100, 3100)
    # The sidecar has 500m where 100m are requested: 2000 + 500.
    shrinking = {"initContainerStatuses": [{**proxy, "resources": amounts_of("500m")}]}
    assert both_of(spec, shrinking) == (2500, 2500)
    assert both_of(spec, growing | shrinking) == (3500, 3500)
    # An ordinary init container before the sidecar does not shift it: max(9000, 3100).
    spec["initContainers"].insert(0, setup)
    assert both_of(spec, growing) == (9000, 9000)


def amounts_of(cpu: str) -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}


def both_of(spec: dict[str, Any], status: dict[str, Any]) -> tuple[int, int]:
    """Return request and limit of cpu, as the shape has them."""
    found = shape_of(msgspec.convert({"spec": spec, "status": status}, api.Pod))
    return found.requests["cpu"], found.limits["cpu"]


NAMES = st.sampled_from(["cpu", "memory", "example.com/gpu"])
AMOUNTS = st.dictionaries(NAMES, st.integers(-(2**63) + 1, 2**63 - 1))
KEYS = st.text(max_size=3)


@given(st.dictionaries(KEYS, AMOUNTS))
def test_a_table_reads_as_what_it_was_made_from(amounts: dict[str, dict[str, int]]) -> None:
    table = AmountsTable(amounts)
    assert table == amounts
    assert list(table) == sorted(amounts)
    assert len(table) == len(amounts)


@given(st.dictionaries(KEYS, st.builds(PodUsage, AMOUNTS, st.booleans())))
def test_packed_usage_of_pods_reads_as_what_it_was_made_from(usages: dict[str, PodUsage]) -> None:
    assert PodUsages(usages) == usages


def test_what_is_not_in_a_table_is_not_found() -> None:
    table, usages = AmountsTable({"a": {"cpu": 1}}), PodUsages({})
    assert table.get("b") is None
    assert usages.get("b") is None
    with pytest.raises(KeyError):
        table["b"]
    with pytest.raises(KeyError):
        usages["b"]


MI = 1024 * 1024
GI = 1024 * MI

Lists = dict[str, Any]


def _pod(status: Lists | None = None, **spec: Any) -> api.Pod:  # noqa: ANN401 (JSON)
    return msgspec.convert({"spec": spec, "status": status or {}}, api.Pod)


def _asks(name: str = "c", **requests: str) -> Lists:
    return {"name": name, "resources": {"requests": requests}}


def _limited(name: str = "c", **limits: str) -> Lists:
    return {"name": name, "resources": {"limits": limits}}


def _sidecar(container: Lists) -> Lists:
    return container | {"restartPolicy": "Always"}


def test_containers_add_up_and_an_absent_name_stays_absent() -> None:
    pod = _pod(containers=[_asks(cpu="250m", memory="1Gi"), _asks(cpu="1"), {"name": "idle"}])
    assert pod_requests(pod) == {"cpu": 1250, "memory": GI}
    assert pod_limits(pod) == {}


def test_an_explicit_zero_is_not_absent() -> None:
    assert pod_requests(_pod(containers=[_asks(cpu="0")])) == {"cpu": 0}


def test_fractions_are_rounded_once_after_the_sum() -> None:
    # 2 * 322,122,547.2 = 644,245,094.4; rounding each container would give one byte more
    pod = _pod(containers=[_asks(memory="0.3Gi"), _asks(memory="0.3Gi")])
    assert pod_requests(pod) == {"memory": 644_245_095}


def test_the_greatest_init_container_sets_a_floor_for_each_resource() -> None:
    # cpu: max(1 + 2, 5) = 5; memory: max(4Gi, 1Gi) = 4Gi
    pod = _pod(
        containers=[_asks(cpu="1"), _asks(cpu="2", memory="4Gi")],
        initContainers=[_asks(cpu="5"), _asks(memory="1Gi")],
    )
    assert pod_requests(pod) == {"cpu": 5000, "memory": 4 * GI}


@pytest.mark.parametrize(
    ("init", "cores"),
    [
        # the sidecar runs beside the init container: 2 + 9 = 11 over 1 + 2 = 3
        ([_sidecar(_asks(cpu="2")), _asks(cpu="9")], 11),
        # the init container has finished before the sidecar starts: 9 over 3
        ([_asks(cpu="9"), _sidecar(_asks(cpu="2"))], 9),
        # only the first sidecar is there for the init container: 2 + 9 = 11 over 1 + 2 + 4 = 7
        ([_sidecar(_asks(cpu="2")), _asks(cpu="9"), _sidecar(_asks(cpu="4"))], 11),
        # nothing peaks: 1 + 2 + 4
        ([_sidecar(_asks(cpu="2")), _sidecar(_asks(cpu="4"))], 7),
    ],
)
def test_a_sidecar_counts_with_what_starts_after_it(init: list[Lists], cores: int) -> None:
    pod = _pod(containers=[_asks(cpu="1")], initContainers=init)
    assert pod_requests(pod) == {"cpu": cores * 1000}


def test_pod_level_amounts_replace_the_sum_even_when_smaller() -> None:
    pod = _pod(
        containers=[
            {"resources": {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "8"}}}
        ],
        resources={
            "requests": {"cpu": "3", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "2Gi"},
        },
    )
    assert pod_requests(pod) == {"cpu": 3000, "memory": GI, "hugepages-2Mi": 4 * MI}
    assert pod_limits(pod) == {"cpu": 8000, "memory": 2 * GI}
    containers_only = ResourceOptions(skip_pod_level_resources=True)
    assert pod_requests(pod, containers_only) == {"cpu": 4000, "memory": GI}
    pod_only = ResourceOptions(skip_container_level_resources=True)
    assert pod_requests(pod, pod_only) == {"cpu": 3000, "hugepages-2Mi": 4 * MI}


def test_overhead_adds_to_every_request_but_only_to_limits_that_bind() -> None:
    pod = _pod(
        containers=[
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "0"}}}
        ],
        overhead={"cpu": "250m", "memory": "64Mi"},
    )
    assert pod_requests(pod) == {"cpu": 1250, "memory": 64 * MI}
    assert pod_limits(pod) == {"cpu": 2250, "memory": 0}
    without = ResourceOptions(exclude_overhead=True)
    assert pod_requests(pod, without) == {"cpu": 1000}
    assert pod_limits(pod, without) == {"cpu": 2000, "memory": 0}


RESIZING = {
    "containerStatuses": [
        {
            "name": "c",
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
            "allocatedResources": {"cpu": "4"},
        }
    ]
}
INFEASIBLE = {
    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
}
FROM_STATUS = ResourceOptions(use_status_resources=True)


def test_a_resize_under_way_counts_the_greatest_of_wanted_given_and_promised() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "9"}}}
    pod = _pod(RESIZING, containers=[container])
    assert pod_requests(pod, FROM_STATUS) == {"cpu": 4000}  # max(1, 2, 4)
    assert pod_limits(pod, FROM_STATUS) == {"cpu": 9000}  # max(9, 3)
    assert pod_requests(pod) == {"cpu": 1000}


def test_an_infeasible_resize_does_not_count_what_is_wanted() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "6"}, "limits": {"cpu": "9"}}}
    pod = _pod(RESIZING | INFEASIBLE, containers=[container])
    assert pod_requests(pod, FROM_STATUS) == {"cpu": 4000}
    assert pod_limits(pod, FROM_STATUS) == {"cpu": 3000}


def test_an_ordinary_init_container_cannot_be_resized() -> None:
    status = {"initContainerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]}
    ordinary = _pod(status, initContainers=[_asks(cpu="1")])
    assert pod_requests(ordinary, FROM_STATUS) == {"cpu": 1000}
    sidecar = _pod(status, initContainers=[_sidecar(_asks(cpu="1"))])
    assert pod_requests(sidecar, FROM_STATUS) == {"cpu": 9000}


def test_scoring_assumes_100m_and_200mi_of_each_container_that_names_none() -> None:
    # cpu: 0 + 100m, memory: 200Mi + 1Gi; the init container's 100m and 200Mi do not peak
    pod = _pod(
        containers=[_asks(cpu="0"), _asks(memory="1Gi")],
        initContainers=[{"name": "i"}],
    )
    assert non_zero_requests(pod) == {"cpu": 100, "memory": 200 * MI + GI}
    assert non_zero_requests(_pod()) == {}


def test_where_a_pod_names_requests_defaults_stand_for_what_nobody_names() -> None:
    # A container without memory beside one that names it takes none: 1Gi, and not 1Gi + 200Mi.
    containers = [_asks(memory="1Gi"), {"name": "b"}]
    own = {"requests": {"cpu": "2"}}
    assert non_zero_requests(_pod(containers=containers, resources=own)) == {
        "cpu": 2000,
        "memory": GI,
    }
    # Memory that nobody names is assumed of each container: 2 * 200Mi.
    both = [{"name": "a"}, {"name": "b"}]
    assert non_zero_requests(_pod(containers=both, resources=own)) == {
        "cpu": 2000,
        "memory": 400 * MI,
    }
    # Limits of the pod alone change nothing.
    limited = _pod(containers=containers, resources={"limits": {"cpu": "2"}})
    assert non_zero_requests(limited) == {"cpu": 200, "memory": 200 * MI + GI}


def test_the_kubelet_counts_overhead_on_top_of_a_request_and_no_container_beside_the_pod() -> None:
    overhead = {"cpu": "250m"}
    assert cpu_request(_pod(containers=[_asks(cpu="1")], overhead=overhead)) == 1250
    assert cpu_request(_pod(containers=[_asks(memory="1Gi")], overhead=overhead)) == 0
    sidecar = _pod(containers=[_asks(cpu="1")], initContainers=[_sidecar(_asks(cpu="2"))])
    assert cpu_request(sidecar) == 3000
    named = _pod(containers=[_asks(cpu="1")], resources={"requests": {"cpu": "3"}})
    assert cpu_request(named) == 3000
    # The pod names memory only: its containers' cpu does not count, and so overhead neither.
    memory = _pod(
        containers=[_asks(cpu="1")], resources={"limits": {"memory": "1Gi"}}, overhead=overhead
    )
    assert cpu_request(memory) == 0


def test_the_effective_limit_is_the_greater_of_limit_and_request_per_container() -> None:
    # cpu: max(1, 2) + 500m; memory: max(2Gi, 1Gi)
    asks_more = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    pod = _pod(containers=[{"resources": asks_more}, _asks(cpu="500m")])
    assert effective_limits(pod) == {"cpu": 2500, "memory": 2 * GI}


def test_effective_limits_take_sidecars_as_a_floor_and_overhead_on_top() -> None:
    # cpu: max(1, 3, 2) + 250m; memory has only the overhead
    pod = _pod(
        containers=[_limited(cpu="1")],
        initContainers=[_sidecar(_limited(cpu="3")), _limited(cpu="2")],
        overhead={"cpu": "250m", "memory": "64Mi"},
        resources={"limits": {"cpu": "7"}},
    )
    assert effective_limits(pod) == {"cpu": 3250, "memory": 64 * MI}


def test_effective_limits_keep_only_what_the_scheduler_counts() -> None:
    counted = {"nvidia.com/gpu": "1", "kubernetes.io/batch-cpu": "500", "hugepages-2Mi": "2Mi"}
    counted |= {"attachable-volumes-csi": "1", "ephemeral-storage": "1Gi"}
    dropped = {"gpu": "1", "storage": "1Gi", "pods": "1"}
    pod = _pod(containers=[{"resources": {"limits": counted | dropped}}])
    assert effective_limits(pod) == amounts(counted)


def test_effective_limits_for_scoring_fill_in_what_a_container_leaves_unsaid() -> None:
    # two containers: cpu 0 (said) + 100m, memory 200Mi + 200Mi; the init floor of 100m is no more
    pod = _pod(containers=[_limited(cpu="0"), {"name": "b"}], initContainers=[{"name": "i"}])
    assert effective_limits(pod, non_zero=True) == {"cpu": 100, "memory": 400 * MI}
    assert effective_limits(pod) == {"cpu": 0}


def test_container_limits_know_neither_init_containers_nor_overhead() -> None:
    pod = _pod(
        containers=[_limited(cpu="1"), _limited(cpu="2", memory="1Gi"), _asks(cpu="4")],
        initContainers=[_limited(cpu="8")],
        overhead={"cpu": "1"},
    )
    assert container_limits(pod) == {"cpu": 3000, "memory": GI}


def test_peak_limits_take_the_greatest_init_container_and_all_overhead() -> None:
    # cpu: max(1 + 2, 8) + 1 = 9; memory: max(1Gi, 0) + 0; the sidecar is no more than a floor
    pod = _pod(
        containers=[_limited(cpu="1"), _limited(cpu="2", memory="1Gi"), _asks(cpu="4")],
        initContainers=[_limited(cpu="8") | {"restartPolicy": "Always"}],
        overhead={"cpu": "1", "ephemeral-storage": "5"},
    )
    assert peak_limits(pod) == {"cpu": 9000, "memory": GI, "ephemeral-storage": 5}


def test_peak_requests_are_the_same_of_requests() -> None:
    # cpu: max(1 + 2, 2) + 1 = 4; limits have no say
    pod = _pod(
        containers=[_asks(cpu="1"), _asks(cpu="2"), _limited(cpu="9")],
        initContainers=[_asks(cpu="2", memory="1Gi")],
        overhead={"cpu": "1"},
    )
    assert peak_requests(pod) == {"cpu": 4000, "memory": GI}


def test_cpu_of_a_container_tells_nothing_from_none() -> None:
    pod = _pod(
        containers=[_asks(cpu="0"), _limited(cpu="1500m"), _asks(memory="1Gi"), {"name": "bare"}],
        initContainers=[_asks(cpu="2")],
    )
    assert container_cpu(pod) == ((0, None), (None, 1500), (None, None), (None, None))


def test_sums_saturate_at_int64() -> None:
    pod = _pod(containers=[_limited(memory="8Ei"), _limited(memory="8Ei")])
    assert pod_limits(pod) == effective_limits(pod) == {"memory": INT64_MAX}


def test_an_amount_that_is_no_quantity_is_reported() -> None:
    with pytest.raises(QuantityError, match="`1GB` is not a quantity"):
        pod_requests(_pod(containers=[_asks(memory="1GB")]))


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([], "BestEffort"),
        ([{"name": "a"}], "BestEffort"),
        ([{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], "BestEffort"),
        ([_asks(cpu="0")], "BestEffort"),
        ([_asks(cpu="1m")], "Burstable"),
        ([{"resources": {"requests": BOTH, "limits": BOTH}}], "Guaranteed"),
        ([{"resources": {"requests": BOTH, "limits": BOTH}}, {"name": "b"}], "Burstable"),
        # only the API server fills requests in from limits
        ([{"resources": {"limits": BOTH}}], "Burstable"),
        ([{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}], "Burstable"),
    ],
)
def test_the_qos_class_follows_cpu_and_memory_of_all_containers(
    containers: list[Lists], expected: str
) -> None:
    assert qos_class(_pod(containers=containers)) == expected
    assert qos_class(_pod(initContainers=containers)) == expected


def test_pod_level_resources_decide_the_qos_class_alone() -> None:
    resources = {"requests": BOTH, "limits": BOTH}
    assert qos_class(_pod(containers=[_asks(cpu="1")], resources=resources)) == "Guaranteed"
    assert qos_class(_pod(containers=[_asks(cpu="1")], resources={})) == "BestEffort"


@pytest.mark.parametrize(
    ("own", "before", "since"),
    [
        ({}, "BestEffort", "Guaranteed"),
        ({"requests": {"example.com/gpu": "1"}}, "BestEffort", "Guaranteed"),  # not of a pod's own
        ({"requests": {"cpu": "2"}}, "Burstable", "Burstable"),
    ],
)
def test_resources_of_the_pod_that_name_nothing_are_none_from_1_37_on(
    own: dict[str, Any], before: str, since: str
) -> None:
    limited = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "app", "resources": {"requests": limited, "limits": limited}}
    pod = _pod(containers=[container], resources=own)
    assert qos_class(pod, KubernetesVersion(1, 36)) == before
    assert qos_class(pod, KubernetesVersion(1, 37)) == since


lists = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    st.sampled_from(["0", "1", "250m", "0.3Gi"]),
)
containers = st.lists(lists.map(lambda requests: _asks(**requests)), max_size=3)


@given(containers, st.lists(st.tuples(containers.filter(bool), st.booleans()), max_size=3))
def test_the_order_of_containers_does_not_matter_but_each_one_counts(
    apps: list[Lists], inits: list[tuple[list[Lists], bool]]
) -> None:
    init = [_sidecar(group[0]) if always else group[0] for group, always in inits]
    pod = _pod(containers=apps, initContainers=init)
    assert pod_requests(pod) == pod_requests(_pod(containers=apps[::-1], initContainers=init))
    alone = pod_requests(_pod(containers=apps))
    assert all(pod_requests(pod)[name] >= amount for name, amount in alone.items())


@given(st.lists(lists, max_size=2), st.lists(st.tuples(lists, st.booleans()), max_size=6))
def test_at_each_moment_a_pod_needs_its_init_container_and_the_sidecars_before_it(
    apps: list[dict[str, str]], inits: list[tuple[dict[str, str], bool]]
) -> None:
    moments: list[list[dict[str, str]]] = []
    sidecars: list[dict[str, str]] = []
    for requests, always in inits:
        moments.append([*sidecars, requests])
        sidecars += [requests] if always else []
    moments.append([*sidecars, *apps])
    needs = [
        pod_requests(_pod(containers=[_asks(**container) for container in running]))
        for running in moments
    ]
    expected = {
        name: max(need[name] for need in needs if name in need) for name in set().union(*needs)
    }
    init = [_sidecar(_asks(**asks)) if always else _asks(**asks) for asks, always in inits]
    pod = _pod(containers=[_asks(**container) for container in apps], initContainers=init)
    assert pod_requests(pod) == expected
