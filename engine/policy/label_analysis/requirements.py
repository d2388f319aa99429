"""What the claims of a filter come to for one pod: a condition on node labels.

Whatever depends on one label alone is found by asking the evaluator itself, once for each kind of
state that the label can be in; this module only puts the answers together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Final

from engine.cel import (
    BUDGET,
    BudgetExhaustedError,
    CelError,
    Closure,
    Frame,
    new_frame,
    operators,
)
from engine.cel.values import INT_MAX, NUMBERS
from engine.model.label_condition import ALWAYS, NEVER, LabelCondition, on_label, unknown
from engine.model.label_states import INTEGERS, MISSING, PRESENT, LabelStates
from engine.model.selectors import is_label_key, is_label_value
from engine.policy.label_analysis.label_predicate import (
    LABEL,
    QUESTIONS,
    Comparison,
    Conditional,
    Constant,
    Goal,
    Junction,
    Key,
    LabelPredicate,
    Let,
    Negation,
    Precomputed,
    Presence,
    Quantifier,
    Unknown,
)

_MOST_ELEMENTS: Final = 64
_STEPS_PER_PAIR: Final = 4  # what it costs to join two alternatives, in turns of a loop
_STEPS_PER_NUMBER: Final = 16  # and to find where a number stands among the integers
_TOO_MUCH: Final = "it takes too much to find out"
_INTEGERS: Final = LabelStates(others=True, numbers=INTEGERS)
NO_NUMBER: Final = "no requirement says that a label is missing or no such number"


def condition_of(
    claim: LabelPredicate, question: Goal, activation: Mapping[str, object]
) -> LabelCondition:
    """Return on which labels the answer to a question is yes.

    Args:
        claim: a filter.
        question: what is asked of it.
        activation: all variables that it reads, without `node`.
    """
    if isinstance(claim, Precomputed):
        return claim.answers[question]  # as every plugin's is, for every pod
    return _answer(claim, question, activation).bounded()


def settled(claim: LabelPredicate) -> Precomputed:
    """Return a claim that reads nothing but the node as what it comes to."""
    return Precomputed({question: _answer(claim, question, {}).bounded() for question in QUESTIONS})


def _answer(
    claim: LabelPredicate, question: Goal, activation: Mapping[str, object]
) -> LabelCondition:
    try:
        return _asked(claim, question, new_frame(activation))
    except (BudgetExhaustedError, RecursionError, OverflowError):
        return unknown(_TOO_MUCH)  # a filter that fails so fails as a whole: nothing absorbs it


def _asked(claim: LabelPredicate, question: Goal, frame: Frame) -> LabelCondition:  # noqa: C901 (a case per kind of claim)
    match claim:
        case Constant(value):
            return _settled(value, question, frame)
        case Presence():
            return _presence(claim, question, frame)
        case Comparison():
            return _comparison(claim, question, frame)
        case Negation(operand):
            return _asked(operand, question.of_opposite(), frame)
        case Junction(operands, of_all):
            parts = (_asked(operand, question, frame) for operand in operands)
            return _joined(parts, frame, needs_all=question.needs_all(of_all=of_all))
        case Conditional():
            return _choice(claim, question, frame)
        case Quantifier():
            return _loop(claim, question, frame)
        case Let(variable, value, body):
            inside = {name: held for name, held in frame.items() if name != variable}
            known, found = _evaluated(value, frame)
            return _asked(body, question, inside | {variable: found} if known else inside)
        case Unknown():
            return _unknown(claim, question, frame)
        case Precomputed(answers):
            return answers[question]


def _evaluated(value: Closure, frame: Frame) -> tuple[bool, object]:
    """Return whether a part can be evaluated, and what it gives.

    It gets a frame of its own, for loops write into it.
    """
    try:
        return True, value(frame.copy())
    except BudgetExhaustedError:
        raise
    except CelError:
        return False, None


def _settled(value: Closure, question: Goal, frame: Frame) -> LabelCondition:
    """Return the condition of a part that is the same on every node."""
    _, answer = _evaluated(value, frame)
    return ALWAYS if question.holds(answer) else NEVER


def _failing(question: Goal) -> LabelCondition:
    """Return the condition of a part that fails on every node."""
    return ALWAYS if question.holds(None) else NEVER


# Logic.


def _joined(parts: Iterable[LabelCondition], frame: Frame, *, needs_all: bool) -> LabelCondition:
    """Return the condition that all parts hold, or that one does; looks no further than needed."""
    neutral, decisive = (ALWAYS, NEVER) if needs_all else (NEVER, ALWAYS)
    result = neutral
    for part in parts:
        pairs = len(result.alternatives) * len(part.alternatives)
        frame[BUDGET].spend(_STEPS_PER_PAIR * pairs)
        result = result & part if needs_all else result | part
        if result == decisive:
            break
    return result


def _choice(claim: Conditional, question: Goal, frame: Frame) -> LabelCondition:
    """Return the condition of either branch, each where the test leads to it."""
    never_taken = ALWAYS if question.negated else NEVER
    branches = []
    for taken_on, part in ((True, claim.then), (False, claim.otherwise)):
        branch = _asked(claim.test, Goal(taken_on, question.negated), frame)
        if branch != never_taken:
            both = (branch, _asked(part, question, frame))
            branch = _joined(both, frame, needs_all=not question.negated)
        branches.append(branch)
    return _joined(branches, frame, needs_all=question.negated)


def _loop(claim: Quantifier, question: Goal, frame: Frame) -> LabelCondition:
    _, range_ = _evaluated(claim.elements, frame)
    try:
        turns = list(islice(_turns(claim.variables, range_), _MOST_ELEMENTS + 1))
    except CelError:
        return _failing(question)
    if len(turns) > _MOST_ELEMENTS:
        return unknown(f"it loops over more than {_MOST_ELEMENTS} elements")
    frame[BUDGET].spend(len(turns))
    parts = (_asked(claim.predicate, question, frame | turn) for turn in turns)
    return _joined(parts, frame, needs_all=question.needs_all(of_all=claim.of_all))


def _turns(variables: tuple[str, ...], range_: object) -> Iterator[Frame]:
    """Yield what the variables of a loop hold, turn by turn."""
    if len(variables) == 1:
        for element in operators.elements(range_):
            yield {variables[0]: element}
    else:
        for pair in operators.pairs(range_):
            yield dict(zip(variables, pair, strict=True))


# Labels.


def _presence(claim: Presence, question: Goal, frame: Frame) -> LabelCondition:
    key = _label_key(claim.key, frame)
    if key is None:
        return _settled(claim.without, question, frame)
    return on_label(key, PRESENT if question.value is not question.negated else MISSING)


def _unknown(claim: Unknown, question: Goal, frame: Frame) -> LabelCondition:
    """Return the condition of a part that fails without some labels, and may else give anything."""
    if question.negated:
        return unknown(claim.reason)
    keys = [_label_key(key, frame) for key in claim.reads]
    parts = (NEVER if key is None else on_label(key, PRESENT) for key in keys)
    return _joined(parts, frame, needs_all=True).widened(claim.reason)


def _label_key(key: Key, frame: Frame) -> str | None:
    """Return the name of a label; None if it has none, or one that no label can have."""
    _, name = _evaluated(key.value, frame)
    return name if isinstance(name, str) and is_label_key(name) else None


def _comparison(claim: Comparison, question: Goal, frame: Frame) -> LabelCondition:
    key = _label_key(claim.key, frame)
    known, other = _evaluated(claim.other, frame)
    if key is None or not known:
        return _failing(question)
    constants = list(other) if isinstance(other, list | tuple | dict) else [other]
    if len(constants) > _MOST_ELEMENTS:
        return unknown(f"it compares a label with more than {_MOST_ELEMENTS} values")
    frame[BUDGET].spend(len(constants) * (_STEPS_PER_NUMBER if claim.numeric else 1))

    def holds(value: str) -> bool:
        _, answer = _evaluated(claim.test, frame | {LABEL: value})
        return question.holds(answer)

    if not claim.numeric:
        return on_label(key, _texts(constants, holds, missing=question.holds(None)))
    numbers = (on_label(key, states) for states in _numbers(constants, holds))
    condition = _joined(numbers, frame, needs_all=False)
    if not question.negated:
        return condition
    return ALWAYS if condition == on_label(key, _INTEGERS) else unknown(NO_NUMBER)


def _texts(
    constants: Iterable[object], holds: Callable[[str], bool], *, missing: bool
) -> LabelStates:
    """Return the values that will do in a comparison with constants.

    Texts that are none of the constants are alike to it, so one of them speaks for all.
    """
    texts = {one for one in constants if isinstance(one, str) and is_label_value(one)}
    others = holds("x" * (max(map(len, texts), default=0) + 1))
    listed = frozenset(text for text in texts if holds(text) is not others)
    return LabelStates(missing=missing, others=others, listed=listed)


def _numbers(constants: Iterable[object], holds: Callable[[str], bool]) -> Iterator[LabelStates]:
    """Yield the ranges of integers that will do in a comparison with constants.

    Integers are alike to it if each constant is greater than both, equal to both or less than both:
    then the least of them speaks for all.
    """
    borders = {INTEGERS.start, INTEGERS.stop}
    for constant in constants:
        if type(constant) in NUMBERS:
            borders |= _borders(constant)
    for start, stop in pairwise(sorted(borders)):
        if holds(str(start)):
            yield LabelStates(others=True, numbers=range(start, stop))


def _borders(number: object) -> set[int]:
    """Return the least integers that are not less than a number, and greater than it."""
    if isinstance(number, int):
        borders = (int(number), int(number) + 1)
        return {min(max(border, INTEGERS.start), INTEGERS.stop) for border in borders}
    tests = (lambda i: not operators.less(i, number), lambda i: operators.greater(i, number))
    return {bisect_left(range(INT_MAX), x=True, key=test) for test in tests}
