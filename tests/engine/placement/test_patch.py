from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.errors import PatchError
from engine.model.decision import ADVICE_ANNOTATION, Advice, advice_in
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASE_BY_ANNOTATION
from engine.model.time import SECOND, Micros
from engine.placement import Patch, PatchTemplate, SharedPatch, advice_id, encode, hold_patch
from engine.placement.annotations import advice_text
from engine.placement.patch import ensure_applies
from tests.engine.placement.cluster import (
    Json,
    decided,
    named,
    preferred,
    request_of,
    view_of,
    with_affinity,
)


@pytest.mark.parametrize(
    "path",
    [
        "/spec/affinity/nodeAffinity",
        "/spec/terms/3",
        "/spec/terms/3/key",
        "/spec/terms/-/key",
        "/spec/name/key",
        "/spec/name/key/key",
        "spec",
        "/a~2",
    ],
)
def test_operations_that_do_not_apply_are_refused(path: str) -> None:
    document: Json = {"spec": {"terms": [], "name": "web"}}
    with pytest.raises(PatchError, match="does not apply"):
        ensure_applies([{"op": "add", "path": path, "value": 1}], document)


def test_an_operation_that_points_into_the_value_of_another_is_refused() -> None:
    operations: list[Json] = [
        {"op": "add", "path": "/spec", "value": {"name": "web"}},
        {"op": "add", "path": "/spec/name", "value": "web"},
    ]
    with pytest.raises(PatchError, match="does not apply"):
        ensure_applies(operations, {})


def test_operations_apply_to_objects_and_to_the_ends_of_lists() -> None:
    document: Json = {"spec": {"terms": [{}]}, "metadata": {}}
    paths = ["/spec/terms/0/key", "/spec/terms/-", "/metadata/a~1b"]
    ensure_applies([{"op": "add", "path": path, "value": 1} for path in paths], document)
    assert document == {"spec": {"terms": [{"key": None}, None]}, "metadata": {"a/b": None}}


NAMES = [f"n{number:02}" for number in range(40)]
VIEW = view_of(named(*NAMES))
SCORES = {name: 100 - number for number, name in enumerate(NAMES)}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"weight": 3, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
PODS: list[Json] = [
    {},
    {"metadata": {}, "spec": {}},
    {"metadata": {"annotations": {"a": "b"}}, "spec": {"affinity": None}},
    with_affinity({}),
    with_affinity({PREFERRED: []}),
    with_affinity({PREFERRED: [TERM]}),
]
UID = "a-review"


def patch_of(pod: Json, message: str = "text") -> Patch:
    decision = replace(decided(VIEW, SCORES), message_or_source=message)
    return encode(decision, request_of(pod), VIEW)


def filled(patch: Patch, number: int, review_uid: str = UID) -> SharedPatch:
    return PatchTemplate(patch).filled(number, review_uid)


def applied(pod: Json, operations: list[Any]) -> Json:
    after: Json = jsonpatch.apply_patch(pod, operations)
    return after


@given(
    pod=st.sampled_from(PODS),
    number=st.integers(min_value=0, max_value=100),
    message=st.text(max_size=40),
)
def test_a_pod_gets_what_the_first_got_but_for_names_and_advice(
    pod: Json, number: int, message: str
) -> None:
    patch = patch_of(pod, message)
    shared = filled(patch, number)
    expected = applied(pod, list(patch.operations))
    assert patch.turns is not None
    terms = preferred(expected)[-patch.advice.terms :]
    for term, names in zip(terms, patch.turns.listed(number), strict=False):
        term["preference"]["matchExpressions"][0]["values"] = list(names)
    expected["metadata"]["annotations"][ADVICE_ANNOTATION] = advice_text(shared.advice)
    assert applied(pod, msgspec.json.decode(shared.document)) == expected


@given(pod=st.sampled_from(PODS))
def test_the_advice_of_a_pod_is_its_own(pod: Json) -> None:
    first, shared = patch_of(pod), filled(patch_of(pod), 1)
    annotations = applied(pod, msgspec.json.decode(shared.document))["metadata"]["annotations"]
    assert advice_in(annotations) == shared.advice
    assert shared.advice.id == advice_id(UID) != first.advice.id
    assert replace(shared.advice, id="", nodes=()) == replace(first.advice, id="", nodes=())


def test_control_characters_of_others_are_no_holes() -> None:
    text = "\0\1\2 \\u0000"
    operation = {"op": "add", "path": "/metadata/labels", "value": {text: text}}
    shared = filled(Patch((operation,), Advice(id="a")), 1)
    assert msgspec.json.decode(shared.document) == [operation]


def test_filling_changes_nothing_of_the_patch() -> None:
    patch = patch_of({})
    before = copy.deepcopy(patch.operations)
    template = PatchTemplate(patch)
    assert template.filled(1, "u") == template.filled(1, "u") != template.filled(2, "u")
    assert patch.operations == before


NOON = Micros(1_767_614_400 * SECOND)  # 2026-01-05T12:00:00Z
OURS = {HOLD_REASONS_ANNOTATION: "placement", RELEASE_BY_ANNOTATION: "2026-01-05T12:01:00Z"}
GATES = [{"name": HOLD_GATE}]


def held(pod: Json, now: Micros = NOON) -> Json:
    request = request_of(pod)
    operations = hold_patch(request.pod, request.raw, reasons="placement", now=now, seconds=60)
    assert all(operation["op"] == "add" for operation in operations)
    after: Json = jsonpatch.apply_patch(pod, list(operations))
    return after


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": {}, "spec": {}},
        {"metadata": {"annotations": None}, "spec": {"schedulingGates": None}},
        {"metadata": {"annotations": {}}, "spec": {"schedulingGates": []}},
    ],
)
def test_a_held_pod_has_our_gate_the_reason_and_the_bound(pod: Json) -> None:
    assert held(pod) == {"metadata": {"annotations": OURS}, "spec": {"schedulingGates": GATES}}


def test_what_the_pod_has_stays() -> None:
    pod = {
        "metadata": {"annotations": {"team": "a"}},
        "spec": {"schedulingGates": [{"name": "example.org/theirs"}], "affinity": {}},
    }
    assert held(pod) == {
        "metadata": {"annotations": {"team": "a", **OURS}},
        "spec": {"schedulingGates": [{"name": "example.org/theirs"}, *GATES], "affinity": {}},
    }


@pytest.mark.parametrize("later", [0, 59])
def test_a_pod_that_is_held_already_is_left_alone(later: int) -> None:
    once = held({"metadata": {"name": "p"}, "spec": {}})
    assert held(once, Micros(NOON + later * SECOND)) == once


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {HOLD_REASONS_ANNOTATION: "placement"},
        {**OURS, HOLD_REASONS_ANNOTATION: "quota,placement"},
        {**OURS, RELEASE_BY_ANNOTATION: "2126-01-05T12:00:00Z"},
        {**OURS, RELEASE_BY_ANNOTATION: "2026-01-05T12:01:01Z"},
        {**OURS, RELEASE_BY_ANNOTATION: "2026-01-05T12:00:00Z"},  # in the past
        {**OURS, RELEASE_BY_ANNOTATION: "0000-99-99T99:99:99Z"},
        {**OURS, RELEASE_BY_ANNOTATION: "9" * 100_000},
        {**OURS, RELEASE_BY_ANNOTATION: ""},
    ],
)
@pytest.mark.parametrize("gates", [[], GATES])
def test_a_copied_manifest_gains_nothing(forged: Json, gates: list[Json]) -> None:
    pod = {"metadata": {"annotations": forged}, "spec": {"schedulingGates": gates}}
    assert held(pod) == {"metadata": {"annotations": OURS}, "spec": {"schedulingGates": GATES}}


def test_annotations_without_the_gate_do_not_count_as_a_hold() -> None:
    pod = {"metadata": {"annotations": OURS}, "spec": {}}
    later = held(pod, Micros(NOON + 30 * SECOND))
    assert later["metadata"]["annotations"][RELEASE_BY_ANNOTATION] == "2026-01-05T12:01:30Z"


_texts = st.text(max_size=5)
_annotations = st.none() | st.dictionaries(
    _texts | st.sampled_from(list(OURS)), _texts | st.sampled_from(list(OURS.values())), max_size=4
)
_gates = st.none() | st.lists(
    st.fixed_dictionaries({"name": _texts | st.just(HOLD_GATE)}), max_size=3
)
_others = st.dictionaries(_texts, st.recursive(_texts | st.none(), st.lists), max_size=2)
_pods = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"annotations": _annotations}),
        "spec": st.fixed_dictionaries({"x": _others}, optional={"schedulingGates": _gates}),
    },
)


@given(_pods, st.integers(0, 59))
def test_a_hold_of_any_pod_applies_takes_nothing_away_and_is_made_once(
    pod: Json, later: int
) -> None:
    before = msgspec.json.decode(msgspec.json.encode(pod))
    after = held(pod)
    assert pod == before
    assert _without_ours(after) == _without_ours(pod)
    names = [gate["name"] for gate in after["spec"]["schedulingGates"]]
    assert HOLD_GATE in names
    assert after["metadata"]["annotations"].keys() >= OURS.keys()
    assert held(after, Micros(NOON + later * SECOND)) == after


def _without_ours(pod: Json) -> Json:
    """Return what a hold may not change, with nothing where there is null or an empty object."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    gates = spec.get("schedulingGates") or []
    return {
        "annotations": {key: each for key, each in annotations.items() if key not in OURS},
        "gates": [gate for gate in gates if gate != GATES[0]],
        "spec": {key: each for key, each in spec.items() if key != "schedulingGates"},
    }
