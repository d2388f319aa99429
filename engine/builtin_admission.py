"""A pod as the API server makes it before it asks webhooks: what tools without one decide on.

Source: Kubernetes 1.36, pkg/apis/core/v1/defaults.go, and the admission plugins that are on by
default and change pods, in their order: LimitRanger, ServiceAccount, Priority,
DefaultTolerationSeconds, RuntimeClass. Not known here: volumes and secrets of service accounts,
bounds of LimitRanges, other webhooks, and plugins that a cluster turns on by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from engine.model import api
from engine.model.kinds import AuxObject
from engine.model.namespace import LimitRange
from engine.model.pod_classes import PREEMPT_LOWER_PRIORITY, PriorityClass, RuntimeClass
from engine.model.quantity import CPU, MEMORY, amount_text, is_huge_pages
from engine.model.resources import pod_limits, pod_requests

_Json: TypeAlias = dict[str, Any]

_CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))
_LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
_NO_EXECUTE: Final = "NoExecute"
_TOLERATION_SECONDS: Final = 300
_REFUSED: Final = "the API server would refuse it"
_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""Classes that every cluster has."""

_SPEC_DEFAULTS: Final = MappingProxyType(
    {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }
)
_CONTAINER_DEFAULTS: Final = MappingProxyType(
    {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
)


@dataclass(frozen=True, slots=True)
class AdmittedPod:
    """A pod as webhooks get it.

    Attributes:
        manifest: as plain JSON values.
        notes: what could not be told, and why the API server would refuse it; a line each.
    """

    manifest: Mapping[str, Any]
    notes: tuple[str, ...] = ()


class BuiltinAdmission:
    """The API server's own changes to new pods.

    Args:
        objects: of the cluster; those that change no pods are skipped.
        priorities: of pods by the name of their PriorityClass, where the class itself is not known.
    """

    def __init__(
        self,
        objects: Iterable[AuxObject] = (),
        priorities: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._limit_ranges: dict[str, list[LimitRange]] = {}
        self._priority_classes: dict[str, PriorityClass] = {}
        self._runtime_classes: dict[str, RuntimeClass] = {}
        self._priorities = {**priorities, **_SYSTEM_CLASSES}
        for each in objects:
            match each:
                case LimitRange():
                    self._limit_ranges.setdefault(each.namespace, []).append(each)
                case PriorityClass():
                    self._priority_classes[each.name] = each
                case RuntimeClass():
                    self._runtime_classes[each.name] = each
                case _:
                    pass

    def admit(self, manifest: Mapping[str, Any], *, namespace: str) -> AdmittedPod:
        """Return a pod that is created, as webhooks get it; equal to itself if admitted again.

        Args:
            manifest: that can be decoded as a pod. It stays as it is.
            namespace: of the request, where the manifest names none.
        """
        notes: list[str] = []
        metadata = {**(manifest.get("metadata") or {})}
        metadata["namespace"] = metadata.get("namespace") or namespace
        pod = {"apiVersion": "v1", "kind": "Pod", "status": {}, **manifest, "metadata": metadata}
        spec = pod["spec"] = _defaulted(pod)
        ranges = self._limit_ranges.get(metadata["namespace"], ())
        for limit_range in sorted(ranges, key=lambda each: each.name):
            _set_limits(metadata, spec, limit_range)
        account = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        self._set_priority(spec, notes)
        spec["tolerations"] = _with_seconds(spec.get("tolerations") or [])
        self._set_runtime(spec, notes)
        return AdmittedPod(pod, tuple(notes))

    def _set_priority(self, spec: _Json, notes: list[str]) -> None:
        name = spec.get("priorityClassName") or ""
        found = self._priority_classes.get(name) if name else self._default_class()
        if found is not None:
            spec["priorityClassName"] = found.name
            priority, policy = found.value, found.preemption_policy
        elif not name:
            priority, policy = 0, PREEMPT_LOWER_PRIORITY
        elif name in self._priorities:
            priority, policy = self._priorities[name], PREEMPT_LOWER_PRIORITY
        else:
            priority, policy = spec.get("priority") or 0, PREEMPT_LOWER_PRIORITY
            notes.append(
                f"PriorityClass `{name}` is not recorded: its priority counts as {priority}"
            )
        for key, value in (("priority", priority), ("preemptionPolicy", policy)):
            given = spec.get(key)
            if given is None:
                spec[key] = value
            elif given != value and (found is not None or not name):
                notes.append(
                    f"{_REFUSED}: `spec.{key}` is {given}, and by its PriorityClass {value}"
                )

    def _default_class(self) -> PriorityClass | None:
        """Return the class of pods that name none: the lowest where there are several."""
        defaults = [each for each in self._priority_classes.values() if each.is_global_default]
        return min(defaults, key=lambda each: each.value, default=None)

    def _set_runtime(self, spec: _Json, notes: list[str]) -> None:
        name = spec.get("runtimeClassName")
        if not name:
            return
        found = self._runtime_classes.get(name)
        if found is None:
            notes.append(f"RuntimeClass `{name}` is not recorded: what it adds is not known")
            return
        if found.overhead:
            given = spec.get("overhead")
            if given and given != dict(found.overhead):
                notes.append(
                    "the API server would refuse it: `spec.overhead` is not its RuntimeClass's"
                )
            spec["overhead"] = {**found.overhead}
        selector = {**(spec.get("nodeSelector") or {})}
        for key, value in found.node_selector.items():
            if selector.setdefault(key, value) != value:
                notes.append(
                    f"{_REFUSED}: `spec.nodeSelector` has `{key}:"
                    f" {selector[key]}`, its RuntimeClass `{value}`"
                )
        if selector:
            spec["nodeSelector"] = selector
        more = (msgspec.to_builtins(each) for each in found.tolerations)
        spec["tolerations"] = _merged([*spec["tolerations"], *more])


def _defaulted(pod: Mapping[str, Any]) -> _Json:
    """Return the spec of a pod with the API's defaults."""
    spec: _Json = {**_SPEC_DEFAULTS, **_without_null(pod.get("spec") or {})}
    spec.setdefault("securityContext", {})
    for key, _ in _CONTAINERS:
        if spec.get(key):
            spec[key] = [_container(each, spec) for each in spec[key]]
    resources = spec.get("resources")
    if resources:
        spec["resources"] = _pod_level(resources, {**pod, "spec": spec})
    return spec


def _without_null(value: Mapping[str, Any]) -> _Json:
    return {key: inner for key, inner in value.items() if inner is not None}


def _container(written: Mapping[str, Any], spec: Mapping[str, Any]) -> _Json:
    container = {**_CONTAINER_DEFAULTS, **_without_null(written)}
    image = str(container.get("image") or "")
    container.setdefault("imagePullPolicy", "Always" if _is_latest(image) else "IfNotPresent")
    resources = _without_null(container.get("resources") or {})
    limits, requests = resources.get("limits"), resources.get("requests")
    if limits:
        resources["requests"] = {**limits, **(requests or {})}
    container["resources"] = resources
    if container.get("ports"):
        container["ports"] = [_port(each, spec) for each in container["ports"]]
    return container


def _is_latest(image: str) -> bool:
    """Return whether an image is that of tag `latest`, which none of a digest is."""
    name = image.rpartition("/")[2]
    return bool(name) and "@" not in name and name.partition(":")[2] in {"", "latest"}


def _port(written: Mapping[str, Any], spec: Mapping[str, Any]) -> _Json:
    port = {"protocol": "TCP", **_without_null(written)}
    if spec.get("hostNetwork") and not port.get("hostPort") and port.get("containerPort"):
        port["hostPort"] = port["containerPort"]
    return port


def _pod_level(resources: Mapping[str, Any], pod: Mapping[str, Any]) -> _Json:
    """Return the resources of a pod as a whole with their defaults (KEP-2837)."""
    limits, requests = ({**(resources.get(side) or {})} for side in ("limits", "requests"))
    if not (limits or requests):
        return {**resources}
    bare = {**pod["spec"], "resources": None, "overhead": None}
    wire = msgspec.convert({**pod, "spec": bare, "status": {}}, api.Pod)
    for name, amount in pod_limits(wire).items():
        if is_huge_pages(name) and name not in requests:
            limits.setdefault(name, amount_text(name, amount))
    if limits:
        for name, amount in pod_requests(wire).items():
            if name in {CPU, MEMORY}:
                requests.setdefault(name, amount_text(name, amount))
        for name, amount in limits.items():
            if name in {CPU, MEMORY} or is_huge_pages(name):
                requests.setdefault(name, amount)
    sides = {"limits": limits, "requests": requests}
    return {**resources, **{side: amounts for side, amounts in sides.items() if amounts}}


def _set_limits(metadata: _Json, spec: _Json, limit_range: LimitRange) -> None:
    """Set what containers do not name, and the annotation that says so."""
    said: list[str] = []
    for key, of_kind in _CONTAINERS:
        containers = spec.get(key) or []
        for container in containers:
            resources = container["resources"]
            for side, defaults in (
                ("requests", limit_range.requests),
                ("limits", limit_range.limits),
            ):
                amounts = resources.get(side) or {}
                more = sorted(defaults.keys() - amounts.keys())
                if more:
                    resources[side] = {**amounts, **{name: defaults[name] for name in more}}
                    name = container.get("name", "")
                    said.append(f"{', '.join(more)} {side[:-1]} for {of_kind} {name}")
    if said:
        annotations = metadata.get("annotations") or {}
        text = f"LimitRanger plugin set: {'; '.join(said)}"
        metadata["annotations"] = {**annotations, _LIMIT_RANGER: text}


def _with_seconds(tolerations: Sequence[_Json]) -> list[_Json]:
    """Return tolerations with those of nodes that fail, for as long as a pod waits for them."""
    missing = [
        {
            "key": key,
            "operator": "Exists",
            "effect": _NO_EXECUTE,
            "tolerationSeconds": _TOLERATION_SECONDS,
        }
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(
            each.get("key") in {None, "", key} and each.get("effect") in {None, "", _NO_EXECUTE}
            for each in tolerations
        )
    ]
    return [*tolerations, *missing]


def _merged(tolerations: Sequence[_Json]) -> list[_Json]:
    """Return tolerations, each once, without those that another implies.

    Source: Kubernetes, pkg/util/tolerations/tolerations.go, MergeTolerations.
    """
    merged: list[_Json] = []
    for number, each in enumerate(tolerations):
        later = tolerations[number + 1 :]
        if not any(_implies(other, each) for other in merged) and not any(
            other != each and _implies(other, each) for other in later
        ):
            merged.append(each)
    return merged


def _implies(one: _Json, other: _Json) -> bool:
    """Return whether a toleration tolerates all that another does."""
    if one == other:
        return True
    key, effect = one.get("key") or "", one.get("effect") or ""
    is_exists = one.get("operator") == "Exists"
    if key != (other.get("key") or "") and not (key == "" and is_exists):
        return False
    if effect not in {"", other.get("effect") or ""}:
        return False
    seconds, of_other = one.get("tolerationSeconds"), other.get("tolerationSeconds")
    if effect == _NO_EXECUTE and seconds is not None and (of_other is None or of_other > seconds):
        return False
    if is_exists:
        return True
    return other.get("operator") == "Equal" and one.get("value") == other.get("value")
