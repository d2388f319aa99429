"""What lint finds, for machines: `stowplan lint --json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from engine.errors import Diagnostic, InvalidFileError
from engine.policy import CompiledPolicy, PolicySet, ScoreRule
from engine.policy_lint import KnownCluster, PolicyWarning, policy_warnings
from webhook.cli.rule_tables import cost_millis, enforced_by


@dataclass(frozen=True, slots=True)
class LintRun:
    """What came of policy files.

    Attributes:
        policies: none where there are mistakes.
        mistakes: all of them, in all files.
        warnings: what is valid and probably not meant.
    """

    policies: PolicySet
    mistakes: tuple[Diagnostic, ...] = ()
    warnings: tuple[PolicyWarning, ...] = ()

    @classmethod
    def of(cls, policies: PolicySet, cluster: KnownCluster | None = None) -> LintRun:
        """Return what came of files without a mistake.

        Args:
            policies: they.
            cluster: a recorded one to compare them with, if any.
        """
        found = (policy_warnings(policy, cluster=cluster) for policy in policies)
        return cls(policies, warnings=tuple(each for warnings in found for each in warnings))

    @classmethod
    def failed(cls, error: InvalidFileError) -> LintRun:
        """Return what came of files with mistakes."""
        return cls(PolicySet(), mistakes=error.problems)


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A mistake or a warning, with its place.

    Attributes:
        check: `mistake`, or the kind of the warning.
        line: from 1; 0 means the file as a whole.
        column: from 1; 0 as well.
        policy: of a warning.
        rule: the rule, variable or match condition of a warning; "" for the whole policy.
    """

    file: str
    line: int
    column: int
    check: str
    message: str
    hint: str = ""
    policy: str = ""
    rule: str = ""


class RuleSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule, with its effect and cost.

    Attributes:
        weight: of a score; 0 for a filter.
        enforced_by: how a filter is written on a pod.
        cost_millis: what an expression is estimated to take at 5,000 nodes; None for a plugin.
    """

    name: str
    kind: Literal["filter", "score"]
    weight: int
    enforced_by: str
    cost_millis: float | None


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy without mistakes."""

    name: str
    file: str
    mode: str
    priority: int
    rules: tuple[RuleSummary, ...]


class LintReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of a run; `policies` is empty where there are mistakes."""

    mistakes: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    policies: tuple[PolicySummary, ...]


def lint_report(run: LintRun) -> LintReport:
    """Return a run as it is printed for machines."""
    return LintReport(
        mistakes=tuple(_mistake(found) for found in run.mistakes),
        warnings=tuple(_warning(found) for found in run.warnings),
        policies=tuple(_summary(policy) for policy in run.policies),
    )


def _mistake(found: Diagnostic) -> Finding:
    return Finding(
        file=found.file,
        line=found.line,
        column=found.column,
        check="mistake",
        message=found.message,
        hint=found.hint,
    )


def _warning(found: PolicyWarning) -> Finding:
    return Finding(
        file=found.place.file,
        line=found.place.line,
        column=found.place.column,
        check=found.check.value,
        message=found.message,
        hint=found.hint,
        policy=found.policy,
        rule=found.part,
    )


def _summary(policy: CompiledPolicy) -> PolicySummary:
    rules = (
        RuleSummary(
            name=rule.name,
            kind="score" if isinstance(rule, ScoreRule) else "filter",
            weight=rule.weight if isinstance(rule, ScoreRule) else 0,
            enforced_by=enforced_by(policy, rule),
            cost_millis=cost_millis(rule),
        )
        for rule in policy.rules
    )
    return PolicySummary(
        name=policy.name,
        file="" if policy.places is None else policy.places.document.file,
        mode=policy.mode.value,
        priority=policy.priority,
        rules=tuple(rules),
    )
