from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from engine.model.selectors import (
    Operator,
    Requirement,
    integer,
    is_label_key,
    is_label_value,
    named_nodes,
    parse_label_selector,
    parse_node_selector,
    parse_preferred_terms,
    parse_selector_text,
)

_EXPRESSION = "nodeSelectorTerms[0].matchExpressions[0]"
_FIELD = "nodeSelectorTerms[0].matchFields[0]"


def _requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def _expressions(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(requirements)}


def _fields(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"matchFields": list(requirements)}


def _selector(*terms: dict[str, Any]) -> api.NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": list(terms)}, api.NodeSelector)


def _label_selector(**parts: Any) -> api.LabelSelector:  # noqa: ANN401 (JSON)
    return msgspec.convert(parts, api.LabelSelector)


def _preferred(weight: int, preference: dict[str, Any]) -> api.PreferredSchedulingTerm:
    term = {"weight": weight, "preference": preference}
    return msgspec.convert(term, api.PreferredSchedulingTerm)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (_requirement("a", "In", "x", ""), []),
        (_requirement("a", "In"), [("Invalid", ".values")]),
        (_requirement("a", "NotIn"), [("Invalid", ".values")]),
        (_requirement("a", "Exists", "x"), [("Invalid", ".values")]),
        (_requirement("a", "DoesNotExist", "x"), [("Invalid", ".values")]),
        (_requirement("a", "Gt"), [("Invalid", ".values")]),
        (_requirement("a", "Lt", "1", "2"), [("Invalid", ".values")]),
        (_requirement("a", "Gt", "one"), [("Invalid", ".values[0]")]),
        # An integer, but no label value may start with a sign.
        (_requirement("a", "Gt", "-1"), [("Invalid", ".values[0]")]),
        (_requirement("a", "Gt", "a b"), [("Invalid", ".values[0]"), ("Invalid", ".values[0]")]),
        (_requirement("a", "In", "x", "y" * 64), [("Invalid", ".values[1]")]),
        (_requirement("a" * 64, "Exists"), [("Invalid", ".key")]),
        (_requirement("", "In"), [("Invalid", ".key"), ("Invalid", ".values")]),
        # Nothing else is looked at once the operator is unknown.
        (_requirement("a b", "in", "?"), [("NotSupported", ".operator")]),
    ],
)
def test_each_mistake_in_a_label_requirement_has_its_kind_and_place(
    requirement: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    _, mistakes = parse_node_selector(_selector(_expressions(requirement)))
    assert [(wrong.kind, wrong.field) for wrong in mistakes] == [
        (kind, _EXPRESSION + field) for kind, field in expected
    ]


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (_requirement("metadata.name", "In", "n1"), []),
        (_requirement("metadata.name", "In", "n1", "n2"), [("Invalid", ".values")]),
        (_requirement("metadata.name", "NotIn"), [("Invalid", ".values")]),
        (_requirement("metadata.name", "Exists"), [("NotSupported", ".operator")]),
    ],
)
def test_each_mistake_in_a_field_requirement_has_its_kind_and_place(
    requirement: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    _, mistakes = parse_node_selector(_selector(_fields(requirement)))
    assert [(wrong.kind, wrong.field) for wrong in mistakes] == [
        (kind, _FIELD + field) for kind, field in expected
    ]


def test_a_mistake_reads_as_a_place_and_what_is_wrong_there() -> None:
    _, (mistake,) = parse_node_selector(
        _selector(_expressions(_requirement("gen", "Gt", "x"))), ("spec",)
    )
    assert str(mistake) == (
        "spec.nodeSelectorTerms[0].matchExpressions[0].values[0]: `x` is not a 64-bit integer"
    )


def test_a_bad_term_matches_nothing_and_leaves_the_others_alone() -> None:
    selector, mistakes = parse_node_selector(
        _selector(
            _expressions(_requirement("zone", "NotIn", "not a value")),
            _expressions(_requirement("zone", "In", "a")),
        )
    )
    assert len(mistakes) == 1
    assert selector.matches({"zone": "a"}, "n1")
    assert not selector.matches({"zone": "b"}, "n1")


@pytest.mark.parametrize("terms", [[], [{}], [{"matchExpressions": [], "matchFields": None}]])
def test_a_selector_without_requirements_selects_no_node(terms: list[dict[str, Any]]) -> None:
    selector, mistakes = parse_node_selector(_selector(*terms))
    assert not selector.matches({"zone": "a"}, "n1")
    assert not mistakes


def test_one_term_must_match_and_in_it_every_requirement() -> None:
    in_a = _requirement("zone", "In", "a")
    selector, _ = parse_node_selector(
        _selector(
            {**_expressions(in_a), **_fields(_requirement("metadata.name", "NotIn", "n1"))},
            _expressions(in_a, _requirement("gen", "Gt", "3")),
        )
    )
    assert not selector.matches({"zone": "a"}, "n1")
    assert selector.matches({"zone": "a"}, "n2")
    assert selector.matches({"zone": "a", "gen": "4"}, "n1")
    assert not selector.matches({"zone": "b", "gen": "4"}, "n2")


def test_a_field_that_a_node_does_not_have_reads_as_empty() -> None:
    selector, _ = parse_node_selector(_selector(_fields(_requirement("spec.x", "NotIn", "y"))))
    assert selector.matches({}, "n1")


@pytest.mark.parametrize(
    ("operator", "values", "holds_for", "fails_for"),
    [
        ("In", ["a", ""], ["a", ""], ["b", None]),
        ("NotIn", ["a"], ["b", "", None], ["a"]),
        ("Exists", [], ["a", ""], [None]),
        ("DoesNotExist", [], [None], ["a", ""]),
        ("Gt", ["0204"], ["205", "0205", "+205"], ["204", "-999", "205.0", "x", "", None]),
        ("Lt", ["1"], ["0", "-5"], ["1", "2", "x", "", None, str(-(2**63) - 1)]),
    ],
)
def test_operators_hold_for_the_values_they_name(
    operator: str,
    values: list[str],
    holds_for: list[str | None],
    fails_for: list[str | None],
) -> None:
    selector, _ = parse_node_selector(_selector(_expressions(_requirement("k", operator, *values))))
    (requirement,) = selector.terms[0].labels
    assert [value for value in [*holds_for, *fails_for] if requirement.matches(value)] == holds_for


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("0204", 204),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("0" * 9000 + "1", 1),
    ],
)
def test_base_10_integers_are_read(text: str, number: int) -> None:
    assert integer(text) == number


@pytest.mark.parametrize(
    "text", ["", "+", "1_0", " 1", "1\n", "1.0", "0x1", "٣", "--1", str(2**63), "9" * 9000]
)
def test_other_texts_are_no_integers(text: str) -> None:
    assert integer(text) is None


@pytest.mark.parametrize(
    "key", ["a", "A-b_c.d", "example.com/a", "1.x-y/9", "a" * 63, "a" * 253 + "/b"]
)
def test_qualified_names_are_label_keys(key: str) -> None:
    assert is_label_key(key)


@pytest.mark.parametrize(
    "key",
    [
        *["", "-a", "a-", "a b", "ä", "a\n", "a" * 64],
        *["/a", "a/", "a/b/c", "Example.com/a", "a..b/c", "a" * 254 + "/b"],
    ],
)
def test_other_texts_are_no_label_keys(key: str) -> None:
    assert not is_label_key(key)


def test_a_label_value_may_be_empty_but_not_long_or_odd() -> None:
    assert is_label_value("")
    assert is_label_value("a" * 63)
    assert not is_label_value("a" * 64)
    assert not is_label_value("a/b")


def test_an_empty_label_selector_selects_everything() -> None:
    selector, mistakes = parse_label_selector(api.LabelSelector())
    assert selector.matches({})
    assert selector.matches({"a": "b"})
    assert not mistakes


def test_pairs_and_expressions_of_a_label_selector_must_all_hold() -> None:
    selector, mistakes = parse_label_selector(
        _label_selector(
            matchLabels={"team": "x"}, matchExpressions=[_requirement("tier", "NotIn", "gold")]
        )
    )
    assert not mistakes
    assert selector.matches({"team": "x"})
    assert not selector.matches({"team": "x", "tier": "gold"})
    assert not selector.matches({"tier": "silver"})


def test_mistakes_in_a_label_selector_are_all_reported_where_they_stand() -> None:
    _, mistakes = parse_label_selector(
        _label_selector(
            matchLabels={"team": "a b", "ok": "x", "no key": "x"},
            matchExpressions=[_requirement("gen", "Gt", "1"), _requirement("a", "In")],
        ),
        ("spec", "match", "objectSelector"),
    )
    assert [(wrong.kind, wrong.path[3:]) for wrong in mistakes] == [
        ("Invalid", ("matchLabels", "team")),
        ("Invalid", ("matchLabels", "no key")),
        ("NotSupported", ("matchExpressions", 0, "operator")),
        ("Invalid", ("matchExpressions", 1, "values")),
    ]


def test_preferred_terms_that_add_nothing_are_not_even_read() -> None:
    terms, mistakes = parse_preferred_terms(
        [_preferred(0, _expressions(_requirement("?", "?"))), _preferred(5, {})]
    )
    assert (terms, mistakes) == ((), ())


@pytest.mark.parametrize("weight", [-1, 101, 10**30])
def test_a_weight_out_of_range_is_a_mistake(weight: int) -> None:
    exists = _expressions(_requirement("a", "Exists"))
    terms, mistakes = parse_preferred_terms([_preferred(1, exists), _preferred(weight, exists)])
    assert [term.weight for term in terms] == [1]
    assert [wrong.field for wrong in mistakes] == ["[1].weight"]


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([], None),
        ([{}], None),
        ([_fields(_requirement("metadata.name", "In", "n1"))], {"n1"}),
        # As written, even where it is wrong: two values are not allowed in one requirement.
        ([_fields(_requirement("metadata.name", "In", "n1", "n2"))], {"n1", "n2"}),
        (
            [
                _fields(
                    _requirement("metadata.name", "In", "n1"),
                    _requirement("metadata.name", "In", "n2"),
                )
            ],
            set(),
        ),
        (
            [
                _fields(_requirement("metadata.name", "In", "n1")),
                _fields(_requirement("metadata.name", "NotIn", "n2")),
            ],
            None,
        ),
        (
            [
                _fields(_requirement("metadata.name", "In", "n1")),
                _fields(_requirement("metadata.name", "In", "n2")),
            ],
            {"n1", "n2"},
        ),
    ],
)
def test_names_narrow_the_nodes_only_when_every_term_has_some(
    terms: list[dict[str, Any]], names: set[str] | None
) -> None:
    assert named_nodes(_selector(*terms)) == names


_texts = st.sampled_from(["a", "", "1", "a b", "-1", "ä/٣"]) | st.text(max_size=3)
_wire_requirements = st.builds(
    _requirement, _texts, st.sampled_from([*Operator, "in", ""]), _texts
) | st.builds(_requirement, _texts, st.sampled_from([*Operator, "?"]))


@given(st.lists(_wire_requirements, max_size=3), st.lists(_wire_requirements, max_size=2))
def test_a_term_is_usable_exactly_when_it_has_no_mistake(
    labels: list[dict[str, Any]], fields: list[dict[str, Any]]
) -> None:
    selector, mistakes = parse_node_selector(_selector(_expressions(*labels) | _fields(*fields)))
    is_empty = not labels and not fields
    assert len(selector.terms) == (0 if mistakes or is_empty else 1)


@given(st.sets(st.text(max_size=3), min_size=1), st.none() | st.text(max_size=3))
def test_not_in_says_the_opposite_of_in(values: set[str], value: str | None) -> None:
    named = Requirement("k", Operator.IN, frozenset(values))
    others = Requirement("k", Operator.NOT_IN, frozenset(values))
    assert named.matches(value) != others.matches(value)


LABELS = {"pool": "batch", "zone": "a", "example.com/spot": "true", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("pool=batch", True),
        ("pool == batch", True),
        ("pool=web", False),
        ("pool!=web", True),
        ("pool!=batch", False),
        ("missing!=x", True),
        ("example.com/spot", True),
        ("!example.com/spot", False),
        ("!missing,pool=batch", True),
        (" zone in (a, b) , pool notin (web)", True),
        ("zone notin (a)", False),
        ("zone in(b)", False),
        ("empty=", True),
        ("pool=", False),
    ],
)
def test_a_text_selects_as_kubectl_does(text: str, *, matches: bool) -> None:
    assert parse_selector_text(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    ["a=b=c", "=b", "!", "a b", "a in b", "a in (b", ",", "a=b,", "a=b,,c", "-a", "a=-b", "a>1"],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        parse_selector_text(text)
