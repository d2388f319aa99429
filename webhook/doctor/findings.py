"""Findings of checks: how bad each is, what it says, and the action that solves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"  # as it should be
    NOTE = "note"  # worth knowing; no action needed
    WARNING = "warning"  # works for now, or is unknown
    PROBLEM = "problem"  # pods get no advice, quotas are not enforced, or soon so


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check, with the action that solves it; no advice if none is needed."""

    level: Level
    message: str
    advice: str = ""

    @property
    def is_well(self) -> bool:
        """Whether no action is needed."""
        return self.level in {Level.OK, Level.NOTE}


ok: Final = partial(Finding, Level.OK)
note: Final = partial(Finding, Level.NOTE)
warning: Final = partial(Finding, Level.WARNING)
problem: Final = partial(Finding, Level.PROBLEM)


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
