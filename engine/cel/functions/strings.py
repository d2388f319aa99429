"""The strings extension, without `format`: positions count code points."""

from __future__ import annotations

from typing import Final

from engine.cel.budget import Budget
from engine.cel.errors import CelError
from engine.cel.functions.registry import Overload
from engine.cel.operators import no_overload
from engine.cel.values import INT, STRING, CelType

# Unicode's property White_Space; Python's `strip` removes four more control characters.
_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER: Final = {ord(letter): letter.upper() for letter in "abcdefghijklmnopqrstuvwxyz"}
_QUOTED: Final = str.maketrans(
    {
        "\a": r"\a",
        "\b": r"\b",
        "\f": r"\f",
        "\n": r"\n",
        "\r": r"\r",
        "\t": r"\t",
        "\v": r"\v",
        "\\": r"\\",
        '"': r"\"",
    }
)
_STRINGS: Final = CelType("list", (STRING,))


def _check_position(text: str, position: int) -> None:
    if not 0 <= position <= len(text):
        raise CelError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    _check_position(text, position)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    _check_position(text, start)
    return text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_of_from(text: str, part: str, start: int) -> int:
    _check_position(text, start)
    return text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int) -> str:
    _check_position(text, start)
    return text[start:]


def _substring_to(text: str, start: int, end: int) -> str:
    _check_position(text, start)
    _check_position(text, end)
    if start > end:
        raise CelError(f"invalid substring range: {start} to {end}")
    return text[start:end]


def _replace(budget: Budget, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old)
    replaced = count if limit < 0 else min(count, limit)
    budget.check_text(len(text) + replaced * (len(new) - len(old)))
    return text.replace(old, new, replaced)


def _split(budget: Budget, text: str, separator: str, limit: int = -1) -> list[str]:
    pieces = text.count(separator) + 1 if separator else len(text)
    pieces = pieces if limit < 0 else min(pieces, limit)
    budget.check_items(pieces)
    if pieces == 0:
        return []
    if separator:
        return text.split(separator, pieces - 1)
    return [*text[: pieces - 1], text[pieces - 1 :]]


def _join(budget: Budget, parts: list[str], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise no_overload("join", parts)
    length = sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0)
    budget.check_text(length)
    return separator.join(parts)


def _trim(text: str) -> str:
    return text.strip(_BLANKS)


def _lower(text: str) -> str:
    return text.translate(_LOWER)


def _upper(text: str) -> str:
    return text.translate(_UPPER)


def _reverse(text: str) -> str:
    return text[::-1]


def _quote(budget: Budget, text: str) -> str:
    quoted = f'"{text.translate(_QUOTED)}"'
    budget.check_text(len(quoted))
    return quoted


FUNCTIONS: Final = (
    Overload("charAt", (str, int), _char_at, member=True, result=STRING),
    Overload("indexOf", (str, str), _index_of, member=True, result=INT),
    Overload("indexOf", (str, str, int), _index_of, member=True, result=INT),
    Overload("lastIndexOf", (str, str), _last_index_of, member=True, result=INT),
    Overload("lastIndexOf", (str, str, int), _last_index_of_from, member=True, result=INT),
    Overload("substring", (str, int), _substring, member=True, result=STRING),
    Overload("substring", (str, int, int), _substring_to, member=True, result=STRING),
    Overload("replace", (str, str, str), _replace, member=True, result=STRING, budgeted=True),
    Overload("replace", (str, str, str, int), _replace, member=True, result=STRING, budgeted=True),
    Overload("split", (str, str), _split, member=True, result=_STRINGS, budgeted=True),
    Overload("split", (str, str, int), _split, member=True, result=_STRINGS, budgeted=True),
    Overload("join", (list,), _join, member=True, result=STRING, budgeted=True),
    Overload("join", (list, str), _join, member=True, result=STRING, budgeted=True),
    Overload("trim", (str,), _trim, member=True, result=STRING),
    Overload("lowerAscii", (str,), _lower, member=True, result=STRING),
    Overload("upperAscii", (str,), _upper, member=True, result=STRING),
    Overload("reverse", (str,), _reverse, member=True, result=STRING),
    Overload("strings.quote", (str,), _quote, result=STRING, budgeted=True),
)
