"""`'...'.format([...])`: clauses such as `%s`, `%d` and `%.2f`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from engine.cel.budget import Budget
from engine.cel.errors import CelError
from engine.cel.functions.conversions import string_of_bytes
from engine.cel.functions.registry import Overload
from engine.cel.times import format_duration, format_timestamp
from engine.cel.values import STRING, CelType, Duration, Timestamp, UInt, key_value, type_of

_CLAUSE: Final = re.compile(
    r"%(?:(?P<percent>%)|(?:\.(?P<precision>[0-9]{1,4}))?(?P<verb>.)?)", re.DOTALL
)
_DEFAULT_PRECISION: Final = 6
_MAX_PRECISION: Final = 1000


def check_template(template: str, args: int) -> None:
    """Check a literal template against the number of its arguments.

    Raises:
        CelError: a clause is unknown, or there are fewer or more arguments than clauses.
    """
    clauses = [clause for clause in _CLAUSE.finditer(template) if not clause["percent"]]
    for clause in clauses:
        if clause["verb"] != "s" and clause["verb"] not in _VERBS:
            raise _unknown(clause)
    if len(clauses) != args:
        takes = f"{len(clauses)} argument{'' if len(clauses) == 1 else 's'}"
        raise CelError(f"the format takes {takes}, not {args}")


def _unknown(clause: re.Match[str]) -> CelError:
    return CelError(f"unknown formatting clause `{clause[0]}`")


def _format(budget: Budget, template: str, args: Sequence[object]) -> str:
    return budget.join(_pieces(template, args))


def _pieces(template: str, args: Sequence[object]) -> Iterator[str]:
    position = used = 0
    for clause in _CLAUSE.finditer(template):
        yield template[position : clause.start()]
        position = clause.end()
        if clause["percent"]:
            yield "%"
            continue
        if used >= len(args):
            raise CelError(f"the format needs more than {used} arguments")
        yield from _clause(clause, args[used])
        used += 1
    yield template[position:]


def _clause(clause: re.Match[str], value: object) -> Iterator[str]:
    verb, precision = clause["verb"], int(clause["precision"] or _DEFAULT_PRECISION)
    if precision > _MAX_PRECISION:
        raise CelError(f"a precision of {precision} is over {_MAX_PRECISION}")
    if verb == "s":
        yield from _texts(value)
        return
    apply = _VERBS.get(verb)
    if apply is None:
        raise _unknown(clause)
    text = apply(value, precision)
    if text is None:
        raise CelError(f"`%{verb}` does not apply to a value of type `{type_of(value)}`")
    yield text


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 (each branch has checked its type)
    """Yield the text of a value in pieces, so that a huge one can be cut short."""
    kind = type(value)
    if kind is list or kind is tuple:
        for position, element in enumerate(value):
            yield ", " if position else "["
            yield from _texts(element)
        yield "]" if value else "[]"
    elif kind is dict:
        entries = sorted(("".join(_texts(key_value(key))), at) for at, key in enumerate(value))
        values = list(value.values())
        for position, (text, at) in enumerate(entries):
            yield f"{', ' if position else '{'}{text}: "
            yield from _texts(values[at])
        yield "}" if value else "{}"
    elif kind in _PLAIN:
        yield _PLAIN[kind](value)
    else:
        raise CelError(f"`%s` does not apply to a value of type `{type_of(value)}`")


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _shortest(value: float) -> str:
    """Return the shortest decimal text without an exponent that parses to the same double."""
    if not math.isfinite(value):
        return _not_finite(value)
    return format(Decimal(repr(value)).normalize(), "f")


_PLAIN: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    UInt: lambda value: str(int(value)),
    float: _shortest,
    str: lambda value: value,
    bytes: string_of_bytes,
    CelType: lambda value: value.name,
    Timestamp: format_timestamp,
    Duration: format_duration,
}


def _decimal(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    return _PLAIN[type(value)](value) if type(value) in {int, UInt, float} else None


def _floating(form: str) -> Callable[[Any, int], str | None]:
    def apply(value: Any, precision: int) -> str | None:  # noqa: ANN401 (see above)
        if type(value) not in {int, UInt, float}:
            return None
        number = float(value)
        return f"{number:.{precision}{form}}" if math.isfinite(number) else _not_finite(number)

    return apply


def _binary(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    return f"{int(value):b}" if type(value) in {bool, int, UInt} else None


def _octal(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    return f"{int(value):o}" if type(value) in {int, UInt} else None


def _hexadecimal(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    if type(value) in {int, UInt}:
        return f"{int(value):x}"
    if type(value) is str:
        return value.encode(errors="replace").hex()
    return value.hex() if type(value) is bytes else None


def _upper_hexadecimal(value: Any, precision: int) -> str | None:  # noqa: ANN401 (see above)
    text = _hexadecimal(value, precision)
    return None if text is None else text.upper()


_VERBS: Final[Mapping[str, Callable[[Any, int], str | None]]] = {
    "b": _binary,
    "d": _decimal,
    "e": _floating("e"),
    "f": _floating("f"),
    "o": _octal,
    "x": _hexadecimal,
    "X": _upper_hexadecimal,
}

FUNCTIONS: Final = (
    Overload("format", (str, list), _format, member=True, result=STRING, budgeted=True),
)
