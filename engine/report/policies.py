"""The policies in force: what they did to pods and nodes, and what went wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.policy import CompiledPolicy, PolicySet
from engine.report.decision import RuleKind
from engine.report.outcome import AuditedPolicy, OutcomeReport, PolicyOutcome
from engine.report.status import BindingStatus


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


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One policy.

    Attributes:
        mode: Enforce or Audit.
        placed_at: when it decides, Admission or Release.
        rules: filters, then scores.
        decisions: that it took part in since the replica began, by outcome: placed, abstained,
            denied.
        outcome: where its pods were bound; None where nobody knows.
        audited: why it is in Audit mode, whatever its file says; None if it is not.
        warnings: what is allowed in it and probably not meant, and what is slow.
    """

    name: str
    mode: str
    placed_at: str
    priority: int
    rules: tuple[RuleRow, ...]
    decisions: Mapping[str, int] = {}
    outcome: PolicyOutcome | None = None
    audited: AuditedPolicy | None = None
    warnings: tuple[str, ...] = ()


class RefusedPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy of the API that is not in force as it was last written.

    Attributes:
        name: `namespace/name` of one for a namespace.
        reason: in one word.
        message: its mistakes.
    """

    name: str
    reason: str
    message: str = ""


class PoliciesReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The policies in force.

    Attributes:
        digest: the same on every replica with the same policies; "" if unknown.
        loaded_at: ISO 8601; "" if unknown.
        last_reload_error: why newer files were not loaded; "" if they were.
        policies: in the order of their rank.
        refused: policies of the API that are not in force as they were last written.
        counted: whether decisions are counted: nobody does in a recording.
        bindings: what became of bindings; None where nobody decides them.
    """

    digest: str = ""
    loaded_at: str = ""
    last_reload_error: str = ""
    policies: tuple[PolicyRow, ...]
    refused: tuple[RefusedPolicy, ...] = ()
    counted: bool = False
    bindings: BindingStatus | None = None


def policies_report(
    policies: PolicySet,
    *,
    decisions: Mapping[tuple[str, str, str], int] | None = None,
    rejections: Mapping[tuple[str, str, str], int] | None = None,
    outcome: OutcomeReport | None = None,
    digest: str = "",
    loaded_at: str = "",
    last_reload_error: str = "",
) -> PoliciesReport:
    """Return the report on the policies in force.

    Args:
        policies: they.
        decisions: their number by policy, mode and outcome; None where nobody counts.
        rejections: numbers of nodes by policy, mode and filter.
        outcome: where their pods were bound; None where nobody knows.
        digest: of the policies.
        loaded_at: ISO 8601.
        last_reload_error: why newer files were not loaded.
    """
    outcomes = {} if outcome is None else {each.policy: each for each in outcome.policies}
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
                outcome=outcomes.get(policy.name),
                audited=_audited(policy, outcome),
                warnings=tuple(map(str, (*policy.warnings, *policy.slow_parts))),
            )
            for policy in policies
        ),
    )


def _audited(policy: CompiledPolicy, outcome: OutcomeReport | None) -> AuditedPolicy | None:
    """Return why a policy is kept in Audit mode; one that was changed since is not."""
    found = None if outcome is None else outcome.audited.get(policy.name)
    return found if found is not None and found.digest == policy.digest.hex() else None


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
