from __future__ import annotations

from typing import Any

import msgspec

from engine.model import api
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.pod_shape import PodShape
from engine.model.shape_computation import requests_of, shape_of


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
