"""Kubernetes objects in files, before they are decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.errors import Diagnostic, QuantityError, StowplanError
from engine.model import api
from engine.model.quantity import quantity_of

# JSON that nests deeper than Python can follow.
#
# Nothing that we read is nested deeply, but who may create a pod may write `managedFields` of
# 10,000 levels, as many as the API server reads. One such object must not keep all others from
# being read.


MOST_LEVELS: Final = 200
"""Levels that are kept; objects of the API have some 20."""

_QUOTE, _BACKSLASH = b'"\\'
_ZERO: Final = np.uint8(ord("0"))


def shallow(data: bytes | msgspec.Raw) -> bytes:
    """Return JSON with 0 in place of what is below `MOST_LEVELS`; what is malformed stays so.

    Takes some 30 ms for each MiB, whatever the text.
    """
    text = np.frombuffer(bytes(data), np.uint8)
    outside = np.cumsum(_quotes(text), dtype=np.int32) % 2 == 0  # of strings
    opens = outside & ((text == ord("[")) | (text == ord("{")))
    closes = outside & ((text == ord("]")) | (text == ord("}")))
    levels = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    is_deep = levels > MOST_LEVELS
    starts = opens & (levels == MOST_LEVELS + 1)
    ends = closes & (levels == MOST_LEVELS)
    kept: NDArray[np.uint8] = np.where(starts, _ZERO, text)[starts | ~(is_deep | ends)]
    return kept.tobytes()


def _quotes(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return where strings begin and end: at each quote after an even number of backslashes."""
    quotes: NDArray[np.bool_] = text == _QUOTE
    if not (text == _BACKSLASH).any():
        return quotes
    positions = np.arange(len(text), dtype=np.int32)
    others = np.maximum.accumulate(np.where(text == _BACKSLASH, np.int32(-1), positions))
    is_escaped = np.zeros_like(quotes)
    is_escaped[1:] = (positions - others)[:-1] % 2 == 1
    quotes &= ~is_escaped
    return quotes


FieldPath: TypeAlias = Sequence[str | int]
"""Keys and indexes that lead from an object to one of its values."""

NO_OBJECT = "expected an object of Kubernetes"
NO_KIND = "not an object of Kubernetes: it has no `kind`"
FORM_HINT = "`kubectl get -o yaml` writes objects, each with `apiVersion` and `kind`"

_T = TypeVar("_T")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class ApiObject(Protocol):
    """One object in a file, found but not decoded.

    Attributes:
        group: its API group, empty for the core group.
        kind: its kind.
        end: its end in the file, in bytes, roughly.
    """

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def end(self) -> int: ...

    def decode(self, kind: type[_T]) -> _T:
        """Return the object as a wire struct."""

    def plain(self) -> object:
        """Return the object as dicts, lists and scalars; raises like `decode`."""

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
        """Return a mistake at one of its values; an empty path means the object as a whole."""


class ObjectError(StowplanError, ValueError):
    """An unusable value in an object, with its place."""

    def __init__(self, path: FieldPath, message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


def group_of(api_version: str) -> str:
    """Return the group in an `apiVersion`; that of `v1` is empty."""
    return api_version.partition("/")[0] if "/" in api_version else ""


def item_kind(list_kind: str) -> str:
    """Return the kind of the items of a list such as PodList; "" where each item has its own."""
    return list_kind.removesuffix("List")


def path_text(path: FieldPath) -> str:
    """Return a path in its usual form: `spec.containers[0].resources.limits["nvidia.com/gpu"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


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
    """Return the mistakes in an object that could not be used."""
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


_Wire = TypeVar("_Wire", bound=msgspec.Struct)

_NOTHING: Final = object()


def readable_part(raw: bytes | msgspec.Raw, wire: type[_Wire]) -> _Wire:
    """Return an object without the fields, items and amounts that cannot be read."""
    plain = msgspec.json.decode(shallow(raw))
    part = _part(plain, wire)
    return msgspec.convert({} if part is _NOTHING else part, wire)


def _part(value: Any, kind: Any) -> Any:  # noqa: ANN401 - JSON, and any type of a field
    """Return the part of a value that converts to a type, `_NOTHING` if none does."""
    options = get_args(kind)
    for option in options if NoneType in options else (kind,):
        if option == api.ResourceList and isinstance(value, dict):
            return {name: amount for name, amount in value.items() if _is_quantity(amount)}
        if get_origin(option) is list and isinstance(value, list):
            (item,) = get_args(option)
            parts = (_part(inner, item) for inner in value)
            return [part for part in parts if part is not _NOTHING]
        is_struct = isinstance(option, type) and issubclass(option, msgspec.Struct)
        if is_struct and isinstance(value, dict):
            return _fields(value, option)
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return _NOTHING
    return value


def _fields(value: dict[str, Any], wire: type[msgspec.Struct]) -> dict[str, Any]:
    parts = (
        (field.encode_name, _part(value[field.encode_name], field.type))
        for field in msgspec.structs.fields(wire)
        if field.encode_name in value
    )
    return {name: part for name, part in parts if part is not _NOTHING}


def _is_quantity(amount: Any) -> bool:  # noqa: ANN401 - JSON
    try:
        quantity_of(msgspec.convert(amount, str | int | float | None))
    except (msgspec.ValidationError, QuantityError):
        return False
    return True
