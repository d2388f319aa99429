"""Policies that are ready to run, and the set that a request is matched against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from engine.cel import CelError, Program
from engine.model.placement_options import PlacementAt, PlacementOptions
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.model.selectors import LabelSelector
from engine.model.time import Micros
from engine.plugins import PLUGINS
from engine.policy.activation import namespace_labels
from engine.policy.context import (
    MOST_ITERATIONS,
    MOST_ITERATIONS_OF_A_NAMESPACE,
    PolicyContext,
    RuleContext,
)
from engine.policy.cost import MOST_COST_OF_A_NAMESPACE
from engine.policy.expressions import NodeExpression, checked_bool
from engine.policy.findings import Finding
from engine.policy.part_places import PartPlaces
from engine.policy.plugin_evaluators import PluginScore
from engine.policy.request_values import SharedValues
from engine.policy.rules import FilterRule, ScoreRule
from engine.policy.schema import Mode
from engine.view import FRESH, ClusterView, Freshness, PodSumProfile

_EVERYTHING: Final = LabelSelector()
_PLACEMENT: Final = PlacementOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A policy whose expressions are compiled and whose plugins are built.

    Attributes:
        name: unique in a set; `namespace/name` of one for a namespace.
        namespace: the only one whose pods it applies to, "" for all.
        cost: microseconds that it takes for one pod and 5,000 nodes, see `cost_of`.
        sharers: policies of its namespace that share their iterations equally, itself included.
        shared_cost: the cost of all of them.
        conditions: the programs of its matchConditions, by name.
        variables: the programs of its variables, by name, in order.
        sum_profiles: the sums over pods that its plugins need.
        estimator: the usage its plugins expect of a pod, None when none of them estimates.
        slow_parts: the parts of expressions that are evaluated node by node for every pod, which
            takes long in a large cluster.
        warnings: what is allowed in it and probably not meant.
        digest: a hash of the policy's text, comments and layout aside.
        places: where its parts stand; None of one that was not read from a document.
        score_plugins: the names of the plugins among its scores.
    """

    name: str
    namespace: str = ""
    cost: int = 0
    sharers: int = 1
    shared_cost: int = 0
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
    slow_parts: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    digest: bytes = b""
    places: PartPlaces | None = field(default=None, compare=False)
    score_plugins: frozenset[str] = field(init=False, compare=False)
    _shared: SharedValues = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        evaluators = [rule.evaluator for rule in self.scores]
        used = [each.entry for each in evaluators if isinstance(each, PluginScore)]
        names = [name for name, plugin in PLUGINS.items() if any(each is plugin for each in used)]
        object.__setattr__(self, "score_plugins", frozenset(names))
        rules = (rule.evaluator for rule in self.rules)
        programs = [each.program for each in rules if isinstance(each, NodeExpression)]
        object.__setattr__(self, "_shared", SharedValues(programs, self.variables))

    @property
    def rules(self) -> tuple[FilterRule | ScoreRule, ...]:
        """Filters, then scores."""
        return (*self.filters, *self.scores)

    @property
    def most_iterations(self) -> int:
        """Loop iterations that all its expressions may take for one pod."""
        if not self.namespace:
            return MOST_ITERATIONS
        return MOST_ITERATIONS_OF_A_NAMESPACE // self.sharers

    @property
    def most_column_steps(self) -> int | None:
        """Microseconds that their columns may take; None of one for all namespaces: no bound.

        Each of one namespace has its part of what all of them may, by what it costs: enough on
        5,000 nodes, and on more where they cost less than they may.
        """
        if not self.namespace:
            return None
        return MOST_COST_OF_A_NAMESPACE * self.cost // max(1, self.shared_cost, self.cost)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Every expression: match conditions, variables, filters and scores."""
        evaluators = (rule.evaluator for rule in self.rules)
        rules = (each.program for each in evaluators if isinstance(each, NodeExpression))
        return (*self.conditions.values(), *self.variables.values(), *rules)

    def selects(self, request: PlacementRequest) -> bool:
        """Return whether its selectors select the pod of a request and its namespace."""
        if not self.object_selector.matches(request.pod.labels):
            return False
        if self.namespace:
            return self.namespace == request.pod.namespace
        namespaces = self.namespace_selector
        return not namespaces.requirements or namespaces.matches(namespace_labels(request))

    def meets(self, request: PlacementRequest, now: Micros, errors: list[str]) -> bool:
        """Return whether a request meets its match conditions at a moment.

        A condition that is false decides, even if others fail; otherwise a condition that fails
        counts as not met, and is noted in `errors`.
        """
        if not self.conditions:
            return True
        context = PolicyContext(
            request,
            now,
            policy=self.name,
            variables=self.variables,
            iterations=self.most_iterations,
        )
        failed, are_met = list[str](), True
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

    def context(
        self,
        request: PlacementRequest,
        view: ClusterView,
        now: Micros,
        freshness: Freshness = FRESH,
    ) -> RuleContext:
        """Return the context of its rules for one decision."""
        return RuleContext(
            request,
            view,
            now,
            freshness,
            policy=self.name,
            variables=self.variables,
            shared=self._shared,
            iterations=self.most_iterations,
            column_steps=self.most_column_steps,
        )


class Match(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The policies that select a pod, highest priority first.

    Attributes:
        enforced: those in Enforce mode.
        audited: those in Audit mode.
        errors: a line for each condition that could not be evaluated.
    """

    enforced: tuple[CompiledPolicy, ...] = ()
    audited: tuple[CompiledPolicy, ...] = ()
    errors: tuple[str, ...] = ()


class PolicySet:
    """The policies loaded together, in the order of their rank; immutable.

    Those for all namespaces come first, so that none for one namespace decides how a decision is
    written where they apply; then by falling priority, then by name.
    """

    def __init__(self, policies: Iterable[CompiledPolicy] = ()) -> None:
        """Take policies in any order; their names must be unique."""
        ordered = sorted(
            _sharing(tuple(policies)),
            key=lambda policy: (bool(policy.namespace), -policy.priority, policy.name),
        )
        self.policies: Final = tuple(ordered)
        self._of_all: Final = tuple(policy for policy in ordered if not policy.namespace)
        self._of_namespace: Final = {
            namespace: (*self._of_all, *of_one)
            for namespace, of_one in _by_namespace(ordered).items()
        }
        profiles = (profile for policy in ordered for profile in policy.sum_profiles)
        self.sum_profiles: Final = tuple(dict.fromkeys(profiles))
        """The LoadAware sums that a view must keep for these policies."""
        options = [policy.placement for policy in ordered if policy.mode is Mode.ENFORCE]
        self.may_hold: Final = any(each.hold_reasons for each in options)
        """Whether any of them has pods held."""
        self.may_bind: Final = any(each.at is PlacementAt.BINDING for each in options)
        """Whether any of them decides pods at their binding."""
        self.speaks_at_creation: Final = any(map(_speaks_at_creation, ordered))
        """Whether any may have something to say of a new pod, where bindings are decided."""

    def __len__(self) -> int:
        return len(self.policies)

    def __iter__(self) -> Iterator[CompiledPolicy]:
        return iter(self.policies)

    def in_audit_mode(
        self, concerned: Callable[[CompiledPolicy], bool] = lambda _policy: True
    ) -> PolicySet:
        """Return the same policies, those concerned in Audit mode: none of them acts."""
        return PolicySet(
            replace(policy, mode=Mode.AUDIT) if concerned(policy) else policy
            for policy in self.policies
        )

    def match(self, request: PlacementRequest, now: Micros) -> Match:
        """Return the policies that select the pod of a request at a moment."""
        errors: list[str] = []
        enforced: list[CompiledPolicy] = []
        audited: list[CompiledPolicy] = []
        for policy in self._of_namespace.get(request.pod.namespace, self._of_all):
            if policy.selects(request) and policy.meets(request, now, errors):
                (enforced if policy.mode is Mode.ENFORCE else audited).append(policy)
        return Match(enforced=tuple(enforced), audited=tuple(audited), errors=tuple(errors))


def _speaks_at_creation(policy: CompiledPolicy) -> bool:
    """Whether a policy decides before a pod is bound, or promises what a new pod must say."""
    if policy.placement.at is not PlacementAt.BINDING:
        return True
    is_enforced = policy.mode is Mode.ENFORCE
    return is_enforced and any(rule.labels.summary.constrains_labels for rule in policy.filters)


def _sharing(policies: Collection[CompiledPolicy]) -> Iterator[CompiledPolicy]:
    """Yield policies; those of one namespace share what its pods may cost."""
    sharers, costs = Counter[str](), Counter[str]()
    for policy in policies:
        sharers[policy.namespace] += 1
        costs[policy.namespace] += policy.cost
    for policy in policies:
        shared = sharers[policy.namespace], costs[policy.namespace]
        if policy.namespace and shared != (policy.sharers, policy.shared_cost):
            yield replace(policy, sharers=shared[0], shared_cost=shared[1])
        else:
            yield policy


def _by_namespace(policies: Iterable[CompiledPolicy]) -> dict[str, list[CompiledPolicy]]:
    found: dict[str, list[CompiledPolicy]] = {}
    for policy in policies:
        if policy.namespace:
            found.setdefault(policy.namespace, []).append(policy)
    return found
