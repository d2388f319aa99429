from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from engine.placement.affinity import affinity_tree, and_into_required, graft

ZONE: dict[str, Any] = {"key": "zone", "operator": "In", "values": ["a"]}
NOT_H1: dict[str, Any] = {"key": "host", "operator": "NotIn", "values": ["h1"]}
EXISTS: dict[str, Any] = {"key": "gpu", "operator": "DoesNotExist", "values": []}
NAME: dict[str, Any] = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
PREFER: dict[str, Any] = {"weight": 5, "preference": {"matchExpressions": [ZONE]}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Json = dict[str, Any]


def grafted(document: Json, tree: Json) -> tuple[Json, list[str]]:
    """Return the document with the tree in it, and the paths of the operations that did it."""
    operations = list(graft(document, tree, ""))
    return jsonpatch.apply_patch(document, operations), [each["path"] for each in operations]


def terms_after(terms: list[Any] | None, *requirements: Json) -> list[Any]:
    """Return required terms after requirements were added to them."""
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    operations = list(and_into_required(affinity, [requirements]))
    pod = jsonpatch.apply_patch({"spec": {"affinity": affinity}}, operations)
    after: list[Any] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return after


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({}, "/a"),
        ({"a": None}, "/a"),
        ({"a": {}}, "/a/b"),
        ({"a": {"b": None, "other": 1}}, "/a/b"),
        ({"a": {"b": {}}}, "/a/b/c"),
        ({"a": {"b": {"c": None}}}, "/a/b/c"),
        ({"a": {"b": {"c": []}}}, "/a/b/c/-"),
    ],
)
def test_the_lowest_missing_parent_is_added_whole(document: Json, path: str) -> None:
    after, paths = grafted(document, {"a": {"b": {"c": [1]}}})
    assert after["a"]["b"]["c"] == [1]
    assert paths == [path]


def test_lists_are_appended_to_in_order() -> None:
    after, paths = grafted({"a": [1]}, {"a": [2, 3]})
    assert after == {"a": [1, 2, 3]}
    assert paths == ["/a/-", "/a/-"]


def test_slashes_and_tildes_of_a_key_are_escaped() -> None:
    after, paths = grafted({"a": {}}, {"a": {"stowplan.dev/x~y": "1"}})
    assert after == {"a": {"stowplan.dev/x~y": "1"}}
    assert paths == ["/a/stowplan.dev~1x~0y"]


def test_every_term_that_is_not_empty_gets_every_requirement() -> None:
    terms = [{"matchExpressions": [ZONE]}, {"matchExpressions": [EXISTS], "matchFields": [NAME]}]
    assert terms_after(terms, NOT_H1, EXISTS) == [
        {"matchExpressions": [ZONE, NOT_H1, EXISTS]},
        {"matchExpressions": [EXISTS, NOT_H1, EXISTS], "matchFields": [NAME]},
    ]


@pytest.mark.parametrize("missing", [{}, {"matchExpressions": None}, {"matchExpressions": []}])
def test_a_term_with_fields_alone_gets_expressions(missing: Json) -> None:
    term = {"matchFields": [NAME], **missing}
    assert terms_after([term], NOT_H1) == [{"matchFields": [NAME], "matchExpressions": [NOT_H1]}]


@pytest.mark.parametrize(
    "empty", [None, {}, {"matchExpressions": None}, {"matchExpressions": [], "matchFields": []}]
)
def test_an_empty_term_matches_nothing_and_stays_so(empty: Json | None) -> None:
    assert terms_after([empty, {"matchFields": [NAME]}], NOT_H1)[0] == empty


@pytest.mark.parametrize("terms", [None, []])
def test_a_selector_without_terms_matches_nothing_and_stays_so(terms: list[Any] | None) -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    assert list(and_into_required(affinity, [[NOT_H1]])) == []
    assert affinity_tree(affinity, [[NOT_H1]], []) == {}


@pytest.mark.parametrize(
    "affinity", [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {REQUIRED: None}}]
)
def test_without_required_affinity_there_is_one_new_term(affinity: Json | None) -> None:
    new = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NOT_H1]}]}}
    assert affinity_tree(affinity, [[NOT_H1]], []) == {"nodeAffinity": new}
    assert list(and_into_required(affinity, [[NOT_H1]])) == []


def test_nothing_to_add_is_no_empty_object() -> None:
    assert affinity_tree(None, [], []) == {}


def test_preferred_terms_need_no_required_ones() -> None:
    assert affinity_tree(None, [], [PREFER]) == {"nodeAffinity": {PREFERRED: [PREFER]}}
