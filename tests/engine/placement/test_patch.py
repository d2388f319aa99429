from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.errors import PatchError
from engine.model.decision import ADVICE_ANNOTATION, Advice, Decision, advice_in
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASE_BY_ANNOTATION
from engine.model.time import SECOND, Micros
from engine.placement import Patch, PatchTemplate, SharedPatch, advice_id, encode, hold_patch
from engine.placement.patch import (
    ESTIMATED_USAGE_ANNOTATION,
    MAX_BYTES,
    REASON_ANNOTATION,
    advice_of,
    advice_text,
    annotations_of,
    ensure_applies,
)
from tests.engine.placement.cluster import (
    GIB,
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


LETTERED = view_of(named(*"abcdefgh"))
DECISION = decided(LETTERED, dict.fromkeys("abcdefgh", 1))


def annotated(decision: Decision, best_tier: str = "") -> dict[str, str]:
    rows = np.array([LETTERED.rows[name] for name in best_tier], np.intp)
    return annotations_of(decision, advice_of(decision, rows, "u-1"))


def test_the_advice_names_policies_and_the_first_few_of_the_best_nodes() -> None:
    text = annotated(replace(DECISION, policies=("p", "q")), "hgfedcba")[ADVICE_ANNOTATION]
    advice = msgspec.json.decode(text, type=Advice)
    assert advice == Advice(("p", "q"), tuple("hgfed"), 8, advice.id)


def test_the_advice_of_each_review_has_an_id_of_its_own_and_the_same_in_every_replica() -> None:
    rows = np.zeros(0, np.intp)
    ids = [advice_of(DECISION, rows, uid).id for uid in ("u-1", "u-2", "u-1", "u" * 300)]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3
    assert {len(one) for one in ids} == {16}


@pytest.mark.parametrize("best_tier", ["", "abc"])
def test_advice_is_cut_once_it_is_too_long_and_never_before(best_tier: str) -> None:
    rows = np.array([LETTERED.rows[name] for name in best_tier], np.intp)
    whole = []
    for length in range(330, 450):
        advice = advice_of(replace(DECISION, policies=("p" * length,)), rows, "u-1")
        assert len(msgspec.json.encode(advice)) <= 448
        whole.append(bool(advice.policies))
    # All of its bytes are of use, but for what an empty list takes: 16 bytes at most.
    assert whole == sorted(whole, reverse=True)
    longest = advice_of(replace(DECISION, policies=("p" * (329 + sum(whole)),)), rows, "u-1")
    assert len(msgspec.json.encode(longest)) >= 448 - 16


def test_advice_without_a_review_has_no_id() -> None:
    advice = advice_of(DECISION, np.zeros(0, np.intp), "")
    assert (
        annotations_of(DECISION, advice)[ADVICE_ANNOTATION]
        == '{"policies":["spread-load"],"candidates":8}'
    )


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ({"memory": GIB, "cpu": 850}, '{"cpu":"850m","memory":"1Gi"}'),
        ({"cpu": 2000, "memory": 1000}, '{"cpu":"2","memory":"1k"}'),
        ({"memory": GIB + 1}, '{"memory":"1073741825"}'),
        ({"a.b/c": 3, "ephemeral-storage": 2048}, '{"ephemeral-storage":"2Ki","a.b/c":"3"}'),
        ({"cpu": 0}, '{"cpu":"0"}'),
    ],
)
def test_the_estimate_is_written_in_kubernetes_own_quantities(
    estimate: dict[str, int], text: str
) -> None:
    assert annotated(replace(DECISION, estimate=estimate))[ESTIMATED_USAGE_ANNOTATION] == text


def test_what_is_not_known_is_not_annotated() -> None:
    assert list(annotated(replace(DECISION, message_or_source=" \n"))) == [ADVICE_ANNOTATION]


def test_the_reason_is_one_line() -> None:
    reason = annotated(replace(DECISION, message_or_source="best of 8:\n  cool"))[REASON_ANNOTATION]
    assert reason == "best of 8: cool"


def test_a_long_reason_is_cut_with_a_mark_between_characters() -> None:
    annotations = annotated(replace(DECISION, message_or_source="ü" * 1000))
    reason = annotations[REASON_ANNOTATION]
    size = sum(len(key) + len(value.encode()) for key, value in annotations.items())
    assert reason == "ü" * (len(reason) - 3) + "..."
    assert MAX_BYTES - 1 <= size <= MAX_BYTES


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(
    message=st.text(st.characters(exclude_categories=["Cs"]), max_size=1500),
    policies=st.lists(TEXT, max_size=20),
    names=st.lists(TEXT, min_size=len(LETTERED), max_size=len(LETTERED)),
    estimate=st.dictionaries(TEXT, st.integers(0, 2**48), max_size=20),
)
def test_annotations_take_a_kibibyte_at_most_and_are_json(
    message: str, policies: list[str], names: list[str], estimate: dict[str, int]
) -> None:
    decision = replace(
        DECISION,
        message_or_source=message,
        policies=tuple(policies),
        names=names,
        estimate=estimate,
    )
    annotations = annotated(decision, "abcdefgh")
    texts = [*annotations, *annotations.values()]
    assert sum(len(text.encode()) for text in texts) <= MAX_BYTES
    advice = msgspec.json.decode(annotations[ADVICE_ANNOTATION], type=Advice)
    assert advice.policies == tuple(policies)[: len(advice.policies)]
    assert advice.candidates == 8
    estimated = msgspec.json.decode(annotations.get(ESTIMATED_USAGE_ANNOTATION, "{}"))
    assert estimated.keys() <= estimate.keys()
