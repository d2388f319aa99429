from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.documents.places import read_documents
from engine.documents.validation import several_mistakes, validate_model
from engine.policy.schema import Model


def _no_b(words: Sequence[str]) -> Sequence[str]:
    wrong = [i for i, word in enumerate(words) if word == "b"]
    if wrong:
        raise several_mistakes(((i,), "no `b` here") for i in wrong)
    return words


class _Leaf(Model):
    some_size: int = 0


class _Whole(Model):
    leaves: dict[str, tuple[_Leaf, ...]] = Field(default_factory=dict)
    words: Annotated[tuple[str, ...], AfterValidator(_no_b)] = ()


def _told(text: str, at: tuple[str | int, ...] = ()) -> list[tuple[int, int, str, str]]:
    (document,) = read_documents(text.encode(), "f.yaml")
    value = document.value
    for step in at:
        assert isinstance(value, dict)
        value = value[step]
    _, problems = validate_model(_Whole, value, document, at)
    return [(one.line, one.column, one.message, one.hint) for one in problems]


def test_what_is_right_comes_back_as_the_model() -> None:
    (document,) = read_documents(b"words: [a]", "f.yaml")
    assert validate_model(_Whole, document.value, document) == (_Whole(words=("a",)), [])


def test_a_key_deep_inside_is_compared_with_the_keys_of_its_own_model() -> None:
    text = "leaves:\n  x:\n  - someSise: 1\n"
    assert _told(text) == [(3, 5, "unknown key `someSise`", "did you mean `someSize`?")]


def test_a_part_of_a_document_is_reported_where_it_stands_in_the_whole() -> None:
    assert _told("part:\n  words: 1", ("part",)) == [(2, 10, "expected a list", "")]


def test_a_validator_may_report_several_places_below_its_own() -> None:
    assert _told("words: [a, b, c, b]") == [
        (1, 12, "no `b` here", ""),
        (1, 18, "no `b` here", ""),
    ]


def test_only_the_first_hundred_mistakes_are_reported() -> None:
    assert len(_told("\n".join(f"k{i}: 1" for i in range(1000)))) == 100
