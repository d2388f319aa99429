from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.model.advice import ADVICE_ANNOTATION, Advice, advice_in
from engine.placement import Patch, PatchTemplate, SharedPatch, advice_id, encode
from engine.placement.annotations import advice_text
from tests.engine.placement.cluster import (
    Json,
    decided,
    named,
    preferred,
    request_of,
    view_of,
    with_affinity,
)

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
