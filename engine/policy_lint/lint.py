"""What the expressions of a policy mean, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Final

from engine.documents import Document
from engine.errors import Diagnostic, Place
from engine.model.elastic_quota import EvictionMode
from engine.model.policy_resource import DynamicFilters, PlacementAt, WhenNoneFits
from engine.model.well_known import HOSTNAME_LABEL
from engine.policy import (
    SCHEDULER_FILTERS,
    CompiledPolicy,
    FilterRule,
    Mode,
    NodeExpression,
    PolicySet,
    ScoreRule,
)
from engine.policy.policy_set import Finding
from engine.policy.rules import PluginFilter
from engine.policy_lint.absent import (
    absent_findings,
    amount_findings,
    default_findings,
    element_findings,
    failure_findings,
    order_findings,
    report_findings,
    unanswered_findings,
    wish_findings,
)
from engine.policy_lint.args import unread_args
from engine.policy_lint.conditions import condition_findings
from engine.policy_lint.document_text import template_findings, yaml_findings
from engine.policy_lint.effects import effect_findings
from engine.policy_lint.labels import joint_findings, label_findings
from engine.policy_lint.logic import (
    IsOver,
    choice_findings,
    conflict_findings,
    implication_findings,
    logic_findings,
    precedence_findings,
    subset_findings,
)
from engine.policy_lint.names import (
    alternative_findings,
    measure_findings,
    name_findings,
    strategy_findings,
)
from engine.policy_lint.on_cluster import KnownCluster, args_findings, cluster_findings
from engine.policy_lint.patterns import (
    alphabet_findings,
    case_findings,
    control_findings,
    dot_findings,
    pattern_findings,
)
from engine.policy_lint.reads import Part, parts_of, programs_of
from engine.policy_lint.samples import OutOfTimeError, samples_for
from engine.policy_lint.scores import (
    distance_findings,
    factor_findings,
    owner_findings,
    price_findings,
    scale_findings,
)
from engine.policy_lint.times import time_findings
from engine.policy_lint.units import (
    Amount,
    absolute_findings,
    amount_of,
    division_findings,
    ordering_findings,
    undone_findings,
    unit_findings,
    zero_findings,
)
from engine.policy_lint.vocabulary import (
    creator_findings,
    generated_name_findings,
    metadata_findings,
    selector_findings,
    vocabulary_findings,
    why_it_changes,
)

_TOO_LONG: Final = "its rules take too long to try all of them: try them with `stowplan lint`"


def meaning_findings(policy: CompiledPolicy, is_over: IsOver = lambda: False) -> Iterator[Finding]:
    """Yield a finding for each part of an expression that is hardly meant as it is written."""
    amounts: dict[str, Amount] = {}
    for part in parts_of(policy):
        yield from unit_findings(part.name, part.program, amounts)
        if part.variable:
            amounts[part.variable] = amount_of(part.program, amounts)
        if isinstance(part.rule, ScoreRule):
            yield from absolute_findings(policy, part, amounts)
            yield from distance_findings(part)
            yield from price_findings(part)
        yield from logic_findings(part, is_over)
        yield from precedence_findings(part)
        yield from choice_findings(part)
        yield from implication_findings(policy, part)
        yield from subset_findings(part)
        yield from default_findings(part)
        yield from failure_findings(part)
        yield from condition_findings(part)
        yield from name_findings(part)
        yield from measure_findings(policy, part)
        yield from time_findings(part)
        yield from element_findings(part)
        yield from report_findings(part)
        yield from ordering_findings(policy, part)
        yield from generated_name_findings(part)
        yield from creator_findings(part)
        yield from absent_findings(policy, part)
        yield from unanswered_findings(policy, part)
        yield from wish_findings(policy, part)
        yield from amount_findings(part)
        yield from order_findings(part)
        if part.rule is not None:
            yield from owner_findings(policy, part)
            yield from division_findings(part)
            yield from undone_findings(part)
            yield from zero_findings(policy, part)
        yield from control_findings(part)
        yield from pattern_findings(part)
        yield from dot_findings(part)
        yield from alphabet_findings(part)
        yield from case_findings(part)
        yield from _unused_findings(policy, part)
    yield from conflict_findings(policy, is_over)
    yield from (unread := tuple(unread_args(policy)))
    yield from _of_the_scheduler(policy, {each.part for each in unread})
    yield from scale_findings(policy, amounts)
    yield from factor_findings(policy)
    yield from alternative_findings(policy)
    yield from strategy_findings(policy)


def _unused_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield that nothing reads a variable."""
    if part.variable:
        reads = {path[:2] for program in policy.programs for path in program.references}
        if not reads & {("variables",), ("variables", part.variable)}:
            message, hint = "nothing reads it", f"read `variables.{part.variable}`, or drop it"
            yield Finding(part.name, message, hint)


def _of_the_scheduler(policy: CompiledPolicy, misplaced: Collection[str]) -> Iterator[Finding]:
    """Yield the filters that the scheduler applies by itself, but for those meant as scores."""
    own = [
        rule.evaluator.plugin
        for rule in SCHEDULER_FILTERS
        if isinstance(rule.evaluator, PluginFilter)
    ]
    for rule in policy.filters:
        plugin = rule.evaluator.plugin if isinstance(rule.evaluator, PluginFilter) else None
        if rule.name not in misplaced and any(
            type(plugin) is type(each) and vars(plugin) == vars(each) for each in own
        ):
            message = "the scheduler filters by this plugin itself: it has no effect"
            yield Finding(rule.name, message, "drop it")


def observed_findings(policy: CompiledPolicy, is_over: IsOver = lambda: False) -> Iterator[Finding]:
    """Yield a finding for each part that has no effect, or fails, when it is tried."""
    try:
        samples = samples_for(policy, is_over)
        of_labels = tuple(label_findings(policy, samples))
        yield from of_labels
        explained = {found.part for found in of_labels}
        for found in effect_findings(policy, samples):
            if found.part not in explained:
                yield found
    except OutOfTimeError:
        yield Finding("", _TOO_LONG)


_NAMES_NODES = (
    "`dynamicFilters: Required` writes node names, and Karpenter adds no node for such a pod"
)
_NO_DYNAMIC = "`dynamicFilters` has no effect: all filters are on labels, and are required anyway"
_NO_PROMISE = (
    "a kubelet that restarts then rejects running pods that require it, and a descheduler evicts"
    " them; a score only prefers"
)
_MANY_POINTS: Final = 50
_DYNAMIC_FILTERS = ("spec", "placement", "dynamicFilters")

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
    TEMPLATE = "template"  # what was not rendered
    NAMES = "names"  # words that Kubernetes does not know
    UNUSUAL = "unusual"  # allowed, and refused or ignored elsewhere
    MEANING = "meaning"  # units that do not fit, parts that fail or have no effect
    COST = "cost"  # takes long in a large cluster
    CLUSTER = "cluster"  # what a recorded cluster lacks, or what is not decided there


CHECKS = {
    Check.PLACEMENT: "A filter enforced otherwise than it seems, or wishes that are ignored.",
    Check.LABELS: "A requirement on node labels that is probably not meant.",
    Check.TEMPLATE: "A part that a template was to replace, and that was not rendered.",
    Check.NAMES: "A value, field or label that is all but one that Kubernetes knows.",
    Check.UNUSUAL: "An expression or arg that is accepted here, and refused or ignored elsewhere.",
    Check.MEANING: "A unit, an order, or logic hardly meant; a part that fails or has no effect.",
    Check.COST: "A part of an expression that takes long in a large cluster.",
    Check.CLUSTER: "A word that nothing in the recording has, or a rule without effect there.",
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
        place: where it stands.
        hint: what to write instead, "" where that is not known.
    """

    check: Check
    policy: str
    part: str
    message: str
    place: Place
    hint: str = ""

    def __str__(self) -> str:
        """Return the warning on one line, with the part that it is about."""
        return str(Finding(self.part, self.message, self.hint))

    @property
    def diagnostic(self) -> Diagnostic:
        """The warning with its place, source line, caret and hint."""
        text = f"{self.part}: {self.message}" if self.part else self.message
        return self.place.problem(text, self.hint)


def policy_warnings(
    policy: CompiledPolicy,
    is_over: IsOver = lambda: False,
    cluster: KnownCluster | None = None,
) -> tuple[PolicyWarning, ...]:
    """Return every warning for the author of a policy; none is a mistake.

    They are what `stowplan lint` shows, and what the author of a resource sees as it is written.

    Args:
        policy: the policy.
        is_over: whether the time to try its rules is up.
        cluster: a recorded one to compare it with, if any.
    """
    names, meant = tuple(_name_findings(policy)), meaning_findings(policy, is_over)
    misspelt = {(found.part, found.offset) for found in names if found.part}
    causes = (
        *_of(Check.TEMPLATE, _text_findings(policy, template_findings)),
        *_of(Check.UNUSUAL, _text_findings(policy, yaml_findings)),
        *_of(Check.NAMES, names),
        *_of(Check.MEANING, (each for each in meant if (each.part, each.offset) not in misspelt)),
        *_of(Check.CLUSTER, () if cluster is None else args_findings(policy, cluster)),
    )
    # Where the text of a part says why it has no effect, that alone is named.
    explained = {found.part for _, found in causes if found.part}
    explained |= {found.part for found in policy.warnings}
    consequences = (
        *_of(Check.LABELS, _impossible_filters(policy)),
        *_of(Check.MEANING, observed_findings(policy, is_over)),
    )
    seen = explained | {found.part for _, found in consequences}
    of_cluster = () if cluster is None else cluster_findings(policy, cluster)
    found = (
        *_of(Check.PLACEMENT, _placement_findings(policy)),
        *causes,
        *(each for each in consequences if each[1].part not in explained),
        *_of(Check.LABELS, _label_findings(policy)),
        *_of(Check.UNUSUAL, policy.warnings),
        *_of(Check.COST, policy.slow_parts),
        *_of(
            Check.CLUSTER, (each for each in of_cluster if not each.part or each.part not in seen)
        ),
    )
    # A plugin that filters and ranks by the same args gives each warning twice.
    once = {(check, str(each)): each for check, each in reversed(found)}
    return tuple(warning_of(policy, check, each) for (check, _), each in reversed(once.items()))


_MOST_OTHERS: Final = 16  # policies on the same labels that one is compared with


def joint_warnings(policies: PolicySet) -> tuple[PolicyWarning, ...]:
    """Return a warning for each policy that contradicts another one, or repeats a rule of it."""
    enforced = [policy for policy in policies if policy.mode is Mode.ENFORCE]
    keys = {policy.name: _constrained_keys(policy) for policy in enforced}
    found: list[PolicyWarning] = []
    for policy in enforced:
        alike = (
            each for each in enforced if each is not policy and keys[each.name] & keys[policy.name]
        )
        if others := tuple(islice(alike, _MOST_OTHERS)):
            samples = samples_for(policy, others=others)
            findings = joint_findings(policy, others, samples)
            found += (warning_of(policy, Check.LABELS, each) for each in findings)
    found += (warning_of(policy, Check.MEANING, each) for policy, each in _copies(enforced))
    return tuple(found)


def _copies(policies: Iterable[CompiledPolicy]) -> Iterator[tuple[CompiledPolicy, Finding]]:
    """Yield the expressions that an earlier policy has, too, for the same pods."""
    known: dict[object, tuple[CompiledPolicy, FilterRule | ScoreRule]] = {}
    for policy in policies:
        conditions = frozenset(program.root for program in policy.conditions.values())
        pods = (policy.namespace, policy.namespace_selector, policy.object_selector, conditions)
        for rule in policy.rules:
            if not isinstance(rule.evaluator, NodeExpression):
                continue
            trees = tuple(each.root for each in programs_of(policy, rule.evaluator.program))
            other, twin = known.setdefault((pods, type(rule), trees), (policy, rule))
            if other is policy:
                continue
            message = f"`{twin.name}` of policy `{other.name}` is the same, for the same pods"
            if isinstance(rule, ScoreRule) and isinstance(twin, ScoreRule):
                message += f": together their weight is {rule.weight + twin.weight}"
            yield policy, Finding(rule.name, message, "drop one of the two, or select other pods")


def _constrained_keys(policy: CompiledPolicy) -> frozenset[str]:
    summaries = [rule.labels.summary for rule in policy.filters]
    return frozenset[str]().union(*(each.keys for each in summaries if each.constrains_labels))


def _of(check: Check, findings: Iterable[Finding]) -> Iterator[tuple[Check, Finding]]:
    return ((check, each) for each in findings)


def warning_of(policy: CompiledPolicy, check: Check, found: Finding) -> PolicyWarning:
    """Return what is found as a warning, with its place."""
    place = Place(file=policy.name) if policy.places is None else policy.places.of(found)
    return PolicyWarning(
        check=check,
        policy=policy.name,
        part=found.part,
        message=found.message,
        place=place,
        hint=found.hint,
    )


def _text_findings(
    policy: CompiledPolicy, find: Callable[[Document], Iterator[Finding]]
) -> Iterator[Finding]:
    if policy.places is not None:
        for found in find(policy.places.document):
            yield replace(found, part=policy.places.part_at(found.path))


def _name_findings(policy: CompiledPolicy) -> Iterator[Finding]:
    if policy.places is not None:
        yield from selector_findings(policy, policy.places.document)
        yield from metadata_findings(policy.places.document)
    for part in parts_of(policy):
        yield from vocabulary_findings(part)


def _placement_findings(policy: CompiledPolicy) -> Iterator[Finding]:
    if policy.placement.dynamic_filters is DynamicFilters.REQUIRED:
        is_used = any(rule.dynamic for rule in policy.filters)
        if is_used:
            yield Finding("", _NAMES_NODES, path=_DYNAMIC_FILTERS)
        else:
            hint = "drop it; what is to reject nodes is a filter, no score"
            yield Finding("", _NO_DYNAMIC, hint, path=_DYNAMIC_FILTERS)
    yield from _lost_wishes(policy)
    yield from _idle_options(policy)


def _idle_options(policy: CompiledPolicy) -> Iterator[Finding]:
    placement, at = policy.placement, ("spec", "placement")
    if not policy.rules:
        return
    if placement.min_gain >= _MANY_POINTS and policy.scores:
        message = (
            f"`minGain` is {placement.min_gain} of 100 points: hardly any node is better by so many"
        )
        hint = "1 to 10 are usual; to move pods for filters alone, drop the `scores`"
        yield Finding("", message, hint, path=(*at, "minGain"))
    elif placement.min_gain > 1 and not policy.scores:
        message = "`minGain` has no effect: the policy has no scores"
        yield Finding("", message, "drop it, or give it `scores`", path=(*at, "minGain"))
    if placement.when_none_fits is not WhenNoneFits.ALLOW and not policy.filters:
        message = f"`whenNoneFits: {placement.when_none_fits}` has no effect: there are no filters"
        yield Finding("", message, "drop it, or give it `filters`", path=(*at, "whenNoneFits"))
    if placement.release_in_order and placement.at is PlacementAt.ADMISSION:
        message = "the pod is held, and advice from its creation is old when it is released"
        yield Finding("", message, "decide `at: Binding`", path=(*at, "releaseInOrder"))
    if policy.mode is Mode.AUDIT and placement.preemption is EvictionMode.ON:
        message = "`preemption` has no effect: `mode: Audit` records, and changes nothing"
        hint = "to see what it would evict write `mode: Enforce`, and `DryRun` here"
        yield Finding("", message, hint, path=(*at, "preemption"))


def _lost_wishes(policy: CompiledPolicy) -> Iterator[Finding]:
    weights = policy.placement.scheduler_scores
    lost = [
        _LOST[name] for name, weight in weights if not weight and name not in policy.score_plugins
    ]
    if lost:
        text = f"`schedulerScores` ignores what pods ask for themselves: {', '.join(lost)}"
        yield Finding("", text, path=("spec", "placement", "schedulerScores"))


def _impossible_filters(policy: CompiledPolicy) -> Iterator[Finding]:
    for rule in policy.filters:
        if rule.labels.summary.unsatisfiable:
            yield Finding(rule.name, "no node can ever pass")


def _label_findings(policy: CompiledPolicy) -> Iterator[Finding]:
    for rule in policy.filters:
        summary = rule.labels.summary
        if HOSTNAME_LABEL in summary.keys:
            text = f"no autoscaler adds a node for a requirement on `{HOSTNAME_LABEL}`"
            yield Finding(rule.name, text)
        for key in sorted(summary.keys) if summary.constrains_labels else ():
            if why := why_it_changes(key):
                text = f"`{key}` changes in the life of a node, as {why}: {_NO_PROMISE}"
                yield Finding(rule.name, text)
