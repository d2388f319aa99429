from __future__ import annotations

import pytest

from engine.cel import CelSyntaxError, UInt
from engine.cel.lexer import tokens


def _value(source: str) -> object:
    first, _end = tokens(source)
    return first.value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("12", 12),
        ("0x1F", 31),
        ("7u", UInt(7)),
        ("0xFFU", UInt(255)),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("2.5E-1", 0.25),
        (r"'a\n\t\\\'\"\?\`'", "a\n\t\\'\"?`"),
        (r"'\x41\101\u0041\U00000041'", "AAAA"),
        (r"'\xff'", "\xff"),  # in a string: a character
        (r"b'\xff\377'", b"\xff\xff"),  # in bytes: a byte
        ("b'ÿ'", "ÿ".encode()),
        (r"r'\n'", r"\n"),
        (r"bR'\n'", rb"\n"),
        ("'''a'b\n'''", "a'b\n"),
        ('"""a"b"""', 'a"b'),
        ('r"""\\"""', "\\"),
    ],
)
def test_literals_are_decoded(source: str, value: object) -> None:
    assert _value(source) == value
    assert type(_value(source)) is type(value)


def test_blanks_and_comments_are_skipped() -> None:
    kinds = [token.kind for token in tokens("a // b\n\t+ c\r\n\f// end")]
    assert kinds == ["name", "+", "name", "the end"]


@pytest.mark.parametrize(
    ("source", "offset"),
    [
        (r"'a\q'", 2),
        (r"'\ud800'", 1),  # half a surrogate pair
        (r"'\U00110000'", 1),  # beyond Unicode
        (r"b'\u0041'", 2),
        (r"'\400'", 1),  # three octal digits reach 377
        ("'a\nb'", 0),
        ("18446744073709551616u", 0),
        ("1e999", 0),
        ("9" * 8000, 0),
        ("a.`b!`", 2),
        ("é", 0),
        ("\x00", 0),
    ],
)
def test_a_malformed_token_is_reported_where_it_is(source: str, offset: int) -> None:
    with pytest.raises(CelSyntaxError) as caught:
        list(tokens(source))
    assert caught.value.problems[0].offset == offset
