from __future__ import annotations

import pytest

from engine.model.selector_text import parse_selector_text

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
