from __future__ import annotations

from functools import reduce
from itertools import product
from operator import and_, or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.label_condition import (
    ALWAYS,
    EVERYTHING,
    INTEGERS,
    MISSING,
    MOST_REQUIREMENTS,
    MOST_TERMS,
    MOST_VALUES,
    NEVER,
    NOTHING,
    PRESENT,
    Exactness,
    LabelCondition,
    LabelStates,
    on_label,
    states_of,
    unknown,
)
from engine.model.selectors import Operator, Requirement, is_label_value

VALUES = ("", "x", "y", "0", "00", "3", "03", "4", str(2**63 - 1), str(2**63))
STATES = (None, *VALUES, "z")
BOUNDS = (0, 1, 3, 4, 5, 2**63 - 1, 2**63)


def holds(states: LabelStates, state: str | None) -> bool:
    return states.missing if state is None else states.allows(state)


ranges = (
    st.tuples(st.sampled_from(BOUNDS), st.sampled_from(BOUNDS))
    .map(sorted)
    .map(lambda ends: range(*ends))
)
value_sets = st.frozensets(st.sampled_from(VALUES), max_size=3)
texts = st.builds(LabelStates, missing=st.booleans(), others=st.booleans(), listed=value_sets)
numbers = st.builds(
    lambda missing, listed, numbers: (
        # Only what the algebra itself makes: `&` leaves no value listed that is no such number.
        LabelStates(missing=missing, others=True, listed=listed)
        & LabelStates(missing=True, others=True, numbers=numbers)
    ),
    st.booleans(),
    value_sets,
    ranges,
)
label_states = texts | numbers


@given(label_states, label_states)
def test_both_of_two_sets_are_the_states_in_each(one: LabelStates, two: LabelStates) -> None:
    both = one & two
    assert all(holds(both, state) == (holds(one, state) and holds(two, state)) for state in STATES)


@given(label_states, label_states)
def test_two_sets_united_are_the_states_in_either(one: LabelStates, two: LabelStates) -> None:
    either = one.united(two)
    if either is not None:
        for state in STATES:
            assert holds(either, state) == (holds(one, state) or holds(two, state))


@given(texts, texts)
def test_sets_of_texts_can_always_be_united(one: LabelStates, two: LabelStates) -> None:
    assert one.united(two) is not None


@given(label_states, label_states)
def test_a_set_within_another_has_no_state_of_its_own(one: LabelStates, two: LabelStates) -> None:
    if one <= two:
        assert all(holds(two, state) for state in STATES if holds(one, state))


@given(label_states)
def test_requirements_ask_for_the_states_and_no_others(states: LabelStates) -> None:
    parts = [part.requirements("k") for part in states.parts()]
    assert len(parts) == states.width
    for state in STATES:
        met = sum(all(one.matches(state) for one in part) for part in parts)
        assert met == holds(states, state)  # parts are disjoint: one of them at most is met


@given(label_states)
def test_states_are_read_back_from_their_requirements(states: LabelStates) -> None:
    for part in states.parts():
        together = EVERYTHING
        for requirement in part.requirements("key"):
            together &= states_of(requirement)
        assert all(holds(together, state) == holds(part, state) for state in STATES)


@given(label_states)
def test_requirements_can_be_written(states: LabelStates) -> None:
    for part in states.parts():
        for one in part.requirements("k"):
            ordered = one.operator in {Operator.GT, Operator.LT}
            assert is_label_value(str(one.bound)) if ordered else not one.bound
            assert all(map(is_label_value, one.values))
            assert bool(one.values) == (one.operator in {Operator.IN, Operator.NOT_IN})


def integers(start: int, stop: int) -> LabelStates:
    return LabelStates(others=True, numbers=range(start, stop))


@pytest.mark.parametrize(
    ("states", "asked"),
    [
        (integers(4, 2**63), [("Gt", 3)]),
        (integers(0, 4), [("Lt", 4)]),
        (integers(3, 4), [("Gt", 2), ("Lt", 4)]),  # 3 has many spellings, 03 among them
    ],
)
def test_integers_are_asked_for_between_bounds(
    states: LabelStates, asked: list[tuple[str, int]]
) -> None:
    expected = tuple(Requirement("k", Operator(name), bound=bound) for name, bound in asked)
    assert [part.requirements("k") for part in states.parts()] == [expected]


def test_any_integer_is_0_or_more_than_0() -> None:
    zero, positive = LabelStates(others=True, numbers=INTEGERS).parts()
    assert zero.requirements("k") == (Requirement("k", Operator.LT, bound=1),)
    assert positive.requirements("k") == (Requirement("k", Operator.GT, bound=0),)


def test_ranges_that_touch_are_one() -> None:
    assert integers(0, 4).united(integers(4, 9)) == integers(0, 9)
    assert integers(0, 4).united(integers(5, 9)) is None


def test_the_plainest_sets() -> None:
    assert [part.requirements("k") for part in EVERYTHING.parts()] == [()]
    assert NOTHING.parts() == ()
    assert PRESENT.requirements("k") == (Requirement("k", Operator.EXISTS),)
    assert MISSING.requirements("k") == (Requirement("k", Operator.DOES_NOT_EXIST),)
    assert PRESENT.united(MISSING) == EVERYTHING
    assert PRESENT & MISSING == NOTHING


KEYS = ("a", "b", "c")
LABEL_CONDITION_STATES = (None, "", "x", "4", "7")
NODES = [
    {key: value for key, value in zip(KEYS, states, strict=True) if value is not None}
    for states in product(LABEL_CONDITION_STATES, repeat=len(KEYS))
]

states = st.one_of(
    st.builds(
        LabelStates,
        missing=st.booleans(),
        others=st.booleans(),
        listed=st.frozensets(st.sampled_from(("", "x", "4")), max_size=2),
    ),
    st.sampled_from((range(5), range(5, 2**63), range(2**63))).map(
        lambda numbers: LabelStates(others=True, numbers=numbers)
    ),
)
leaves = st.builds(on_label, st.sampled_from(KEYS), states)
conditions = st.recursive(
    leaves,
    lambda smaller: st.builds(and_, smaller, smaller) | st.builds(or_, smaller, smaller),
    max_leaves=6,
)


def one_of(*values: str) -> LabelStates:
    return LabelStates(listed=frozenset(values))


def none_of(*values: str) -> LabelStates:
    return LabelStates(missing=True, others=True, listed=frozenset(values))


def allowed(condition: LabelCondition) -> list[bool]:
    return [condition.allows(labels) for labels in NODES]


@given(conditions, conditions)
def test_a_node_meets_both_if_it_meets_each(one: LabelCondition, two: LabelCondition) -> None:
    expected = list(map(and_, allowed(one), allowed(two)))
    both = one & two
    if both.exactness is Exactness.EXACT:
        assert allowed(both) == expected
    else:
        assert allowed(both) == list(map(or_, expected, allowed(both)))


@given(conditions, conditions)
def test_a_node_meets_either_if_it_meets_one(one: LabelCondition, two: LabelCondition) -> None:
    expected = list(map(or_, allowed(one), allowed(two)))
    either = one | two
    if either.exactness is Exactness.EXACT:
        assert allowed(either) == expected
    else:
        assert allowed(either) == list(map(or_, expected, allowed(either)))


@given(conditions)
def test_no_condition_takes_more_terms_than_may_be_written(condition: LabelCondition) -> None:
    assert len(condition.terms) <= condition.width <= MOST_TERMS


def test_values_of_a_label_are_gathered_in_one_requirement() -> None:
    zones = reduce(or_, (on_label("zone", one_of(zone)) for zone in "abcdefghijkl"))
    (term,) = zones.terms
    assert term == (Requirement("zone", Operator.IN, frozenset("abcdefghijkl")),)


def test_an_alternative_that_another_covers_is_dropped() -> None:
    condition = on_label("a", PRESENT) & on_label("b", PRESENT) | on_label("a", PRESENT)
    assert condition == on_label("a", PRESENT)


def test_alternatives_that_make_up_everything_ask_for_nothing() -> None:
    assert on_label("a", PRESENT) | on_label("a", MISSING) == ALWAYS
    assert ALWAYS.terms == ((),)


def test_contradictions_leave_no_alternative() -> None:
    assert on_label("a", one_of("x", "y")) & on_label("a", none_of("x", "y")) == NEVER
    assert NEVER.terms == ()
    assert NEVER.exactness is Exactness.EXACT


def test_a_label_that_is_missing_or_has_a_value_takes_two_terms() -> None:
    condition = on_label("a", LabelStates(missing=True, listed=frozenset("x")))
    assert condition.terms == (
        (Requirement("a", Operator.DOES_NOT_EXIST),),
        (Requirement("a", Operator.IN, frozenset("x")),),
    )


def test_requirements_stand_in_the_order_of_their_labels() -> None:
    condition = on_label("b", PRESENT) & on_label("a", none_of("x")) & on_label("c", MISSING)
    ((first, second, third),) = condition.terms
    assert (first.key, second.key, third.key) == ("a", "b", "c")


def test_what_is_unknown_beside_a_label_leaves_the_label() -> None:
    condition = on_label("a", PRESENT) & unknown("usage")
    assert condition.exactness is Exactness.PARTIAL
    assert condition.reasons == ("usage",)
    assert condition.terms == on_label("a", PRESENT).terms


def test_what_is_unknown_instead_of_a_label_leaves_nothing() -> None:
    condition = on_label("a", PRESENT) | unknown("usage")
    assert condition.exactness is Exactness.NONE
    assert condition.terms == ((),)


def test_what_is_unknown_does_not_matter_where_labels_decide() -> None:
    assert (unknown("usage") & NEVER) == NEVER
    assert (unknown("usage") | ALWAYS) == ALWAYS
    gpu = on_label("gpu", PRESENT)
    assert gpu | (gpu & unknown("usage")) == gpu


def clause(number: int) -> LabelCondition:
    """Return an alternative of two labels that no other clause names."""
    return on_label(f"a{number}", PRESENT) | on_label(f"b{number}", PRESENT)


def test_a_condition_of_too_many_terms_is_widened_and_says_so() -> None:
    # Three clauses of two alternatives come to 8 terms, a fourth to 16.
    three = clause(1) & clause(2) & clause(3)
    assert len(three.terms) == 8
    assert three.exactness is Exactness.EXACT
    assert three.meet(clause(4)) is None
    four = three & clause(4)
    assert four.exactness is Exactness.PARTIAL
    assert four.terms == clause(4).terms
    assert (three | clause(4)).exactness is Exactness.NONE


def test_what_cannot_be_written_says_nothing() -> None:
    values = on_label("a", one_of(*(f"v{i}" for i in range(MOST_VALUES))))
    assert values.bounded() is values
    assert (values | on_label("a", one_of("w"))).bounded().exactness is Exactness.NONE
    labels = reduce(and_, (on_label(f"k{i}", PRESENT) for i in range(MOST_REQUIREMENTS)))
    assert labels.bounded() is labels
    assert (labels & on_label("k", PRESENT)).bounded().exactness is Exactness.NONE
