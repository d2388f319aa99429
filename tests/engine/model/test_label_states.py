from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.label_states import (
    EVERYTHING,
    INTEGERS,
    MISSING,
    NOTHING,
    PRESENT,
    LabelStates,
    states_of,
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
