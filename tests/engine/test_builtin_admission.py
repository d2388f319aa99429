from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.builtin_admission import BuiltinAdmission
from engine.model import api
from engine.model.namespace import LimitRange, limit_range_of
from engine.model.pod import host_ports_of
from engine.model.pod_classes import PriorityClass, RuntimeClass, priority_class_of
from tests.builders import pod_from


def manifest(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    listed = [{"name": "a", "image": "x"}] if not containers else list(containers)
    return {"kind": "Pod", "metadata": {"name": "w"}, "spec": {"containers": listed, **spec}}


def admitted(pod: dict[str, Any], *objects: Any) -> dict[str, Any]:  # noqa: ANN401 - of the cluster
    """Return the spec of a pod of namespace team."""
    found = BuiltinAdmission(objects).admit(pod, namespace="team").manifest
    spec: dict[str, Any] = found["spec"]
    return spec


def notes(pod: dict[str, Any], *objects: Any) -> tuple[str, ...]:  # noqa: ANN401 - of the cluster
    return BuiltinAdmission(objects).admit(pod, namespace="team").notes


def priority_class(name: str, value: int, **more: Any) -> PriorityClass:  # noqa: ANN401
    meta = {"name": name}
    wire = msgspec.convert({"metadata": meta, "value": value, **more}, api.PriorityClass)
    return priority_class_of(wire)


def limit_range(*limits: dict[str, Any], namespace: str = "team", name: str = "d") -> LimitRange:
    meta = {"name": name, "namespace": namespace}
    wire = {"metadata": meta, "spec": {"limits": [{"type": "Container", **one} for one in limits]}}
    return limit_range_of(msgspec.convert(wire, api.LimitRange))


KATA = RuntimeClass(
    name="kata",
    overhead={"cpu": "250m"},
    node_selector={"runtime": "kata"},
    tolerations=(api.Toleration(key="sandbox", operator="Exists"),),
)


# Defaults of the API.


def test_a_bare_pod_gets_the_defaults_of_the_api() -> None:
    pod = BuiltinAdmission().admit(manifest(), namespace="team").manifest
    spec = pod["spec"]
    assert (pod["metadata"]["namespace"], pod["status"]) == ("team", {})
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == "default"
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    (container,) = spec["containers"]
    assert container["resources"] == {}
    assert container["imagePullPolicy"] == "Always"  # no tag is `latest`
    assert {(one["key"], one["tolerationSeconds"]) for one in spec["tolerations"]} == {
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("host:5000/x", "Always"),
        ("x:latest", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        ("x@sha256:12", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_images_of_tag_latest_are_always_pulled(image: str, policy: str) -> None:
    (container,) = admitted(manifest({"name": "a", "image": image}))["containers"]
    assert container["imagePullPolicy"] == policy


def test_what_a_pod_says_and_what_the_caller_holds_stay() -> None:
    pod = manifest(
        {"name": "a", "resources": {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}},
        schedulerName="other",
        restartPolicy="Never",
        serviceAccountName="bot",
    )
    before = deepcopy(pod)
    spec = admitted(pod)
    assert pod == before
    assert (spec["schedulerName"], spec["restartPolicy"]) == ("other", "Never")
    assert spec["serviceAccountName"] == "bot"
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}


def test_pods_of_the_host_network_take_the_ports_of_their_containers() -> None:
    container = {"name": "a", "ports": [{"containerPort": 8080}]}
    for host_network, ports in ((True, [8080]), (False, [])):
        spec = msgspec.convert(admitted(manifest(container, hostNetwork=host_network)), api.PodSpec)
        assert [port.port for port in host_ports_of(spec)] == ports


def test_a_pod_with_limits_of_its_own_requests_what_its_containers_do() -> None:
    one = {"name": "a", "resources": {"requests": {"cpu": "300m"}}}
    spec = admitted(manifest(one, one, resources={"limits": {"cpu": "1", "memory": "2Gi"}}))
    # 300m + 300m of cpu; of memory no container says anything, so the limit of the pod.
    assert spec["resources"]["requests"] == {"cpu": "600m", "memory": "2Gi"}


def test_tolerations_of_failing_nodes_are_not_added_twice() -> None:
    every = [{"operator": "Exists"}]
    assert admitted(manifest(tolerations=every))["tolerations"] == every


# LimitRanges.


def test_a_limit_range_gives_what_containers_do_not_name() -> None:
    both = limit_range({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}})
    named = {"name": "b", "resources": {"limits": {"cpu": "1"}}}
    pod = BuiltinAdmission([both]).admit(manifest({"name": "a"}, named), namespace="team").manifest
    first, second = pod["spec"]["containers"]
    assert first["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}
    assert second["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    assert pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container a; cpu limit for container a"
    )


@pytest.mark.parametrize(
    ("limits", "resources"),
    [
        ({"max": {"cpu": "4"}}, {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}),
        ({"min": {"cpu": "1"}}, {"requests": {"cpu": "1"}}),
        ({"type": "Pod", "max": {"cpu": "4"}}, {}),
    ],
)
def test_defaults_come_of_the_bounds_of_containers(
    limits: dict[str, Any], resources: dict[str, Any]
) -> None:
    (container,) = admitted(manifest(), limit_range(limits))["containers"]
    assert container["resources"] == resources


def test_a_limit_range_of_another_namespace_changes_nothing() -> None:
    other = limit_range({"default": {"cpu": "2"}}, namespace="other")
    assert admitted(manifest(), other) == admitted(manifest())


def test_of_two_limit_ranges_the_first_by_name_is_first() -> None:
    later = limit_range({"defaultRequest": {"cpu": "2", "memory": "1Gi"}}, name="b")
    first = limit_range({"defaultRequest": {"cpu": "1"}}, name="a")
    (container,) = admitted(manifest(), later, first)["containers"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


# PriorityClasses.


def test_a_pod_has_the_priority_of_its_class_and_others_that_of_the_default() -> None:
    gold = priority_class("gold", 1000, preemptionPolicy="Never")
    plain = priority_class("plain", 7, globalDefault=True)
    lower = priority_class("lower", 5, globalDefault=True)
    spec = admitted(manifest(priorityClassName="gold"), gold, plain, lower)
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    spec = admitted(manifest(), gold, plain, lower)
    assert (spec["priorityClassName"], spec["priority"]) == ("lower", 5)


def test_classes_of_the_system_are_known() -> None:
    assert admitted(manifest(priorityClassName="system-node-critical"))["priority"] == 2_000_001_000


def test_a_class_that_is_not_recorded_has_the_priority_of_its_recorded_pods() -> None:
    admission = BuiltinAdmission((), {"gold": 9})
    found = admission.admit(manifest(priorityClassName="gold"), namespace="team")
    assert (found.manifest["spec"]["priority"], found.notes) == (9, ())
    assert notes(manifest(priorityClassName="silver")) == (
        "PriorityClass `silver` is not recorded: its priority counts as 0",
    )


def test_a_priority_that_is_not_that_of_the_class_is_told() -> None:
    (note,) = notes(manifest(priorityClassName="gold", priority=5), priority_class("gold", 1000))
    assert note == (
        "the API server would refuse it: `spec.priority` is 5, and by its PriorityClass 1000"
    )


# RuntimeClasses.


def test_a_runtime_class_adds_overhead_and_its_nodes() -> None:
    spec = admitted(manifest(runtimeClassName="kata", nodeSelector={"disk": "ssd"}), KATA)
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"disk": "ssd", "runtime": "kata"}
    assert {"key": "sandbox", "operator": "Exists"} in spec["tolerations"]


def test_what_contradicts_a_runtime_class_is_told() -> None:
    (note,) = notes(manifest(runtimeClassName="kata", nodeSelector={"runtime": "runc"}), KATA)
    assert note == (
        "the API server would refuse it: `spec.nodeSelector` has `runtime: runc`, its RuntimeClass"
        " `kata`"
    )
    (note,) = notes(manifest(runtimeClassName="kata", overhead={"cpu": "1"}), KATA)
    assert "`spec.overhead`" in note
    (note,) = notes(manifest(runtimeClassName="gvisor"), KATA)
    assert note == "RuntimeClass `gvisor` is not recorded: what it adds is not known"


def test_a_toleration_that_another_implies_is_left_out() -> None:
    wide = {"key": "sandbox", "operator": "Exists"}
    narrow = {"key": "sandbox", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    spec = admitted(manifest(runtimeClassName="kata", tolerations=[narrow]), KATA)
    assert narrow not in spec["tolerations"]
    assert wide in spec["tolerations"]


# In general.

_RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "limits": st.fixed_dictionaries({}, optional={"cpu": st.sampled_from(["1", "2"])}),
        "requests": st.fixed_dictionaries({}, optional={"memory": st.just("1Gi")}),
    },
)
_PODS = st.builds(
    manifest,
    st.fixed_dictionaries({"name": st.just("a")}, optional={"resources": _RESOURCES}),
    st.fixed_dictionaries(
        {"name": st.just("b")}, optional={"ports": st.just([{"containerPort": 80}])}
    ),
    hostNetwork=st.booleans(),
    priorityClassName=st.sampled_from(["", "gold"]),
    runtimeClassName=st.sampled_from([None, "kata"]),
    tolerations=st.sampled_from([None, [{"operator": "Exists"}], [{"key": "sandbox"}]]),
    resources=st.one_of(st.none(), _RESOURCES),
)


@given(pod=_PODS)
def test_what_was_admitted_is_not_changed_again_and_can_be_read(pod: dict[str, Any]) -> None:
    objects = (
        limit_range({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}),
        priority_class("gold", 1000),
        KATA,
    )
    admission = BuiltinAdmission(objects)
    once = admission.admit(pod, namespace="team").manifest
    again = admission.admit(once, namespace="other")
    assert (again.manifest, again.notes) == (once, ())
    assert pod_from(once).namespace == "team"
