"""Mistakes in an object, each with its place: from an exception to diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from engine.errors import Diagnostic, QuantityError
from engine.model import api
from engine.model.quantity import quantity_of
from webhook.cluster.objects import ApiObject, FieldPath, ObjectError

UNREADABLE = (ValueError, RecursionError)
"""Exceptions of decoding an object: msgspec's and our own, bad UTF-8, and too deep a nesting."""

_MESSAGE = re.compile(r"(?P<problem>.*?)(?: - at `(?P<place>.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<expected>.*)`, got `(?P<got>.*)`")
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<any_key>\.\.\.)\]")
_LONGEST_NAME = 300
_ANY_KEY = None  # msgspec does not name the key of a map

_Steps = Sequence[str | int | None]

_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}
_JSON_TYPES = {
    dict: "object", list: "array", str: "str", bool: "bool", int: "int", float: "float"
}  # fmt: skip


def decode_errors(
    found: ApiObject,
    kind: type[msgspec.Struct],
    error: ValueError | RecursionError,
    *,
    consequence: str = "is left out",
) -> list[Diagnostic]:
    """Return the mistakes in an object that could not be used.

    Args:
        found: the object.
        kind: the wire struct it was decoded as.
        error: raised by decoding or applying it.
        consequence: what becomes of the object.
    """
    hint = f"{_name(found)} {consequence}"
    if isinstance(error, QuantityError):
        places = list(_bad_quantities(found.decode(kind), ()))
        if places:
            return [found.problem(path, str(bad), hint) for path, bad in places]
    if isinstance(error, ObjectError):
        return [found.problem(error.path, str(error), hint)]
    problem, steps = parse(error)
    return [found.problem(_path(found, steps, problem), describe(problem), hint)]


def describe(message: str) -> str:
    """Return a message of msgspec without names of Python types."""
    expected = _EXPECTED.fullmatch(message)
    if expected is None:
        return message[:1].lower() + message[1:]
    types = expected["expected"].split(" | ")
    # Null is never worth a mention, and a number includes a whole number.
    omitted = {"null", "int"} if "float" in types else {"null"}
    choices = " or ".join(_WORDS.get(name, name) for name in types if name not in omitted)
    return f"expected {choices}, got {_WORDS.get(expected['got'], expected['got'])}"


def _name(found: ApiObject) -> str:
    """Return kind and name of an object that could not be used, as far as they are readable."""
    try:
        plain = found.plain()
    except UNREADABLE:
        plain = None
    meta = plain.get("metadata") if isinstance(plain, dict) else None
    parts = [meta.get(key) for key in ("namespace", "name")] if isinstance(meta, dict) else []
    name = "/".join(part for part in parts if isinstance(part, str))
    return f"{found.kind} `{name[:_LONGEST_NAME]}`" if name else f"the {found.kind}"


def parse(error: ValueError | RecursionError) -> tuple[str, _Steps]:
    """Return the problem and the place in the message of an exception."""
    if isinstance(error, RecursionError):
        return "nested too deeply", ()
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8", ()
    message = _MESSAGE.fullmatch(str(error))
    if message is None or message["place"] is None:
        return str(error), ()
    return message["problem"], [
        int(step["index"]) if step["index"] else step["key"]  # None for any key
        for step in _STEP.finditer(message["place"])
    ]


def _path(found: ApiObject, steps: _Steps, problem: str) -> FieldPath:
    """Return a path with each unnamed key filled in; it ends before one that cannot be."""
    if _ANY_KEY in steps:
        expected = _EXPECTED.fullmatch(problem)
        try:
            complete = _completed(found.plain(), steps, expected["got"] if expected else None)
        except UNREADABLE:
            complete = None
        if complete is not None:
            return complete
    path: list[str | int] = []
    for step in steps:
        if step is _ANY_KEY:
            break
        path.append(step)
    return path


def _completed(value: object, steps: _Steps, got: str | None) -> tuple[str | int, ...] | None:
    """Return `steps` with keys for the unnamed ones that lead to a value of type `got`."""
    if not steps:
        return () if got in (None, _JSON_TYPES.get(type(value), "null")) else None
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        if not isinstance(value, list) or step >= len(value):
            return None
        inner = _completed(value[step], rest, got)
        return None if inner is None else (step, *inner)
    if not isinstance(value, dict):
        return None
    for key in value if step is _ANY_KEY else [step]:
        inner = _completed(value.get(key), rest, got)
        if inner is not None:
            return (key, *inner)
    return None


def _bad_quantities(
    value: object, path: tuple[str | int, ...]
) -> Iterator[tuple[FieldPath, QuantityError]]:
    """Yield the place and error of each amount in a wire struct that is not a quantity."""
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            here = (*path, field.encode_name)
            if field.type == api.ResourceList | None:
                for name, amount in (inner or {}).items():
                    try:
                        quantity_of(amount)
                    except QuantityError as bad:
                        yield (*here, name), bad
            else:
                yield from _bad_quantities(inner, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _bad_quantities(inner, (*path, index))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _bad_quantities(inner, (*path, key))
