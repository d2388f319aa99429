"""What runs: policies whose expressions are compiled and whose plugins are built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from engine.cel import CelError, Program
from engine.model.decision import PlacementOptions
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.model.selectors import LabelSelector
from engine.policy.activation import namespace_labels
from engine.policy.context import PolicyContext
from engine.policy.expressions import checked_bool
from engine.policy.rules import FilterRule, ScoreRule
from engine.policy.schema import Mode
from engine.view import PodSumProfile

_EVERYTHING: Final = LabelSelector()
_PLACEMENT: Final = PlacementOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A policy that is ready to run.

    Attributes:
        conditions: the programs of its matchConditions, by name.
        variables: the programs of its variables, by name, in order.
        sum_profiles: the sums over pods that its plugins need.
        estimator: the usage its plugins expect of a pod, None when none of them estimates.
        slow_parts: a line for each part of an expression that has to be evaluated node by node for
            every pod, which is right but takes long in a large cluster.
        digest: tells one text of the policy from another, comments and layout aside.
    """

    name: str
    mode: Mode = Mode.ENFORCE
    priority: int = 0
    namespace_selector: LabelSelector = _EVERYTHING
    object_selector: LabelSelector = _EVERYTHING
    conditions: Mapping[str, Program] = field(default_factory=dict)
    variables: Mapping[str, Program] = field(default_factory=dict)
    filters: tuple[FilterRule, ...] = ()
    scores: tuple[ScoreRule, ...] = ()
    placement: PlacementOptions = _PLACEMENT
    sum_profiles: tuple[PodSumProfile, ...] = ()
    estimator: Callable[[Pod], Amounts] | None = None
    slow_parts: tuple[str, ...] = ()
    digest: bytes = b""

    def selects(self, request: PlacementRequest) -> bool:
        """Return whether its selectors select the pod of a request and its namespace."""
        if not self.object_selector.matches(request.pod.labels):
            return False
        asked = self.namespace_selector
        return not asked.requirements or asked.matches(namespace_labels(request))

    def meets(self, request: PlacementRequest, errors: list[str]) -> bool:
        """Return whether a request meets its conditions.

        One that is false settles it, even if others fail; otherwise one that fails means that it
        does not, and is noted in `errors`.
        """
        if not self.conditions:
            return True
        context, failed, are_met = PolicyContext(self, request), list[str](), True
        for name, program in self.conditions.items():
            try:
                value = program.evaluate(context.activation(program), context.budget)
                if not checked_bool(value):
                    failed, are_met = [], False
                    break
            except CelError as error:
                failed.append(f"{self.name}: match condition `{name}`: {error}")
        errors += context.errors + failed
        return are_met and not failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The policies that speak of a pod, highest priority first.

    Attributes:
        enforced: those in Enforce mode.
        audited: those in Audit mode.
        errors: a line for each condition for which a policy could not be matched.
    """

    enforced: tuple[CompiledPolicy, ...] = ()
    audited: tuple[CompiledPolicy, ...] = ()
    errors: tuple[str, ...] = ()


class PolicySet:
    """The policies loaded together, highest priority first, then by name; never changes."""

    def __init__(self, policies: Iterable[CompiledPolicy] = ()) -> None:
        """Take policies in any order; their names must be unique."""
        ordered = sorted(policies, key=lambda policy: (-policy.priority, policy.name))
        self.policies: Final = tuple(ordered)
        profiles = (profile for policy in ordered for profile in policy.sum_profiles)
        self.sum_profiles: Final = tuple(dict.fromkeys(profiles))
        """The LoadAware sums that a view must keep for these policies."""

    def __len__(self) -> int:
        return len(self.policies)

    def __iter__(self) -> Iterator[CompiledPolicy]:
        return iter(self.policies)

    def in_audit_mode(self) -> PolicySet:
        """Return the same policies, none of which acts."""
        return PolicySet(replace(policy, mode=Mode.AUDIT) for policy in self.policies)

    def match(self, request: PlacementRequest) -> Match:
        """Return the policies that speak of a pod."""
        errors: list[str] = []
        enforced: list[CompiledPolicy] = []
        audited: list[CompiledPolicy] = []
        for policy in self.policies:
            if policy.selects(request) and policy.meets(request, errors):
                (enforced if policy.mode is Mode.ENFORCE else audited).append(policy)
        return Match(enforced=tuple(enforced), audited=tuple(audited), errors=tuple(errors))
