"""Functions of the language, a file per family; a new family is a file and a line below.

Operators never belong here (`engine.cel.operators`), nor macros (`engine.cel.parser`). A family
uses values, operators and the registry, never the parser, the checker or a Kubernetes object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.cel.functions import (
    format,  # noqa: A004 (the family is named after the Kubernetes library)
    lists,
    mathematics,
    network,
    quantity,
    regex,
    semver,
    standard,
    strings,
)
from engine.cel.functions.registry import Function, Overload, Preparation, function_table

FAMILIES: Final[tuple[tuple[Overload, ...], ...]] = (
    standard.FUNCTIONS,
    standard.CONVERSIONS,
    standard.TIMESTAMPS,
    # Extensions of the language.
    strings.ENCODERS,
    strings.FORMAT,
    lists.FUNCTIONS,
    mathematics.FUNCTIONS,
    standard.OPTIONALS,
    lists.SETS,
    strings.FUNCTIONS,
    # Kubernetes.
    format.FUNCTIONS,
    lists.KUBERNETES_LISTS,
    network.FUNCTIONS,
    quantity.FUNCTIONS,
    regex.FUNCTIONS,
    semver.FUNCTIONS,
    network.URLS,
    # Of stowplan alone.
    lists.STATISTICS,
)

FUNCTIONS: Final[Mapping[tuple[str, bool], Function]] = function_table(FAMILIES)
"""All functions, by (name, whether it is a member)."""

__all__ = ["FAMILIES", "FUNCTIONS", "Function", "Overload", "Preparation", "function_table"]
