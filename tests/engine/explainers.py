"""Explainers for tests: fixed reasons, and inputs in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model.label_condition import LabelCondition, unknown
from engine.model.rule_outcomes import RuleInputs


@dataclass(frozen=True, slots=True)
class FixedReasons:
    """Texts by code, without a condition on labels and without inputs."""

    texts: Mapping[int, str] = field(default_factory=dict)
    labels: LabelCondition = unknown("nothing is said of labels")  # noqa: RUF009 (never changes)

    def reason(self, code: int) -> str:
        """Return the text of a code."""
        return self.texts[code]

    def inputs(self, row: int) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return no inputs."""
        return ()


def described(inputs: RuleInputs) -> dict[str, str]:
    """Return inputs in words, by name."""
    return {value.name: value.describe() for value in inputs}
