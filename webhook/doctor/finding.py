"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
