"""The lexer: tokens of a source text, with literals decoded."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.cel.values import INT_MAX, UINT_MAX, UInt
from engine.documents import template_hint
from engine.errors import CelSyntaxError


class Token(NamedTuple):
    """A token: `kind` is a constant below, or the text of an operator, bracket or keyword.

    `value` is the decoded literal, or the name of an identifier.
    """

    kind: str
    value: object
    offset: int


NAME: Final = "name"
QUOTED: Final = "quoted name"  # between backticks, only after a dot
INT: Final = "int"
UINT: Final = "uint"
DOUBLE: Final = "double"
STRING: Final = "string"
BYTES: Final = "bytes"
END: Final = "the end"

_MAX_DIGITS: Final = 100  # more than 64 bits need, fewer than Python refuses

_SHOWN: Final = 24  # characters of a number in a message

KEYWORDS: Final = frozenset({"true", "false", "null", "in"})

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t\n\r\f]+|//[^\n]*)
    |(?P<double>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<integer>0x[0-9a-fA-F]+|[0-9]+)(?P<unsigned>[uU])?
    |(?P<prefix>[bB]?[rR]?)(?P<quote>\"{3}|'{3}|"|')
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |`(?P<quoted>[a-zA-Z0-9_./\ -]+)`
    |(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)

# The rest of a literal after its opening quote, by quote: plain, then raw.
_BODY: Final = {
    '"': re.compile(r'((?:[^"\\\n\r]|\\[^\n\r])*)"'),
    "'": re.compile(r"((?:[^'\\\n\r]|\\[^\n\r])*)'"),
    '"""': re.compile(r'((?:[^\\]|\\.)*?)"""', re.DOTALL),
    "'''": re.compile(r"((?:[^\\]|\\.)*?)'''", re.DOTALL),
}
_RAW_BODY: Final = {
    '"': re.compile(r'([^"\n\r]*)"'),
    "'": re.compile(r"([^'\n\r]*)'"),
    '"""': re.compile(r'(.*?)"""', re.DOTALL),
    "'''": re.compile(r"(.*?)'''", re.DOTALL),
}

_ESCAPE: Final = re.compile(
    r"""\\(?:(?P<char>[abfnrtv\\?"'`])
    |[xX](?P<hex>[0-9a-fA-F]{2})
    |(?P<octal>[0-3][0-7]{2})
    |u(?P<short>[0-9a-fA-F]{4})
    |U(?P<long>[0-9a-fA-F]{8}))""",
    re.VERBOSE,
)
_CHARACTERS: Final = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of `source`, the last of kind `END`."""
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise _unexpected(source, position)
        kind = match.lastgroup
        if kind == "quote":
            token, position = _text(source, match)
            yield token
            continue
        position = match.end()
        if kind != "blank":
            yield _token(match)
    yield Token(END, None, len(source))


def _unexpected(source: str, position: int) -> CelSyntaxError:
    character = source[position]
    if character == "`":
        return CelSyntaxError(
            position,
            "a name in backticks is not closed, or has a character it may not have",
            "letters, digits, `_`, `-`, `.`, `/` and space are allowed",
        )
    if source.startswith("=~", position):
        hint = "write `x.matches('..')`"
    elif character.isspace() or not character.isprintable():
        name = unicodedata.name(character, "no character").lower()
        message = f"unexpected character U+{ord(character):04X}, {name}"
        return CelSyntaxError(position, message, "write a blank, or nothing")
    else:
        hint = _INSTEAD.get(character, "")
    hint = template_hint(source, position) or hint
    return CelSyntaxError(position, f"unexpected character `{character}`", hint)


_CURLY_QUOTES: Final = "\u2018\u2019\u201c\u201d\u201e"
_INSTEAD: Final = {
    **dict.fromkeys(_CURLY_QUOTES, "a string is written in straight quotes: `'a'`"),
    "#": "a comment begins with `//`",
    "=": "write `==` to compare",
    "&": "write `&&`",
    "|": "write `||`",
    "~": "write `x.matches('..')`",
    "^": "there is no power: write the product",
    "$": "a variable is written as it is, without a sign",
}


def _token(match: re.Match[str]) -> Token:
    offset = match.start()
    if name := match["name"]:
        return Token(name if name in KEYWORDS else NAME, name, offset)
    if mark := match["mark"]:
        return Token(mark, mark, offset)
    if quoted := match["quoted"]:
        return Token(QUOTED, quoted, offset)
    if match["double"]:
        return Token(DOUBLE, _double(match["double"], offset), offset)
    return _integer(match, offset)


def _double(text: str, offset: int) -> float:
    value = float(text)
    if math.isinf(value):
        raise CelSyntaxError(offset, f"`{text[:_SHOWN]}` is out of range of `double`")
    return value


def _integer(match: re.Match[str], offset: int) -> Token:
    text = match["integer"]
    kind = UINT if match["unsigned"] else INT
    # INT_MAX + 1 passes here: the parser refuses it, unless a minus sign precedes it.
    largest = UINT_MAX if kind is UINT else INT_MAX + 1
    value = int(text, 16 if text.startswith("0x") else 10) if len(text) <= _MAX_DIGITS else None
    if value is None or value > largest:
        raise CelSyntaxError(offset, f"`{match[0][:_SHOWN]}` is out of range of `{kind}`")
    return Token(kind, UInt(value) if kind is UINT else value, offset)


def _text(source: str, opening: re.Match[str]) -> tuple[Token, int]:
    prefix, quote = opening["prefix"].lower(), opening["quote"]
    raw, binary = "r" in prefix, "b" in prefix
    body = (_RAW_BODY if raw else _BODY)[quote].match(source, opening.end())
    if body is None:
        raise CelSyntaxError(
            opening.start(), f"the text that begins with `{opening[0]}` is not closed"
        )
    start = opening.start()
    if binary:
        content: object = _decode_bytes(body[1], opening.end(), raw=raw)
    else:
        content = body[1] if raw else _decode(body[1], opening.end())
    return Token(BYTES if binary else STRING, content, start), body.end()


def _decode(body: str, offset: int) -> str:
    return "".join(
        piece if isinstance(piece, str) else chr(piece)
        for piece in _pieces(body, offset, unicode_escapes=True)
    )


def _decode_bytes(body: str, offset: int, *, raw: bool) -> bytes:
    if raw:
        return body.encode()
    return b"".join(
        piece.encode() if isinstance(piece, str) else bytes((piece,))
        for piece in _pieces(body, offset, unicode_escapes=False)
    )


def _pieces(body: str, offset: int, *, unicode_escapes: bool) -> Iterator[str | int]:
    """Yield plain text in pieces and, for each escape, its character or number."""
    position = 0
    while (backslash := body.find("\\", position)) >= 0:
        yield body[position:backslash]
        match = _ESCAPE.match(body, backslash)
        if match is None:
            escape = body[backslash : backslash + 2]
            raise CelSyntaxError(
                offset + backslash,
                f"`{escape}` begins no escape sequence",
                "write `\\\\` for a backslash, or use a raw string, r'...'",
            )
        yield _escaped(match, offset + backslash, unicode_escapes=unicode_escapes)
        position = match.end()
    yield body[position:]


def _escaped(match: re.Match[str], offset: int, *, unicode_escapes: bool) -> str | int:
    if character := match["char"]:
        return _CHARACTERS[character]
    if octal := match["octal"]:
        return int(octal, 8)
    if digits := match["hex"]:
        return int(digits, 16)
    if not unicode_escapes:
        raise CelSyntaxError(offset, f"`{match[0]}` is not allowed in bytes")
    code = int(match["short"] or match["long"], 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:  # noqa: PLR2004 (the bounds of Unicode)
        raise CelSyntaxError(offset, f"`{match[0]}` is not a character")
    return code
