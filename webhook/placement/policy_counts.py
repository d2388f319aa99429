"""Counts of what each policy in force does: decisions, nodes its filters reject, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from engine.binding import BindingAction, BindingDecision
from engine.model.decision import Decision, Verdict
from engine.policy import Mode, PolicySet
from webhook.placement.placer import Placement, Rejections, rejections_of

_OUTCOMES: Final = {
    Verdict.PLACE: "placed",
    Verdict.ABSTAIN: "abstained",
    Verdict.DENY: "denied",
}

_ENFORCE: Final = Mode.ENFORCE.value  # plain text: an enum's hash takes longer than counting
_AUDIT: Final = Mode.AUDIT.value

Counts: TypeAlias = Mapping[tuple[str, str, str], int]
"""Label values to a number that only grows."""


class PolicyCounts:
    """Decisions by policy, mode and outcome; rejected nodes by policy, mode and filter; failures.

    A policy starts at 0 when it comes into force, or when its mode changes; what went out of force
    is forgotten. So there are as many counts as the policies in force have rules.
    """

    def __init__(self) -> None:
        self._policies = PolicySet()
        self._decisions: dict[tuple[str, str, str], int] = {}
        self._rejections: dict[tuple[str, str, str], int] = {}
        self._errors: dict[str, tuple[int, str]] = {}

    def count(self, placement: Placement, policies: PolicySet) -> None:
        """Count one placement by some policies."""
        self._follow(policies)
        self._add(_ENFORCE, placement.policies, placement.verdict, placement.rejections)
        self._note(placement.errors)
        audit = placement.audit
        if audit is not None:
            self._add(_AUDIT, audit.policies, audit.verdict, audit.rejections)

    def count_release(self, decision: Decision, verdict: Verdict, policies: PolicySet) -> None:
        """Count the decision at the release of one held pod.

        Args:
            decision: for the pod, or for the first of its template.
            verdict: on this pod.
            policies: those it was decided by.
        """
        self._follow(policies)
        self._add(_ENFORCE, decision.policies, verdict, rejections_of(decision))
        self._note(decision.errors)
        audit = decision.audit
        if audit is not None:
            self._add(_AUDIT, audit.policies, audit.verdict, rejections_of(audit))

    def count_binding(self, made: BindingDecision, policies: PolicySet) -> None:
        """Count the decision on one binding.

        Args:
            made: the decision.
            policies: those it was made by.
        """
        self._follow(policies)
        for mode, each in ((_ENFORCE, made), (_AUDIT, made.audit)):
            decision = None if each is None else each.decision
            if each is None or decision is None:
                continue
            is_denied = each.action is BindingAction.DENY
            verdict = Verdict.DENY if is_denied else decision.verdict
            self._add(mode, decision.policies, verdict, rejections_of(decision))
            if mode == _ENFORCE:
                self._note(decision.errors)

    def decisions(self, policies: PolicySet) -> Counts:
        """Number of decisions that a policy took part in, by policy, mode and outcome."""
        self._follow(policies)
        return self._decisions

    def rejections(self, policies: PolicySet) -> Counts:
        """Number of nodes that a filter was the first to reject, by policy, mode and filter."""
        self._follow(policies)
        return self._rejections

    def errors(self, policy: str) -> tuple[int, str]:
        """Return how often a part of a policy could not be evaluated, and the last line of it."""
        return self._errors.get(policy, (0, ""))

    def _note(self, errors: tuple[str, ...]) -> None:
        """Count lines that begin with the name of their policy."""
        for line in errors:
            policy, _, text = line.partition(": ")
            count, _ = self._errors.get(policy, (0, ""))
            self._errors[policy] = count + 1, text

    def _add(
        self, mode: str, policies: tuple[str, ...], verdict: Verdict, rejections: Rejections
    ) -> None:
        outcome = _OUTCOMES[verdict]
        for policy in policies:
            self._decisions[policy, mode, outcome] += 1
        for policy, rule, nodes in rejections:
            self._rejections[policy, mode, rule] += nodes

    def _follow(self, policies: PolicySet) -> None:
        """Keep the counts of these policies, and no others."""
        if policies is self._policies:
            return
        self._policies = policies
        names = {policy.name for policy in policies}
        self._errors = {name: each for name, each in self._errors.items() if name in names}
        before = self._decisions, self._rejections
        self._decisions = {key: before[0].get(key, 0) for key in _decision_keys(policies)}
        self._rejections = {key: before[1].get(key, 0) for key in _rejection_keys(policies)}


def _decision_keys(policies: PolicySet) -> Iterator[tuple[str, str, str]]:
    for policy in policies:
        for outcome in _OUTCOMES.values():
            yield policy.name, policy.mode.value, outcome


def _rejection_keys(policies: PolicySet) -> Iterator[tuple[str, str, str]]:
    for policy in policies:
        for rule in policy.filters:
            yield policy.name, policy.mode.value, rule.name
