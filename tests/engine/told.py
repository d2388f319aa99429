"""A teller that has been told what to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model.label_condition import LabelCondition, unknown


@dataclass(frozen=True, slots=True)
class Told:
    """Texts by code; says nothing of labels and knows no inputs."""

    texts: Mapping[int, str] = field(default_factory=dict)
    labels: LabelCondition = unknown("nothing is said of labels")  # noqa: RUF009 (never changes)

    def reason(self, code: int) -> str:
        """Return the text of a code."""
        return self.texts[code]

    def inputs(self, row: int) -> Mapping[str, str]:  # noqa: ARG002 (protocol)
        """Return nothing."""
        return {}
