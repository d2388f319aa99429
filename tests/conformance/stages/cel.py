"""CEL cases: one expression, its bindings, and the value or the error that it must give."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from engine.cel import Environment, compile_node, new_frame
from engine.cel.check import check
from engine.cel.parser import parse
from engine.cel.values import (
    CelType,
    UInt,
    key_value,
    map_key,
    parse_duration,
    parse_timestamp,
    type_of,
)
from engine.errors import CelError, CelProblemsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Json, Stage


def run(case: Json) -> str | None:
    """Return what is wrong with the outcome of a case, or None."""
    try:
        found = _evaluate(case)
    except CelProblemsError as problems:
        return None if case.get("eval_error") else f"refused: {problems}"
    except CelError as error:
        return None if case.get("eval_error") else f"error: {error}"
    if case.get("eval_error"):
        return f"expected an error like {case['error_messages']}, got {found!r}"
    expected = _value(case["value"])
    return None if _same(found, expected) else f"expected {expected!r}, got {found!r}"


def _evaluate(case: Json) -> object:
    environment = Environment(
        variables={name: _type(text) for name, text in case["type_env"].items()},
        container=case["container"],
        macros=not case["disable_macros"],
    )
    root = parse(case["expr"], environment.limits, macros=environment.macros)
    checked = check(root, environment)
    if checked.problems and not case["disable_check"]:
        raise CelProblemsError(checked.problems)
    frame = new_frame({name: _value(typed) for name, typed in case["bindings"].items()})
    return compile_node(checked.root, environment)(frame)


def _type(text: str) -> CelType:
    """Return the type written as `map(string, list(int))`."""
    name, _, inner = text.strip().partition("(")
    if not inner:
        return CelType(name)
    first, second = _first_parameter(inner[:-1])
    return CelType(name, (_type(first), _type(second)) if second else (_type(first),))


def _first_parameter(text: str) -> tuple[str, str]:
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            return text[:position], text[position + 1 :]
    return text, ""


_READERS: Mapping[str, Any] = {
    "null": lambda _: None,
    "bool": bool,
    "int": int,
    "uint": UInt,
    "double": float,
    "string": str,
    "bytes": base64.b64decode,
    "type": CelType,
    "timestamp": parse_timestamp,
    "duration": parse_duration,
    "list": lambda items: [_value(item) for item in items],
    "map": lambda pairs: {map_key(_value(key)): _value(value) for key, value in pairs},
}


def _value(typed: Json) -> object:
    return _READERS[typed["type"]](typed["value"])


def _same(found: object, expected: object) -> bool:
    """Return whether two values are of one type and equal, NaN to itself, maps in any order."""
    if type_of(found) != type_of(expected):
        return False
    if isinstance(found, list | tuple) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return len(found) == len(expected) and all(
            any(
                _same(key_value(key), key_value(other)) and _same(found[key], value)
                for key in found
            )
            for other, value in expected.items()
        )
    if isinstance(found, float):
        return repr(found) == repr(expected)  # tells -0.0 from 0.0, and takes NaN for NaN
    return found == expected


STAGES: Mapping[str, Stage] = {"evaluate": lambda case, _: run(case)}
