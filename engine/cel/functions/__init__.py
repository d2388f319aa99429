"""Functions of the language, a file per family; a new family is a file and a line below.

Operators never belong here (`engine.cel.operators`), nor macros (`engine.cel.macros`). A family
uses values, operators and the registry, never the parser, the checker or a Kubernetes object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.cel.functions import (
    conversions,
    encoders,
    format,  # noqa: A004 (the family is named after the Kubernetes library)
    format_strings,
    k8s_lists,
    lists,
    mathematics,
    network,
    optionals,
    quantity,
    regex,
    semver,
    sets,
    standard,
    strings,
    timestamps,
    url,
)
from engine.cel.functions.registry import Function, Overload, Preparation, function_table

FAMILIES: Final[tuple[tuple[Overload, ...], ...]] = (
    standard.FUNCTIONS,
    conversions.FUNCTIONS,
    timestamps.FUNCTIONS,
    # Extensions of the language.
    encoders.FUNCTIONS,
    format_strings.FUNCTIONS,
    lists.FUNCTIONS,
    mathematics.FUNCTIONS,
    optionals.FUNCTIONS,
    sets.FUNCTIONS,
    strings.FUNCTIONS,
    # Kubernetes.
    format.FUNCTIONS,
    k8s_lists.FUNCTIONS,
    network.FUNCTIONS,
    quantity.FUNCTIONS,
    regex.FUNCTIONS,
    semver.FUNCTIONS,
    url.FUNCTIONS,
)

FUNCTIONS: Final[Mapping[tuple[str, bool], Function]] = function_table(FAMILIES)
"""All functions, by (name, whether it is a member)."""

__all__ = ["FAMILIES", "FUNCTIONS", "Function", "Overload", "Preparation", "function_table"]
