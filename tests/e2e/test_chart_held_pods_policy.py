"""The policy for held pods, evaluated without a cluster: what it judges, and what passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import DYN, Environment, Program, compile_program
from engine.model.hold import HOLD_GATE, RELEASED_ANNOTATION
from tests.e2e.chart import rendered
from tests.e2e.cluster import Json

_ACCOUNT = "system:serviceaccount:stowplan-system:stowplan-control"
_FREE = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}


@cache
def _policy() -> Json:
    """Return the specification of the policy."""
    found: list[Json] = [
        manifest["spec"]
        for manifest in rendered(values={"hold.enabled": True})
        if manifest["kind"] == "ValidatingAdmissionPolicy"
        and manifest["metadata"]["name"] == "stowplan-held-pods"
    ]
    (policy,) = found
    return policy


@cache
def _program(expression: str) -> Program:
    names = [f"variables.{each['name']}" for each in _policy()["variables"]]
    variables = dict.fromkeys(("object", "oldObject", "request", *names), DYN)
    return compile_program(expression, Environment(variables=variables))


def _is_judged(before: Json, after: Json, subresource: str, account: str = _ACCOUNT) -> bool:
    """Return whether the validations are asked about a change."""
    (condition,) = _policy()["matchConditions"]
    activation = _change(before, after, subresource, account)
    return bool(_program(condition["expression"]).evaluate(activation))


def _is_valid(before: Json, after: Json, subresource: str) -> bool:
    """Return whether the validations let a change pass."""
    activation = _change(before, after, subresource, _ACCOUNT)
    for each in _policy()["variables"]:
        value = _program(each["expression"]).evaluate(activation)
        activation[f"variables.{each['name']}"] = value
    return all(
        _program(each["expression"]).evaluate(activation) for each in _policy()["validations"]
    )


def _change(before: Json, after: Json, subresource: str, account: str) -> dict[str, object]:
    request: Json = {"userInfo": {"username": account}}
    if subresource:
        request["subResource"] = subresource
    return {"object": after, "oldObject": before, "request": request}


def _held(*more_gates: str) -> Json:
    return {
        "metadata": {"uid": "1", "labels": {"app": "web"}, "annotations": {"owner": "ann"}},
        "spec": {
            "containers": [{"name": "main", "image": "main:1"}],
            "schedulingGates": [{"name": gate} for gate in (HOLD_GATE, *more_gates)],
        },
        "status": _FREE,
    }


def test_what_others_change_is_not_judged() -> None:
    pod = _held()
    assert not _is_judged(pod, {**pod, "status": {"phase": "Running"}}, "status", "system:node:a")
    assert _is_judged(pod, {**pod, "status": {"phase": "Running"}}, "status")


@pytest.mark.parametrize("gates", [(), ("example.com/later",)])
def test_a_nomination_and_a_release_pass_without_being_judged(gates: tuple[str, ...]) -> None:
    pod = _held(*gates)
    nominated = {**pod, "status": {**_FREE, "nominatedNodeName": "node-a"}}
    assert not _is_judged(pod, nominated, "status")
    annotations = {**pod["metadata"]["annotations"], RELEASED_ANNOTATION: "node-a"}
    spec = {**pod["spec"], "schedulingGates": [{"name": gate} for gate in gates]}
    if not gates:
        del spec["schedulingGates"]
    metadata = {**pod["metadata"], "annotations": annotations, "resourceVersion": "2"}
    assert not _is_judged(nominated, {**nominated, "metadata": metadata, "spec": spec}, "")


def test_a_pod_with_many_annotations_is_judged() -> None:
    pod = _held()
    for key in map(str, range(32)):
        pod["metadata"]["annotations"][key] = "x"
    assert _is_judged(pod, {**pod, "status": {**_FREE, "nominatedNodeName": "node-a"}}, "status")


def _some(fields: Mapping[str, st.SearchStrategy[object]]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=dict(fields))


_TEXTS = st.sampled_from(["u", "v"])
_KEYS = ["owner", "stowplan.dev/x", "stowplan.dev"]
_GATES = st.permutations([HOLD_GATE, "a", "b"]).flatmap(
    lambda gates: st.integers(0, 3).map(lambda count: [{"name": gate} for gate in gates[:count]])
)
_METADATA = _some(
    {
        "uid": _TEXTS,
        "finalizers": st.just(["f"]),
        "labels": _some({"app": _TEXTS}),
        "annotations": _some(dict.fromkeys(_KEYS, _TEXTS)),
        "managedFields": st.just([]),
        "resourceVersion": _TEXTS,
    }
)
_SPECS = _some(
    {
        "containers": st.lists(_some({"image": _TEXTS}), max_size=1),
        "schedulingGates": _GATES,
        "affinity": st.sampled_from([{}, {"nodeAffinity": {}}, {"podAffinity": {"x": 1}}]),
        "nodeSelector": st.just({"pool": "small"}),
    }
)
_STATUSES = _some(
    {
        "phase": _TEXTS,
        "nominatedNodeName": _TEXTS,
        "conditions": st.lists(
            st.sampled_from([{"type": "Ready"}, {"type": "stowplan.dev/Queued"}]), max_size=2
        ),
    }
)


@given(metadata=_METADATA, spec=_SPECS, status=_STATUSES, changed=st.data())
def test_whatever_passes_without_being_judged_would_be_valid(
    metadata: Json, spec: Json, status: Json, changed: st.DataObject
) -> None:
    old = {"metadata": metadata, "spec": spec, "status": status}
    # The API server itself keeps what a change of the other subresource does not concern.
    for subresource, concerned, parts in (("status", "status", _STATUSES), ("", "spec", _SPECS)):
        for new in _changed(changed.draw, old, {"metadata": _METADATA, concerned: parts}):
            assert _is_judged(old, new, subresource) or _is_valid(old, new, subresource)


def _changed(
    draw: Callable[[st.SearchStrategy[Json]], Json],
    old: Json,
    parts: Mapping[str, st.SearchStrategy[Json]],
) -> Iterator[Json]:
    """Yield a pod with all of some parts changed, and with one field of one of them."""
    others = {name: draw(part) for name, part in parts.items()}
    yield {**old, **others}
    for name, other in others.items():
        for key, value in other.items():
            yield {**old, name: {**old[name], key: value}}
        for key in old[name]:
            yield {**old, name: {each: old[name][each] for each in old[name] if each != key}}
