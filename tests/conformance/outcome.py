"""The words that stages and their runner share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

Json: TypeAlias = dict[str, Any]
"""A decoded JSON object."""

Stage: TypeAlias = Callable[[Json, Json], str | None]
"""Runs one case, given with its group, and returns what is wrong with the outcome, if anything."""


def mismatch(expected: object, got: object) -> str | None:
    """Return how `got` differs from `expected`, or None when they are equal."""
    return None if got == expected else f"expected {expected!r}, got {got!r}"


class UnsupportedError(Exception):
    """A case is about something that the program does not do; says what."""


def unsupported(reason: str) -> Stage:
    """Return a stage none of whose cases is supported."""

    def refuse(_: Json, __: Json) -> NoReturn:
        raise UnsupportedError(reason)

    return refuse
