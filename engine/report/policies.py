"""The policies in force: what they did to pods and nodes, and what went wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from engine.policy import CompiledPolicy, PolicySet


class RuleKind(StrEnum):
    """What a rule does."""

    FILTER = "filter"
    SCORE = "score"


class RuleRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One rule.

    Attributes:
        weight: the factor of its points; 0 for a filter.
        rejected_nodes: how often it was the first to reject a node, since the replica began.
    """

    kind: RuleKind
    name: str
    weight: int = 0
    rejected_nodes: int = 0


class LandingFigures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where pods were bound that a policy advised or nominated.

    Attributes:
        bound: pods that were bound to any node.
        as_meant: of these, on a node that was meant.
        mean_rank: of their nodes among the candidates, 1 for the best.
        points_lost: the score of their node less than the best, 0..100, on average.
        stock_points_lost: the same of the nodes that the model of the scheduler would have taken.
    """

    bound: int
    as_meant: int
    mean_rank: float
    points_lost: float
    stock_points_lost: float


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One policy.

    Attributes:
        mode: Enforce or Audit.
        placed_at: when it decides, Admission or Release.
        rules: filters, then scores.
        decisions: that it took part in since the replica began, by outcome: placed, abstained,
            denied.
        landings: None where nothing is known of its pods.
        audited_because: why it was set to Audit although its file says Enforce; "" if it was not.
        warnings: what is allowed in it and probably not meant, and what is slow.
    """

    name: str
    mode: str
    placed_at: str
    priority: int
    rules: tuple[RuleRow, ...]
    decisions: Mapping[str, int] = {}
    landings: LandingFigures | None = None
    audited_because: str = ""
    warnings: tuple[str, ...] = ()


class PoliciesReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The policies in force.

    Attributes:
        digest: the same on every replica with the same policies; "" if unknown.
        loaded_at: ISO 8601; "" if unknown.
        last_reload_error: why newer files were not loaded; "" if they were.
        policies: by falling priority, then by name.
        counted: whether decisions are counted: nobody does in a recording.
    """

    digest: str = ""
    loaded_at: str = ""
    last_reload_error: str = ""
    policies: tuple[PolicyRow, ...]
    counted: bool = False


def policies_report(
    policies: PolicySet,
    *,
    decisions: Mapping[tuple[str, str, str], int] | None = None,
    rejections: Mapping[tuple[str, str, str], int] | None = None,
    landings: Mapping[str, LandingFigures] | None = None,
    digest: str = "",
    loaded_at: str = "",
    last_reload_error: str = "",
) -> PoliciesReport:
    """Return the report on the policies in force.

    Args:
        policies: they.
        decisions: their number by policy, mode and outcome; None where nobody counts.
        rejections: numbers of nodes by policy, mode and filter.
        landings: by policy.
        digest: of the policies.
        loaded_at: ISO 8601.
        last_reload_error: why newer files were not loaded.
    """
    return PoliciesReport(
        digest=digest,
        loaded_at=loaded_at,
        last_reload_error=last_reload_error,
        counted=decisions is not None,
        policies=tuple(
            PolicyRow(
                name=policy.name,
                mode=policy.mode.value,
                placed_at=policy.placement.at.value,
                priority=policy.priority,
                rules=_rules(policy, rejections or {}),
                decisions={
                    outcome: count
                    for (name, mode, outcome), count in (decisions or {}).items()
                    if (name, mode) == (policy.name, policy.mode.value)
                },
                landings=(landings or {}).get(policy.name),
                warnings=(*policy.warnings, *policy.slow_parts),
            )
            for policy in policies
        ),
    )


def _rules(
    policy: CompiledPolicy, rejections: Mapping[tuple[str, str, str], int]
) -> tuple[RuleRow, ...]:
    filters = (
        RuleRow(
            kind=RuleKind.FILTER,
            name=rule.name,
            rejected_nodes=rejections.get((policy.name, policy.mode.value, rule.name), 0),
        )
        for rule in policy.filters
    )
    scores = (
        RuleRow(kind=RuleKind.SCORE, name=rule.name, weight=rule.weight) for rule in policy.scores
    )
    return (*filters, *scores)
