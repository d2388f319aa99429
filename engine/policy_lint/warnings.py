"""All that an author should think of in a policy that is valid, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import Diagnostic, Place
from engine.model.placement_options import DynamicFilters
from engine.policy import CompiledPolicy
from engine.policy_lint.changing_labels import why_it_changes
from engine.policy_lint.lint import lint_policy

_NAMES_NODES = (
    "`dynamicFilters: Required` writes node names, and Karpenter adds no node for such a pod"
)
_NO_PROMISE = (
    "a kubelet that restarts then rejects running pods that require it, and a descheduler evicts"
    " them; a score only prefers"
)
_LOST = {
    "TaintToleration": "soft taints",
    "NodeAffinity": "preferred node affinity",
    "PodTopologySpread": "spread over nodes and zones",
    "InterPodAffinity": "preferred affinity to pods",
}
"""What pods ask for in vain without a score of the scheduler."""


class Check(StrEnum):
    """The kind of a warning; its value is the rule's id where other tools read it."""

    PLACEMENT = "placement"  # how filters are enforced
    LABELS = "labels"  # what a filter requires of node labels
    UNUSUAL = "unusual"  # allowed, and refused or ignored elsewhere
    MEANING = "meaning"  # units that do not fit, rules that always fail or have no effect
    COST = "cost"  # takes long in a large cluster


CHECKS = {
    Check.PLACEMENT: "A filter enforced otherwise than it seems, or wishes that are ignored.",
    Check.LABELS: "A requirement on node labels that is probably not meant.",
    Check.UNUSUAL: "An expression or arg that is accepted here, and refused or ignored elsewhere.",
    Check.MEANING: "A number in another unit, or a rule that always fails or has no effect.",
    Check.COST: "A part of an expression that takes long in a large cluster.",
}
"""What each check looks for, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWarning:
    """Something that is valid in a policy and probably not meant.

    Attributes:
        check: what found it.
        policy: the name of the policy.
        part: the rule, variable or match condition; "" for the policy as a whole.
        message: what it is.
        place: where that part stands.
    """

    check: Check
    policy: str
    part: str
    message: str
    place: Place

    def __str__(self) -> str:
        """Return the warning with the part that it is about."""
        return f"{self.part}: {self.message}" if self.part else self.message

    @property
    def diagnostic(self) -> Diagnostic:
        """The warning with its place, source line and caret."""
        return self.place.problem(str(self))


def policy_warnings(
    policy: CompiledPolicy, is_over: Callable[[], bool] = lambda: False
) -> tuple[PolicyWarning, ...]:
    """Return every warning for the author of a policy; none is a mistake.

    They are what `stowplan lint` shows, and what the author of a resource sees as it is written.

    Args:
        policy: the policy.
        is_over: whether the time to try its rules is up.
    """
    sources: tuple[tuple[Check, Iterable[str]], ...] = (
        (Check.PLACEMENT, _placement_warnings(policy)),
        (Check.LABELS, _label_warnings(policy)),
        (Check.UNUSUAL, policy.warnings),
        (Check.MEANING, lint_policy(policy, is_over)),
        (Check.COST, policy.slow_parts),
    )
    # A plugin that filters and ranks by the same args gives each warning twice.
    found = dict.fromkeys((check, text) for check, texts in sources for text in texts)
    return tuple(_warning(policy, check, text) for check, text in found)


def _warning(policy: CompiledPolicy, check: Check, text: str) -> PolicyWarning:
    """Return a warning that begins with the name of a part, or is about the whole policy."""
    part, _, message = text.partition(": ")
    if part not in policy.places:
        part, message = "", text
    place = policy.places.get(part, Place(file=policy.name))
    return PolicyWarning(check=check, policy=policy.name, part=part, message=message, place=place)


def _placement_warnings(policy: CompiledPolicy) -> Iterator[str]:
    if policy.placement.dynamic_filters is DynamicFilters.REQUIRED:
        yield _NAMES_NODES
    yield from _lost_wishes(policy)


def _lost_wishes(policy: CompiledPolicy) -> Iterator[str]:
    weights = policy.placement.scheduler_scores
    lost = [
        _LOST[name] for name, weight in weights if not weight and name not in policy.score_plugins
    ]
    if lost:
        yield f"`schedulerScores` ignores what pods ask for themselves: {', '.join(lost)}"


def _label_warnings(policy: CompiledPolicy) -> Iterator[str]:
    for rule in policy.filters:
        summary = rule.labels.summary
        for warning in summary.warnings:
            yield f"{rule.name}: {warning}"
        for key in sorted(summary.keys) if summary.constrains_labels else ():
            if why := why_it_changes(key):
                yield f"{rule.name}: `{key}` changes in the life of a node, as {why}: {_NO_PROMISE}"
