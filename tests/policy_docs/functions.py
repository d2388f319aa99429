"""The reference of functions in expressions, made of their registry."""

from __future__ import annotations

from typing import Final

from engine.cel import functions
from engine.cel.functions import Overload
from engine.cel.values import Opaque
from tests.contents import with_contents
from tests.policy_docs.function_examples import EXAMPLES, MACROS

HEAD: Final = """\
# Functions in expressions

This page is the reference of all functions that an expression of a policy may call: those of
[CEL](https://cel.dev) and of Kubernetes, and two more. Every example is true. The names that
expressions can read are in [cel-environment.md](cel-environment.md), units and recipes in
[conversions.md](conversions.md).

`make docs` writes this page from `engine/cel/functions/`: do not edit it by hand.

Operators: `+ - * / %`, `== != < <= > >=`, `in`, `&& || !`, `a ? b : c`, `map.key`, `map['key']`,
and the optional `map.?key` and `map[?'key']`.
"""

FAMILIES: Final[dict[str, tuple[tuple[Overload, ...], str]]] = {
    "standard": (functions.standard.FUNCTIONS, "Strings, lists and maps: the basics"),
    "conversions": (functions.standard.CONVERSIONS, "Conversions between types"),
    "timestamps": (functions.standard.TIMESTAMPS, "Times and durations"),
    "strings": (functions.strings.FUNCTIONS, "Strings"),
    "format_strings": (functions.strings.FORMAT, "Formatted strings"),
    "regex": (functions.regex.FUNCTIONS, "Regular expressions (RE2)"),
    "lists": (functions.lists.FUNCTIONS, "Lists"),
    "k8s_lists": (functions.lists.KUBERNETES_LISTS, "Lists, by Kubernetes"),
    "statistics": (functions.lists.STATISTICS, "Lists, by stowplan alone"),
    "sets": (functions.lists.SETS, "Lists as sets"),
    "mathematics": (functions.mathematics.FUNCTIONS, "Numbers"),
    "optionals": (functions.standard.OPTIONALS, "Values that may be absent"),
    "quantity": (functions.quantity.FUNCTIONS, "Quantities"),
    "network": (functions.network.FUNCTIONS, "Addresses and networks"),
    "semver": (functions.semver.FUNCTIONS, "Versions"),
    "url": (functions.network.URLS, "URLs"),
    "encoders": (functions.strings.ENCODERS, "Base64"),
    "format": (functions.format.FUNCTIONS, "Formats of Kubernetes names"),
}
"""The functions and the heading of each family, in the order of the page."""

_TYPES: Final = {
    "NoneType": "null",
    "OptionalValue": "optional",
    "Timestamp": "timestamp",
    "Duration": "duration",
    "UInt": "uint",
    "dict": "map",
    "float": "double",
    "object": "any",
    "str": "string",
}


HIDDEN = "@"
"""Begins the names of functions that no source can call."""


def function_reference() -> str:
    """Return the page, in Markdown."""
    rows = ["| macro | example |", "| --- | --- |"]
    rows += [f"| `{call}` | {_code(example)} |" for call, example in MACROS.items()]
    parts = [HEAD, "## Macros", "", *rows]
    for family, (overloads, heading) in FAMILIES.items():
        parts += ["", f"## {heading}", "", *_table(family, overloads)]
    return with_contents("\n".join([*parts, ""]))


def _table(family: str, overloads: tuple[Overload, ...]) -> list[str]:
    by_name: dict[str, list[Overload]] = {}
    for overload in overloads:
        if overload.name.startswith(HIDDEN):
            continue
        by_name.setdefault(overload.name, []).append(overload)
    rows = ["| call | result | example |", "| --- | --- | --- |"]
    for name, group in by_name.items():
        calls = dict.fromkeys(f"`{_call(overload)}`" for overload in group)
        results = dict.fromkeys(_result(overload) for overload in group)
        example = EXAMPLES[family][name]
        rows.append(f"| {'<br>'.join(calls)} | {', '.join(results)} | {_code(example)} |")
    return rows


def _call(overload: Overload) -> str:
    params = [_type(param) for param in overload.params]
    receiver = f"{params.pop(0)}." if overload.member else ""
    more = ", ..." if overload.variadic else ""
    return f"{receiver}{overload.name}({', '.join(params)}{more})"


def _type(param: type) -> str:
    name = param.cel_type.name if issubclass(param, Opaque) else param.__name__
    return _TYPES.get(name, _short(name))


def _result(overload: Overload) -> str:
    name = str(overload.result)
    return "any" if name == "dyn" else _short(name).replace("optional_type", "optional").lower()


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _code(example: str) -> str:
    return f"`{example}`".replace("|", "\\|")
