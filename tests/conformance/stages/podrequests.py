"""What a pod requests and may use, by component-helpers' own tests among others; its QoS class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.model import api
from engine.model.kubernetes_version import kubernetes_version_of
from engine.model.pod_shape import shape_of
from engine.model.resources import ResourceOptions, amounts, pod_limits, pod_requests, qos_class
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage

_OPTIONS = {
    "kubernetes": "kubernetes",
    "excludeOverhead": "exclude_overhead",
    "nonMissingContainerRequests": "non_missing_container_requests",
    "skipContainerLevelResources": "skip_container_level_resources",
    "skipPodLevelResources": "skip_pod_level_resources",
    "useStatusResources": "use_status_resources",
}
_AS_THE_SHAPE = {"useStatusResources": True}
"""The options by which the shape of a pod has its requests and limits, of any version."""

_SIDES = {"requests": pod_requests, "limits": pod_limits}


def _requests_and_limits(case: Json, _: Json) -> str | None:
    pod = msgspec.convert(case["pod"], api.Pod)
    version = kubernetes_version_of(case["args"].get("kubernetes", ""))
    given = {name: value for name, value in case["args"].items() if name != "kubernetes"}
    args = given | {"kubernetes": version}
    options = ResourceOptions(**{_OPTIONS[name]: value for name, value in args.items()})
    expected = {side: amounts(case["expect"][side]) for side in case["expect"]}
    wrong = mismatch(expected, {side: _SIDES[side](pod, options) for side in expected})
    if wrong is None and given == _AS_THE_SHAPE:
        shape = shape_of(pod, kubernetes=version)
        return mismatch(expected, {side: dict(getattr(shape, side)) for side in expected})
    return wrong


def _qos(case: Json, _: Json) -> str | None:
    pod = msgspec.convert(case["pod"], api.Pod)
    version = kubernetes_version_of(case["args"]["kubernetes"])
    found = {
        "qosClass": qos_class(pod, version),
        "qosClass of its shape": shape_of(pod, kubernetes=version).qos_class,
    }
    return mismatch(dict.fromkeys(found, case["expect"]["qosClass"]), found)


STAGES: Mapping[str, Stage] = {
    "limits": _requests_and_limits,
    "qos": _qos,
    "requests": _requests_and_limits,
    "requests+limits": _requests_and_limits,
}
