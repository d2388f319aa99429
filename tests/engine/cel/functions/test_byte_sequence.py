"""Sequences of bytes, against RE2 that is asked of one text after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.functions.byte_sequence import byte_sequence
from engine.cel.functions.regex import Pattern

_PARTS = ("a", "b", "1", "-", "@", r"\.", r"\^", r"\$", r"\\", r"\d", r"\w", r"\-")
_CLASSES = (
    "[ab]",
    "[05][.]",
    "[a-c.]",
    r"[\d-]",
    "[-a]",
    "[a-]",
    r"[\]\\]",
    "[.-1]",
    r"[\w$]",
)
_TEXTS = st.text(st.sampled_from("ab15.-@^$\\]é€_ \r\t\0"), max_size=6)


def sought(source: str, texts: list[str]) -> list[bool]:
    """Return which texts the sequence of bytes of a pattern is in."""
    found = byte_sequence(source)
    assert found is not None
    data = np.frombuffer("".join(f"{text}\n" for text in texts).encode(), np.uint8)
    lines: list[bool] = found.matching_lines(data, np.flatnonzero(data == ord("\n"))).tolist()
    return lines


@given(
    st.sampled_from(["", "^"]),
    st.lists(st.sampled_from(_PARTS + _CLASSES), min_size=1, max_size=4).map("".join),
    st.sampled_from(["", "$"]),
    st.lists(_TEXTS, min_size=1, max_size=10),
)
def test_a_sequence_is_found_where_its_pattern_matches(
    start: str, middle: str, end: str, texts: list[str]
) -> None:
    source = f"{start}{middle}{end}"
    pattern = Pattern(source)
    assert sought(source, texts) == [pattern.occurs_in(text) for text in texts]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("b1", [False, True, False, True]),  # no match goes on in the next text
        ("^b", [False, True, False, True]),
        ("a$", [True, False, True, False]),
        ("^a$", [True, False, False, False]),
        ("[0-9]$", [False, True, False, True]),
    ],
)
def test_texts_do_not_touch(source: str, found: list[bool]) -> None:
    assert sought(source, ["a", "b1", "ca", "bb1"]) == found


@pytest.mark.parametrize(
    "source",
    [
        *(
            "",
            "^",
            "$",
            "a*",
            "a|b",
            "(a)",
            ".",
            "[^a]",
            "[a^]",
            r"\s",
            r"\D",
            r"\bx",
            "é",
            "[é]",
            "(?i)a",
        ),
        *("a^", "$a", "a$$", r"\pL", "[[:alpha:]]", "a{2}", r"\n", r"[\n]", r"\x41", "a" * 33),
    ],
)
def test_other_patterns_are_none(source: str) -> None:
    assert byte_sequence(source) is None


def test_an_escaped_dollar_at_the_end_is_a_character() -> None:
    assert sought(r"a\$", ["a", "a$", "a$b"]) == [False, True, True]
