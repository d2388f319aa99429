"""Filters and scores on node labels beside each other, by what they require of labels.

What is found holds for the nodes of any cluster, for each of the pods that it is tried with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, islice, permutations
from operator import and_
from typing import Final, TypeAlias

from engine.model.label_condition import ALWAYS, Exactness, LabelCondition
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, RuleContext, ScoreRule
from engine.policy.label_analysis import FilterLabels
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import Reads, programs_of, references_of
from engine.policy_lint.samples import Samples, have_numbers, have_resources

_VARIED: Final = frozenset(
    {
        *(("pod", name) for name in ("annotations", "labels", "namespace", "ownerKinds")),
        *(("pod", name) for name in ("priorityClassName", "requests", "schedulerName")),
        ("namespaceObject", "metadata"),
        ("node", "labels"),
    }
)
"""What the samples vary of what decides which labels are required."""


def label_findings(policy: CompiledPolicy, samples: Samples) -> Iterator[Finding]:
    """Yield a finding for each rule that contradicts others, or adds nothing to them."""
    filters = [
        rule
        for rule in policy.filters
        if rule.labels.summary.constrains_labels and _is_varied(policy, rule)
    ]
    if not filters and all(score.labels.preferred is None for score in policy.scores):
        return
    contexts = [
        policy.context(request, samples.view, samples.now)
        for request in samples.in_time(samples.requests)
    ]
    if not contexts:
        return
    for rule in policy.rules:
        yield from _unlabelled_findings(policy, rule, contexts)
    if not samples.has_all_texts:
        return
    required = {rule.name: _conditions(rule.labels, contexts) for rule in filters}
    contradiction = tuple(islice(_contradictions(required), 1))
    yield from contradiction
    if not contradiction:
        backwards = {name: required[name] for name in reversed(required)}
        yield from islice(_repetitions(backwards), 1)
        together = [reduce(and_, each) for each in zip(*required.values(), strict=True)]
        for score in policy.scores if together else ():
            if score.labels.preferred is not None and _is_varied(policy, score):
                preferred = _conditions(score.labels.preferred, contexts)
                yield from _idle_scores(score.name, together, preferred)


_Required: TypeAlias = Mapping[str, list[LabelCondition]]
"""What each filter requires of labels, for each pod."""


def _contradictions(required: _Required) -> Iterator[Finding]:
    for (other, others), (name, conditions) in combinations(required.items(), 2):
        if _all_contradict(zip(others, conditions, strict=True)):
            message = f"no node passes both this filter and `{other}`"
            yield Finding(name, message, _EITHER)


def _repetitions(required: _Required) -> Iterator[Finding]:
    for (name, conditions), (other, others) in permutations(required.items(), 2):
        if _adds_nothing(conditions, others):
            message = f"filter `{other}` rejects all that it rejects: it has no effect"
            yield Finding(name, message, f"drop one of the two, `{name}` or `{other}`")


def _idle_scores(
    name: str, together: Sequence[LabelCondition], preferred: Sequence[LabelCondition]
) -> Iterator[Finding]:
    """Yield that a score between two numbers gives all nodes the same that filters leave."""
    concerned = [
        (left, best)
        for left, best in zip(together, preferred, strict=True)
        if best.alternatives and best.exactness is Exactness.EXACT and best != ALWAYS
    ]
    if concerned and all(_covers(best, left) for left, best in concerned):
        yield Finding(name, "all nodes that the filters leave get the same: it has no effect")
    elif _all_contradict(concerned):
        yield Finding(name, "the filters reject all nodes that it prefers: it has no effect")


def _unlabelled_findings(
    policy: CompiledPolicy, rule: FilterRule | ScoreRule, contexts: Sequence[RuleContext]
) -> Iterator[Finding]:
    """Yield the labels that a rule wants to be anything but some values, and that must be there.

    Reading a label that is not there is an error.
    """
    labels = rule.labels if isinstance(rule, FilterRule) else rule.labels.preferred
    if labels is None or not isinstance(rule.evaluator, NodeExpression):
        return
    reads = [
        read
        for program in programs_of(policy, rule.evaluator.program)
        for read in Reads(program.root).keys
        if read.path == ("node", "labels")
    ]
    asked = {read.key for read in reads if read.asks} | _OF_EVERY_NODE
    excluding = {
        key
        for condition in _conditions(labels, contexts)
        for alternative in condition.alternatives
        for key, states in alternative.labels.items()
        if states.others and states.listed and not states.missing
    }
    for read in {read.key: read for read in reads}.values():
        if read.key in excluding - asked:
            is_filter = isinstance(rule, FilterRule)
            what = "is rejected" if is_filter else "gets no points"
            yield Finding(
                rule.name,
                f"a node without the label `{read.key}` {what}: reading it is an error",
                f"write `node.labels[?'{read.key}'].orValue('')`",
                read.offset,
            )


_OF_EVERY_NODE: Final = frozenset(
    {"kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os"}
)
"""Labels that each kubelet sets."""

_EITHER: Final = (
    "write one filter with `||`, or `in` with both values; for pods of one sort each, ask"
    " for it in `match` of a policy of its own"
)


def joint_findings(
    policy: CompiledPolicy, others: Sequence[CompiledPolicy], samples: Samples
) -> Iterator[Finding]:
    """Yield a finding for each other policy that leaves no node for any pod of one.

    Args:
        policy: the one.
        others: of the same set.
        samples: with pods that all of them speak of.
    """
    pods = samples.requests if samples.has_all_texts else ()
    for other in others:
        if not pods or not all(
            other.selects(each) and other.meets(each, samples.now, []) for each in pods
        ):
            continue
        for rule in policy.filters:
            for opposed in other.filters:
                if not (_is_varied(policy, rule) and _is_varied(other, opposed)):
                    continue
                pairs = [
                    (
                        rule.labels.condition(policy.context(pod, samples.view, samples.now)),
                        opposed.labels.condition(other.context(pod, samples.view, samples.now)),
                    )
                    for pod in pods
                ]
                if _all_contradict(pairs):
                    yield Finding(
                        rule.name,
                        f"no node passes both this filter and `{opposed.name}` of policy"
                        f" `{other.name}`, which applies to the same pods",
                        "select other pods in the `match` of one of them",
                    )
                    return


def _conditions(labels: FilterLabels, contexts: Iterable[RuleContext]) -> list[LabelCondition]:
    return [labels.condition(context) for context in contexts]


def _is_varied(policy: CompiledPolicy, rule: FilterRule | ScoreRule) -> bool:
    """Return whether samples vary all that decides which labels a rule requires."""
    if not isinstance(rule.evaluator, NodeExpression):
        return False
    programs = programs_of(policy, rule.evaluator.program)
    references = references_of(policy, rule.evaluator.program)
    return (
        all(path[:2] in _VARIED for path in references)
        and have_resources(programs)
        and have_numbers(program.root for program in programs)
    )


def _all_contradict(pairs: Iterable[tuple[LabelCondition, LabelCondition]]) -> bool:
    """Return whether nodes meet either of two conditions, and for no pod both."""
    found = list(pairs)
    return any(one.alternatives and other.alternatives for one, other in found) and not any(
        (one & other).alternatives for one, other in found
    )


def _covers(wide: LabelCondition, narrow: LabelCondition) -> bool:
    """Return whether each node that meets one condition meets the other."""
    return all(
        any(each.covers(alternative) for each in wide.alternatives)
        for alternative in narrow.alternatives
    )


def _adds_nothing(conditions: list[LabelCondition], others: list[LabelCondition]) -> bool:
    """Return whether a rule rejects some nodes, but none that the other one keeps."""
    return any(each != ALWAYS for each in conditions) and all(
        each.exactness is Exactness.EXACT and _covers(each, other)
        for each, other in zip(conditions, others, strict=True)
    )
