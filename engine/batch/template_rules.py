"""The rules for pods of a batch: single pods, and templates, whose pods no rule can tell apart."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from engine.cel import Reference
from engine.model.decision import Decision, PlacementRequest
from engine.model.pod import Pod, parse_affinity_terms
from engine.model.rule_outcomes import ScoreOutcome, and_not
from engine.model.selectors import parse_label_selector
from engine.model.time import Micros
from engine.model.workload import controller_selector
from engine.pipeline import Scope, decide_in, policies_for
from engine.placement.stored_pod import contexts_of, is_kept_off
from engine.policy import (
    MOST_ITERATIONS,
    SCHEDULER_POLICY,
    CompiledPolicy,
    FilterRule,
    PolicySet,
    RuleContext,
    ScoreRule,
    request_key,
    scheduler_filters,
    scheduler_scores,
)
from engine.view import FRESH, BoolColumn, ClusterView, Domain, Freshness

DEFAULT_SCOPE: Final = Scope()


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Decides for single pods at one moment: as the scheduler would, where no policy does."""

    policies: PolicySet  # the loaded policies
    now: Micros  # the moment
    scope: Scope = DEFAULT_SCOPE  # the pods that policies place
    freshness: Freshness = FRESH  # the domains of the view that are too old
    # (n,), those that are looked at, valid rows all of them; None for all
    nodes: BoolColumn | None = None

    def policies_for(self, request: PlacementRequest) -> Sequence[CompiledPolicy]:
        """Return the policies that decide for a pod, highest priority first; at least one."""
        chosen = policies_for(request, self.policies, self.now, scope=self.scope)
        return chosen or (SCHEDULER_POLICY,)

    def decide(self, request: PlacementRequest, view: ClusterView) -> Decision:
        """Decide for a pod."""
        policies = self.policies_for(request)
        contexts = contexts_of(policies, request, view, self.now, self.freshness)
        return decide_in(contexts, policies, nodes=self.nodes)

    def in_reach(self, request: PlacementRequest, view: ClusterView) -> BoolColumn:
        """Return the nodes that a pod might take after any other pods, (n,).

        All but those that a filter rejects which more pods cannot make relent.
        """
        policies = self.policies_for(request)
        contexts = contexts_of(policies, request, view, self.now, self.freshness)
        filters = [(rule, contexts[0]) for rule in scheduler_filters(contexts[0])]
        for policy, context in zip(policies, contexts, strict=True):
            filters += [(rule, context) for rule in policy.filters]
        nodes = view.valid if self.nodes is None else self.nodes
        for rule, context in filters:
            if not rule.evaluator.may_relent(context):
                nodes = and_not(nodes, rule.outcome(context).rejects)
        return nodes


_OWN: Final = frozenset(
    ("name", "generate_name", "uid", "owner_uid", "created", "annotations", "labels", "shape")
)
"""Fields in which pods of a template may differ, or which are looked at by themselves."""

_OF_SHAPE: Final = frozenset(("containers", "init_containers"))
"""Fields of which nothing is read but what pods of one shape have in common, and the images."""

_fields_of = itemgetter(
    *(i for i, name in enumerate(Pod.__struct_fields__) if name not in _OWN | _OF_SHAPE)
)
_encode = msgspec.msgpack.Encoder().encode

_Key: TypeAlias = tuple[int, str, bytes]

_OWN_PATHS: Final = frozenset(("name", "generateName", "annotations", "labels"))
"""Paths of a pod that its other fields and its shape do not determine."""


class TemplateKeys:
    """Keys of pods, equal only where neither policies nor other pods can tell two pods apart.

    Plugins read no annotation of a pod but through its shape, and no label but through that and
    selectors of pods, so of these only what selectors and expressions name counts.
    """

    def __init__(self, policies: PolicySet, pods: Iterable[Pod], view: ClusterView) -> None:
        programs = chain.from_iterable(policy.programs for policy in policies)
        paths = chain.from_iterable(program.references for program in programs)
        self._paths = frozenset(path for path in paths if _may_differ(path))
        selectors = (policy.object_selector for policy in policies)
        requirements = chain.from_iterable(selector.requirements for selector in selectors)
        of_policies = {requirement.key for requirement in requirements}
        of_pods = map(_keys_selected_by, pods)
        self._latest: dict[int, tuple[tuple[object, ...], _Key]] = {}  # of pods of a shape
        book = view.trait_book
        carried = [each.label_keys for each in (book.anti_affinity, *book.attraction.values())]
        self._labels = sorted(of_policies.union(*carried, *of_pods))

    def key(self, request: PlacementRequest) -> Hashable | None:
        """Return the key of a pod, None if it is one of its kind.

        Valid while the shape of the pod is held.
        """
        pod = request.pod
        expressions = request_key(self._paths, request) if self._paths else ""
        if expressions is None or request.expired is not None:
            return None
        labels = [pod.labels.get(name) for name in self._labels] if self._labels else ()
        others = (
            _fields_of(astuple(pod)),
            labels,
            request.namespace_labels,
            pod.is_mirror,
            expressions,
        )
        shape = id(pod.shape)
        latest = self._latest.get(shape)
        if latest is None or latest[0] != others:  # pods of a template mostly follow each other
            latest = self._latest[shape] = others, (shape, expressions, _encode(others[:-1]))
        return latest[1]


def template_keys(
    requests: Sequence[PlacementRequest], policies: PolicySet, view: ClusterView
) -> list[Hashable | None]:
    """Return the key of each pod; see `TemplateKeys`."""
    keys = TemplateKeys(policies, [request.pod for request in requests], view)
    return [keys.key(request) for request in requests]


def _keys_selected_by(pod: Pod) -> Iterable[str]:
    """Return the keys of labels by which a pod selects others; it may select itself by any."""
    preferred = (*pod.preferred_pod_affinity, *pod.preferred_pod_anti_affinity)
    written = (*pod.pod_affinity, *pod.pod_anti_affinity)
    written += tuple(each.pod_affinity_term for each in preferred)
    terms = parse_affinity_terms(written, pod.namespace) if written else ()
    selectors = [term.selector for term in terms if term.selector is not None]
    siblings = controller_selector(pod)
    if siblings is not None:
        selectors.append(siblings)
    keys: list[str] = []
    for constraint in (*pod.topology_spread, *pod.soft_topology_spread):
        keys += constraint.match_label_keys or ()
        if constraint.label_selector is not None:
            selectors.append(parse_label_selector(constraint.label_selector)[0])
    return [*keys, *(each.key for selector in selectors for each in selector.requirements)]


def _may_differ(path: Reference) -> bool:
    """Return whether pods that are alike in all else may differ in what an expression reads."""
    root, *fields = path
    if root == "pod":
        return not fields or fields[0] in _OWN_PATHS
    return root not in {"node", "nodes", "now", "variables"}


RawScores: TypeAlias = list[NDArray[Any]]
"""Scores of some rows before they are normalized, one array for each rule."""

_ENOUGH: Final = MOST_ITERATIONS // 2
"""Of the iterations that a policy may take: as many are left, so no pod more exhausts them."""


class UnevenError(Exception):
    """A score could not be evaluated, or other rules apply than at first."""


class TemplateRules:
    """Filters and scores of all policies that apply to the pods of a template."""

    def __init__(
        self,
        policies: Sequence[CompiledPolicy],
        request: PlacementRequest,
        view: ClusterView,
        judge: Judge,
    ) -> None:
        self._policies = policies
        self._nodes = judge.nodes
        now, freshness = judge.now, judge.freshness
        self._contexts = contexts_of(policies, request, view, now, freshness)
        if is_kept_off(self._contexts[0], policies[0].placement):
            raise UnevenError
        self._filters = self._filters_on(self._contexts)
        self._scores = self._scores_on(self._contexts)
        self._are_coupled = self._are_coupled_on(self._contexts)
        # whether what some filter says of a node depends on other nodes
        self.is_coupled = any(self._are_coupled)
        # those that pods change and that look at the node alone, each with the number of its policy
        self.dynamic_filters = [
            bound
            for bound, is_coupled in zip(self._filters, self._are_coupled, strict=True)
            if not is_coupled and self._is_dynamic(*bound)
        ]
        # where among `scores` those are that depend on other nodes, ascending
        self.coupled_positions = [
            i
            for i, (rule, number) in enumerate(self._scores)
            if rule.evaluator.reads_other_nodes(self._contexts[number])
        ]
        # whether neither a filter nor a score does
        self.is_local = not (self.is_coupled or self.coupled_positions)
        # where among `scores` those are that pods change and that look at the node alone, ascending
        self.dynamic_positions = [
            i
            for i, bound in enumerate(self._scores)
            if i not in self.coupled_positions and self._is_dynamic(*bound)
        ]
        # those at `dynamic_positions`; none that abstains
        self.dynamic_scores = [self._scores[i] for i in self.dynamic_positions]
        self.scores: Sequence[ScoreRule] = [rule for rule, _ in self._scores]  # all, in order

    def contexts_on(self, view: ClusterView) -> list[RuleContext]:
        """Return the context of each policy on a view."""
        return [context.on(view) for context in self._contexts]

    def check(self, view: ClusterView) -> None:
        """Do nothing if the same rules apply and depend on other nodes, as pods are on them now."""
        contexts = self.contexts_on(view)
        if self._are_coupled_on(contexts) != self._are_coupled:
            raise UnevenError
        if self._scores_on(contexts) != self._scores:
            raise UnevenError

    def coupled_scores(self, view: ClusterView, rows: NDArray[np.intp]) -> Sequence[ScoreOutcome]:
        """Return the scores that depend on other nodes, of some rows that alone are candidates."""
        contexts = self.contexts_on(view)
        bound = [self._scores[i] for i in self.coupled_positions]
        scored = [rule.outcome(contexts[number], rows) for rule, number in bound]
        if any(score.faults for score in scored):
            raise UnevenError
        return scored

    def contenders(
        self, decision: Decision, view: ClusterView
    ) -> tuple[NDArray[np.intp], Sequence[ScoreOutcome]]:
        """Return the nodes that pass all filters but those that depend on other nodes.

        Returns:
            Their rows, ascending; and the scores of these.
        """
        if not self.is_coupled:
            return decision.ranking.rows, decision.scored
        passing = decision.valid
        for is_coupled, outcome in zip(self._are_coupled, decision.filters, strict=True):
            if not is_coupled:
                passing = and_not(passing, outcome.rejects)
        (rows,) = passing.nonzero()
        contexts = self.contexts_on(view)
        scored = [rule.outcome(contexts[i], rows) for rule, i in self._scores]
        if not have_budget(contexts) or any(score.faults for score in scored):
            raise UnevenError
        return rows, scored

    def allowed(self, view: ClusterView) -> BoolColumn:
        """Return the nodes that pass the filters that depend on other nodes, (n,)."""
        contexts = self.contexts_on(view)
        nodes = view.valid
        for (rule, number), is_coupled in zip(self._filters, self._are_coupled, strict=True):
            if is_coupled:
                nodes = and_not(nodes, rule.outcome(contexts[number]).rejects)
        return nodes

    def decide(self, view: ClusterView) -> tuple[Decision, BoolColumn]:
        """Decide for the first pod of the template.

        Returns:
            The decision, and which rows pass the filters that no pod changes, (n,).
        """
        contexts = self.contexts_on(view)
        decision = decide_in(contexts, self._policies, nodes=self._nodes)
        if not have_budget(contexts) or any(score.faults for score in decision.scored):
            raise UnevenError
        may_pass = decision.valid
        for bound, outcome in zip(self._filters, decision.filters, strict=True):
            if not self._is_dynamic(*bound):
                may_pass = and_not(may_pass, outcome.rejects)
        return decision, may_pass

    def _filters_on(self, contexts: Sequence[RuleContext]) -> list[tuple[FilterRule, int]]:
        """Return the filters that apply, each with the number of its policy."""
        of_scheduler = [(rule, 0) for rule in scheduler_filters(contexts[0])]
        of_policies = [(rule, i) for i, each in enumerate(self._policies) for rule in each.filters]
        return of_scheduler + of_policies

    def _scores_on(self, contexts: Sequence[RuleContext]) -> list[tuple[ScoreRule, int]]:
        """Return the scores that apply, in the order of a decision, each with its policy."""
        of_scheduler = [(rule, 0) for rule in scheduler_scores(contexts[0], self._policies)]
        of_policies = [(rule, i) for i, each in enumerate(self._policies) for rule in each.scores]
        return of_scheduler + of_policies

    def _are_coupled_on(self, contexts: Sequence[RuleContext]) -> list[bool]:
        """Return of each filter that applies whether it depends on other nodes."""
        filters = self._filters_on(contexts)
        return [rule.evaluator.reads_other_nodes(contexts[i]) for rule, i in filters]

    def _is_dynamic(self, rule: FilterRule | ScoreRule, policy: int) -> bool:
        """Return whether pods that come to a node may change what a rule says of it."""
        reads = rule.evaluator.reads
        return Domain.PODS in reads and not self._contexts[policy].stale_among(reads)


def have_budget(contexts: Sequence[RuleContext]) -> bool:
    """Return whether so much is left of what policies may cost that no pod more exhausts it."""
    return all(context.budget.steps_left >= _ENOUGH for context in contexts)


def judge_states(rules: TemplateRules, view: ClusterView) -> tuple[BoolColumn, RawScores]:
    """Judge all rows of a view, which are nodes, by the rules of a template that pods change.

    Returns:
        The rows that pass the filters, and the scores, anything where a row does not pass.
    """
    contexts = rules.contexts_on(view)
    passes = np.ones(len(view), np.bool_)
    for rule, policy in rules.dynamic_filters:
        passes &= ~rule.rejects(contexts[policy])
    scores: RawScores = []
    for score, policy in rules.dynamic_scores:
        raw = score.raw(contexts[policy], passes)
        if raw is None:
            raise UnevenError
        scores.append(raw)
    if not have_budget(contexts):
        raise UnevenError
    return passes, scores
