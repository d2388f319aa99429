"""The policies in force: what they did, where their pods were bound, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.policy import CompiledPolicy, PolicySet
from engine.report.decision import RuleKind
from engine.report.status import BindingStatus

RANK_BOUNDS = (1, 5, 20, 100)
"""The greatest rank of each band in `OutcomeFigures.ranks` but the last, which has no end."""

POINT = 100
"""Hundredths in a point: sums of points are exact, whoever adds them up."""


class OutcomeFigures(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Sums over the bound pods that a policy had a say in; points in hundredths.

    A node's points are those of the policy's own scores by weight, 0 to 100 for each pod; one that
    a filter rejects has none. "Chosen" is the node that the policies gave a pod at its binding, or,
    in Audit mode, would have given it.

    Attributes:
        pods: the pods, advised or decided at their binding.
        landed: of those, the ones on a node that they were meant for: advised, or chosen.
        decided: of the pods, those that were decided at their binding; all that follows is of them.
        moved: pods whose chosen node is another one than the scheduler took.
        denied: pods whose binding would have been denied.
        rank_total: sum of the ranks of the nodes that they landed on; a rejected node adds nothing.
        ranks: how many landed on a rank in each band of RANK_BOUNDS; 1 for every node that shares
            the best total, the others by the number of better nodes.
        rejected: pods on a node that policies reject.
        scored: pods for which the scores of the policy gave any node points.
        points: of the nodes that the scored landed on.
        best: points of the nodes that were ranked first for them.
        compared: of the scored, those with a chosen node.
        compared_points: of the nodes chosen for the compared.
        stock_points: of the nodes that the scheduler took for them.
        measured: pods for which the usage of both the chosen and the scheduler's node is known.
        hot: of the measured, those whose chosen node is above the threshold of usage.
        stock_hot: of the measured, those whose node by the scheduler is above it.
    """

    pods: int = 0
    landed: int = 0
    decided: int = 0
    moved: int = 0
    denied: int = 0
    rank_total: int = 0
    ranks: tuple[int, ...] = (0,) * (len(RANK_BOUNDS) + 1)
    rejected: int = 0
    scored: int = 0
    points: int = 0
    best: int = 0
    compared: int = 0
    compared_points: int = 0
    stock_points: int = 0
    measured: int = 0
    hot: int = 0
    stock_hot: int = 0

    @property
    def mean_rank(self) -> float | None:
        """Mean rank of the nodes that are not rejected."""
        ranked = self.decided - self.rejected
        return self.rank_total / ranked if ranked else None

    @property
    def mean_points(self) -> float | None:
        """Mean points of where pods landed, 0 to 100; None where none was scored."""
        return _mean(self.points, self.scored)

    @property
    def mean_lost(self) -> float | None:
        """Mean points lost against the node that was ranked first."""
        return _mean(self.best - self.points, self.scored)

    @property
    def mean_gained(self) -> float | None:
        """Mean points gained against the scheduler's own choice; negative is worse."""
        return _mean(self.compared_points - self.stock_points, self.compared)

    @property
    def hot_percent_more(self) -> float | None:
        """Percent of pods on hot nodes, less those that the scheduler would have put there."""
        return 100 * (self.hot - self.stock_hot) / self.measured if self.measured else None


class NamespaceOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Outcomes of a policy for the pods of a namespace; "" for those beyond the counted ones."""

    namespace: str
    figures: OutcomeFigures


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of pods that landed on a node which a filter rejects."""

    rule: str
    pods: int


class PolicyOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the decisions of a policy in the window.

    Of one in Audit mode: what would have changed. Pods that have not landed would have gone
    elsewhere, or waited; those on a rejected node could not have gone there.

    Attributes:
        policy: its name.
        mode: Enforce or Audit.
        total: of all namespaces.
        namespaces: of each, by name.
        rules: of its filters, in order; those that reject no node of a pod are left out.
        worse: why it makes things worse than the stock scheduler, "" if it does not.
    """

    policy: str
    mode: str
    total: OutcomeFigures
    namespaces: tuple[NamespaceOutcome, ...] = ()
    rules: tuple[RuleOutcome, ...] = ()
    worse: str = ""


class AuditedPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a policy is in Audit mode, whatever its file says.

    Attributes:
        digest: of the policy as it was, in hexadecimal digits; one that was changed since is in
            force again.
        since: ISO 8601.
        reason: for people.
    """

    digest: str
    since: str = ""
    reason: str = ""


class OutcomeReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of decisions: every bound pod counts that a policy had a say in.

    Attributes:
        since: ISO 8601, the beginning of the window; "" while nothing is counted.
        until: ISO 8601, of the latest count.
        window_seconds: the length of a full window.
        policies: by name, those of Enforce mode first.
        audited: policies that are in Audit mode for what they did, by name.
    """

    since: str = ""
    until: str = ""
    window_seconds: int
    policies: tuple[PolicyOutcome, ...] = ()
    audited: Mapping[str, AuditedPolicy] = {}


def _mean(total: int, count: int) -> float | None:
    return total / count / POINT if count else None


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
