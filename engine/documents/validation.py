"""Validation of documents against pydantic models, with a diagnostic for each mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from engine.documents.places import Document, Path, template_hint
from engine.errors import Diagnostic, did_you_mean

_M = TypeVar("_M", bound=BaseModel)

MOST_PROBLEMS: Final = 100
"""The most diagnostics of one model: more than that means a wrong kind of document."""

_MISTAKE: Final = "mistake"
_SEVERAL: Final = "several_mistakes"
_CHOICE: Final = re.compile(r"'([^']*)'")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_NUMBERS: Final = frozenset({"int_type", "int_parsing", "float_type", "float_parsing"})
_BOOLS: Final = frozenset({"bool_type", "bool_parsing"})
_MODELS: Final = frozenset({"model_attributes_type", "model_type"})
_LISTS: Final = frozenset({"list_type", "tuple_type"})
_KEY: Final = re.compile(r"[-A-Za-z0-9_./]+")
_MOST_KEYS_NAMED: Final = 8
_MOST_PLACES_NAMED: Final = 2
_LONGEST_ECHO = 60  # characters of a wrong value that are repeated in the message

_MESSAGES: Final = {
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping of keys to values",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "expected a list",
    "model_attributes_type": "expected a mapping of keys to values",
    "model_type": "expected a mapping of keys to values",
    "string_too_long": "longer than {max_length} characters",
    "string_too_short": "must not be empty",
    "string_type": "expected a string",
    "too_long": "more than {max_length} entries",
    "too_short": "must not be empty",
    "tuple_type": "expected a list",
    "value_error": "{error}",
}


def mistake(message: str, hint: str = "") -> PydanticCustomError:
    """Return the error of a validator that refuses a value, with the remedy."""
    return PydanticCustomError(_MISTAKE, "{text}", {"text": message, "hint": hint})


def several_mistakes(
    mistakes: Iterable[tuple[Path, str] | tuple[Path, str, Path]], hint: str = ""
) -> PydanticCustomError:
    """Return the error of a validator that finds mistakes below it, each with its path.

    A third part of one leads to the first of its kind. They have one remedy, if any.
    """
    found = list(mistakes)
    text = "; ".join(each[1] for each in found)
    context = {"text": text, "mistakes": found, "hint": hint}
    return PydanticCustomError(_SEVERAL, "{text}", context)


class Doubt(NamedTuple):
    """That a value is allowed and probably not meant."""

    message: str
    hint: str
    key: str  # of the value, "" where that is not one key


def warn(info: ValidationInfo, message: str, hint: str = "", key: str = "") -> None:
    """Note a doubt in a validator; the key is that of its field by default."""
    if isinstance(info.context, list):
        info.context.append(Doubt(message, hint, key or to_camel(info.field_name or "")))


def validate_model(
    model: type[_M],
    value: object,
    document: Document,
    at: Path = (),
    doubts: list[Doubt] | None = None,
) -> tuple[_M | None, list[Diagnostic]]:
    """Return a part of a document as a model, or the mistakes in it.

    Args:
        model: the model.
        value: the plain value.
        document: the document that holds it.
        at: the path that leads to it.
        doubts: takes what validators note by `warn`.
    """
    try:
        return model.model_validate(value, context=doubts), []
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
    shown = errors[:MOST_PROBLEMS]
    return None, [found for error in shown for found in _problems(error, model, document, at)]


def _problems(
    error: ErrorDetails, model: type[BaseModel], document: Document, at: Path
) -> Iterator[Diagnostic]:
    path = (*at, *error["loc"])
    kind = error["type"]
    if kind == _SEVERAL:
        for below, message, *first in error["ctx"]["mistakes"]:
            if first:
                line = document.place((*path, *first[0])).line
                message = f"{message}: the first one is on line {line}"  # noqa: PLW2901
            yield document.problem((*path, *below), message, hint=error["ctx"]["hint"])
    elif kind == "missing":
        yield document.problem(path[:-1], f"missing key `{path[-1]}`")
    elif kind == "extra_forbidden":
        at = error["loc"]
        hint = _hint_for_value(model, at, error["input"]) or _hint_for_key(model, at)
        yield document.problem_at_key(path, f"unknown key `{path[-1]}`", hint=hint)
    elif kind in {"literal_error", "enum"}:
        known = [choice for choice in _CHOICE.findall(error["ctx"]["expected"]) if choice]
        message = f"{_echo(error['input'])} is not " + " or ".join(
            f"`{choice}`" for choice in known
        )
        hint = template_hint(str(error["input"])) or _hint_for_choice(error, model, known)
        yield document.problem(path, message, hint=hint)
    elif kind == "string_pattern_mismatch":
        message = f"{_echo(error['input'])} does not match `{error['ctx']['pattern']}`"
        yield document.problem(path, message, hint=template_hint(str(error["input"])))
    else:
        hint = _hint(error, document.written(path)) or _hint_for_parts(error, model)
        yield document.problem(path, error_text(error), hint=hint)


def error_text(error: ErrorDetails) -> str:
    """Return what is wrong with a value: in our words, where we have any for it."""
    template = _MESSAGES.get(error["type"])
    text = template.format(**error.get("ctx", {})) if template else error["msg"]
    return text[:1].lower() + text[1:]


def _hint(error: ErrorDetails, written: str) -> str:
    """Return the remedy that the value itself, or how it is written, suggests."""
    kind, value = error["type"], error["input"]
    if kind == "string_type" and written and isinstance(value, bool | int | float | None):
        return f'put it in quotes: "{written}"'
    if kind in _NUMBERS and str(value).casefold() in {"false", "no", "none", "off"}:
        return "for none write 0"
    if kind == "string_type" and isinstance(value, list) and len(value) == 1:
        return f'without brackets: "{value[0]}"'
    if kind == _MISTAKE or not isinstance(value, str):
        return str(error.get("ctx", {}).get("hint", ""))
    text = value.strip()
    if kind in _NUMBERS:
        if _NUMBER.fullmatch(text):
            return f"without quotes: {text}"
        if _NUMBER.fullmatch(text.removesuffix("%")):
            return f"without the percent sign: {text.removesuffix('%')}"
        return ""
    if kind in _BOOLS:
        return f"without quotes: {text.lower()}" if text.lower() in {"true", "false"} else ""
    return f"in a list: [{text}]" if kind in _LISTS and text else ""


def _hint_for_parts(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Return how something is written that has parts, where another shape stands for it."""
    kind, value, path = error["type"], error["input"], tuple(error["loc"])
    if value is None and kind in _MODELS | _LISTS:
        return "nothing is below it: indent what belongs to it"
    if kind in _LISTS and isinstance(value, dict):
        return _hint_for_items(value, model, path)
    if kind in _MODELS | {"dict_type"} and isinstance(value, list):
        return "it is no list: drop the `-`" if _is_one_mapping(value) else ""
    if kind not in _MODELS or not isinstance(value, str):
        return ""
    if options := _keys_of_value(model, path, value):
        key, known = options[0]
        return f"write `{path[-1]}: {{ {key}: {known} }}`" if len(options) == 1 else ""
    keys = _keys_at(model, path)
    if "plugin" in keys and value.isidentifier():
        return f"write its parts: {{ plugin: {value} }}"
    if "expression" in keys:
        return f'write its parts: {{ name: .., expression: "{value}" }}'
    if keys[:1] == ["name"]:
        return f"write its parts: {{ name: {error['input']} }}"
    return ""


def _hint_for_items(value: Mapping[str, object], model: type[BaseModel], path: Path) -> str:
    """Return how a list of named items is written, where a mapping stands for it."""
    keys = _keys_at(model, path)
    if value and keys and set(value) <= set(keys):
        return "it is a list: put `- ` before its first key, and two blanks before the others"
    if not value or keys[:1] != ["name"]:
        return ""
    name, of = next(iter(value.items()))
    rest = f"{keys[1]}: {of}" if len(keys) == len(("name", "value")) else ".."
    return f"write `{path[-1]}: [{{ name: {name}, {rest} }}]`"


def _is_one_mapping(value: list[object]) -> bool:
    return len(value) == 1 and isinstance(value[0], dict)


def _echo(value: object) -> str:
    """Return the value as written, in backticks and shortened."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`" if len(text) <= _LONGEST_ECHO else f"`{text[:_LONGEST_ECHO]}...`"


def _hint_for_value(model: type[BaseModel], path: Path, value: object) -> str:
    """Return the key that an unknown key stands for, if only that one there takes such a value."""
    *inside, key = path
    keys = [known for known, found in _keys_of_value(model, tuple(inside), value) if found == value]
    is_other = len(keys) == 1 and not did_you_mean(str(key), keys)
    return f"did you mean `{keys[0]}: {value}`?" if is_other else ""


def _hint_for_choice(error: ErrorDetails, model: type[BaseModel], known: list[str]) -> str:
    """Return which of few values is meant, by what it may be called elsewhere."""
    *inside, key = error["loc"]
    if isinstance(error["input"], list) and len(error["input"]) == 1:
        return f"without brackets: {error['input'][0]}"
    text = str(error["input"])
    for parent in _models_at(model, tuple(inside)):
        words = getattr(parent, "other_words", {}).get(key, {})
        if meant := words.get(text) or words.get(text.casefold()):
            return did_you_mean(meant, known) or str(meant)
    return did_you_mean(text, known)


def _keys_of_value(model: type[BaseModel], path: Path, value: object) -> list[tuple[str, str]]:
    """Return the keys at a place that take a value of few, each with the value as it is spelled."""
    return [
        (key, known)
        for parent in _models_at(model, path)
        for key, annotation in _fields(parent)
        for known in _choices_of(annotation)
        if isinstance(value, str) and known.casefold() == value.casefold()
    ]


def _choices_of(annotation: object) -> Iterator[str]:
    """Yield the values of a key that takes one of few."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (str(each.value) for each in annotation)
    elif get_origin(annotation) is Literal:
        yield from (str(each) for each in get_args(annotation))


def _hint_for_key(model: type[BaseModel], path: Path) -> str:
    """Return the remedy for an unknown key: its place, a key alike, or the keys there are."""
    *inside, key = path
    for parent in _models_at(model, tuple(inside)):
        if hint := getattr(parent, "misplaced_keys", {}).get(key):
            return str(hint)
    places = list(dict.fromkeys(_places_of(str(key), model)))
    if 0 < len(places) <= _MOST_PLACES_NAMED and all(places):
        return f"`{key}` is a key of {' or '.join(f'`{place}`' for place in places)}"
    keys = _keys_at(model, tuple(inside))
    if hint := did_you_mean(str(key), keys):
        return hint
    if not _KEY.fullmatch(str(key)):
        return "within `{ }` a text ends at a comma: quote it, or put it below a `|-`"
    if not keys:
        return "no key is known here: drop it"
    few = len(keys) <= _MOST_KEYS_NAMED
    return f"the keys here are {', '.join(f'`{known}`' for known in keys)}" if few else ""


def _places_of(key: str, model: type[BaseModel], at: str = "") -> Iterator[str]:
    """Yield the paths in a model, such as `spec.placement`, of all that has a key."""
    for name, annotation in _fields(model):
        if name == key:
            yield at
        path = f"{at}.{name}" if at else name
        if get_origin(annotation) is tuple:
            path += "[]"
        for inner in _models_in(annotation):
            yield from _places_of(key, inner, path)


def _keys_at(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys that the model has at a place inside it."""
    return [key for parent in _models_at(model, path) for key, _ in _fields(parent)]


def _models_at(model: type[BaseModel], path: Path) -> list[type[BaseModel]]:
    """Return the models of what stands at a place inside a model."""
    models = [model]
    for step in path:
        fields = [field for parent in models for field in _fields(parent) if field[0] == step]
        if fields:  # otherwise an index, or the key of a free mapping: the models are the same
            models = [found for _, annotation in fields for found in _models_in(annotation)]
    return models


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, object]]:
    """Yield the key and the annotation of each field."""
    for name, field in model.model_fields.items():
        yield field.alias or name, field.annotation


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, such as `Filter` of `tuple[Filter, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
