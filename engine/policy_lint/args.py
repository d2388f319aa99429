"""What args of plugins name: nodes, labels of nodes, and resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias, get_args, get_origin

from engine.plugins import PLUGINS, Args, Named, ReadBy
from engine.policy import CompiledPolicy
from engine.policy.policy_set import Finding
from engine.policy.schema import named_plugin


class Name(NamedTuple):
    """A name in the args of a plugin, and where it stands."""

    of: Named
    name: str
    path: tuple[str | int, ...]
    is_key: bool


def names_in_args(policy: CompiledPolicy) -> Iterator[tuple[str, tuple[Name, ...]]]:
    """Yield what the args of each rule with a plugin name, with what warnings call the rule."""
    if policy.places is None:
        return
    written: Any = policy.places.document.value
    for kind in _KINDS:
        for index, rule in enumerate(written["spec"].get(kind) or ()):
            if plugin := named_plugin(rule):
                at, args = ("spec", kind, index), PLUGINS[plugin].args
                names = tuple(_names((args, rule.get("args"), (*at, "args"), False)))
                yield policy.places.part_at(at), names


def unread_args(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield the args that only the other part of a plugin reads.

    None is found of args that a rule of the other kind has in the same way, as by a YAML alias.
    """
    if policy.places is None:
        return
    written: Any = policy.places.document.value
    rules = {kind: list(written["spec"].get(kind) or ()) for kind in _KINDS}
    for kind, other in zip(_KINDS, reversed(_KINDS), strict=True):
        shared = [(named_plugin(rule), rule.get("args")) for rule in rules[other]]
        for index, rule in enumerate(rules[kind]):
            plugin = named_plugin(rule)
            if not plugin or (plugin, rule.get("args")) in shared:
                continue
            at = ("spec", kind, index)
            for reader, path in _readers((PLUGINS[plugin].args, rule.get("args"), (), False)):
                if f"{reader.value}s" != kind:
                    yield Finding(
                        policy.places.part_at(at),
                        f"only the {reader.value} of `{plugin}` reads `{path[-1]}`: no effect",
                        f"write it in a rule below `{other}`, or drop it",
                        path=(*at, "args", *path),
                        is_key=True,
                    )


_KINDS: Final = ("filters", "scores")


def _readers(arg: _Arg) -> Iterator[tuple[ReadBy, tuple[str | int, ...]]]:
    """Yield which parts of args only one part of a plugin reads."""
    hint, _, path, _ = arg
    if marks := [each for each in get_args(hint) if isinstance(each, ReadBy)]:
        yield marks[0], path
        return
    for each in _inner_args(arg):
        yield from _readers(each)


_Arg: TypeAlias = tuple[Any, object, tuple[str | int, ...], bool]
"""The type of a part of args, its value, where it stands, and whether it is a key."""


def _names(arg: _Arg) -> Iterator[Name]:
    """Yield what a part of args names, by its type."""
    hint, value, path, is_key = arg
    if isinstance(value, str):
        marks = (each for each in get_args(hint) if isinstance(each, Named))
        yield from (Name(mark, value, path, is_key) for mark in marks)
    for each in _inner_args(arg):
        yield from _names(each)


def _inner_args(arg: _Arg) -> Iterator[_Arg]:
    hint, value, path, _ = arg
    types = get_args(hint)
    origin: Any = get_origin(hint)
    match value:
        case dict() if isinstance(hint, type) and issubclass(hint, Args):
            for name, field in hint.model_fields.items():
                for key in {name, field.alias or name} & value.keys():
                    yield field.rebuild_annotation(), value[key], (*path, key), False
        case dict() if origin is dict:
            for key, each in value.items():
                yield types[0], key, (*path, key), True
                yield types[1], each, (*path, key), False
        case list() if origin is tuple:
            for index, each in enumerate(value):
                yield types[0], each, (*path, index), False
        case _:  # a union, or a type with its constraints
            yield from ((each, value, path, False) for each in types)
