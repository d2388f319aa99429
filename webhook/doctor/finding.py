"""What a check has to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"  # as it should be
    NOTE = "note"  # worth knowing; nothing need be done
    WARNING = "warning"  # works for now, or cannot be told
    PROBLEM = "problem"  # pods are not advised, quotas not held, or soon so


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        level: how much it matters.
        message: what it is.
        advice: what to do about it; empty where nothing need be done.
    """

    level: Level
    message: str
    advice: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing need be done."""
        return self.level in {Level.OK, Level.NOTE}
