"""Policies that are ready to run, and the set that a request is matched against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Final

import msgspec

from engine.cel import CelError, Program
from engine.cel.vector import evaluated_calls, evaluation_cost
from engine.documents import Document, Path
from engine.errors import Place
from engine.model.decision import PlacementRequest
from engine.model.pod import Pod
from engine.model.policy_resource import WISH_WEIGHTS, PlacementAt, PlacementOptions
from engine.model.resources import Amounts
from engine.model.rule_outcomes import SCHEDULER
from engine.model.selectors import LabelSelector
from engine.model.time import Micros
from engine.plugins import PLUGINS
from engine.policy.context import (
    MOST_ITERATIONS,
    MOST_ITERATIONS_OF_A_NAMESPACE,
    PolicyContext,
    RuleContext,
)
from engine.policy.environment import ExpressionScope, namespace_labels
from engine.policy.node_statistics import COST_MICROS
from engine.policy.rules import (
    STATIC_PLUGINS,
    FilterRule,
    NodeExpression,
    PluginFilter,
    PluginScore,
    ScoreRule,
    checked_bool,
)
from engine.policy.schema import Mode, NamespacedPlacementPolicy, PlacementPolicy
from engine.view import FRESH, ClusterView, Freshness, PodSumProfile


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a part of a policy that its author should think of.

    Attributes:
        part: what `PartPlaces` calls it; "" for the policy as a whole.
        message: what it is.
        hint: what to write instead, "" where that is not known.
        offset: the character of the part's expression that it is about.
        path: leads to the value in the document, where that is not in the part's expression.
        is_key: whether it is about the key that `path` ends with.
    """

    part: str
    message: str
    hint: str = ""
    offset: int = 0
    path: Path = ()
    is_key: bool = False

    def __str__(self) -> str:
        """Return it on one line."""
        part = f"{self.part}: " if self.part else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{part}{self.message}{hint}"


_NAME: Final = ("metadata", "name")


_Steps = tuple[str | int, ...]


class PartPlaces:
    """The places of the rules, variables and match conditions of a policy."""

    def __init__(
        self, written: PlacementPolicy | NamespacedPlacementPolicy, document: Document
    ) -> None:
        self.document = document  # what the policy was compiled from
        placement = written.spec.placement
        is_written = "group_labels" in placement.model_fields_set
        # the `groupLabels` that are written in it
        self.group_labels = placement.group_labels if is_written else ()
        self._paths: dict[str, _Steps] = {"": _NAME}
        for name, path in _parts(written):
            self._paths.setdefault(name, path)  # of a filter before a score of that name

    def of(self, finding: Finding) -> Place:
        """Return the place of what is found; that of the policy's name for an unknown part."""
        if finding.is_key:
            return self.document.key_place(finding.path)
        part = self._paths.get(finding.part, _NAME)
        path = finding.path or (*part, "expression")
        return self.document.place(path, offset=finding.offset)

    def part_at(self, path: Path) -> str:
        """Return the part that a value belongs to, "" where it is in none of them."""
        parts = {at: name for name, at in self._paths.items()}
        starts = (tuple(path[:end]) for end in range(len(path), 0, -1))
        return next((parts[start] for start in starts if start in parts), "")


def variable_part(name: str) -> str:
    """Return what warnings call a variable."""
    return f"variable `{name}`"


def condition_part(name: str) -> str:
    """Return what warnings call a match condition."""
    return f"match condition `{name}`"


def part_name(scope: ExpressionScope, name: str) -> str:
    """Return what warnings call the part of a policy that an expression belongs to."""
    match scope:
        case ExpressionScope.MATCH:
            return condition_part(name)
        case ExpressionScope.VARIABLES:
            return variable_part(name)
    return name


def _parts(
    written: PlacementPolicy | NamespacedPlacementPolicy,
) -> Iterator[tuple[str, _Steps]]:
    spec = written.spec
    for index, condition in enumerate(spec.match.match_conditions):
        yield condition_part(condition.name), ("spec", "match", "matchConditions", index)
    for index, variable in enumerate(spec.variables):
        yield variable_part(variable.name), ("spec", "variables", index)
    for index, rule in enumerate(spec.filters):
        yield rule.name, ("spec", "filters", index)
    for index, score in enumerate(spec.scores):
        yield score.name, ("spec", "scores", index)


MOST_COST_OF_A_NAMESPACE: Final = 5_000
"""Of all policies for one namespace together, 5 ms: those of others wait meanwhile."""

TOO_COSTLY_HINT: Final = "drop or join rules; `stowplan lint` shows what each costs"

_ROWS: Final = 5_000
_COST_OF_RULE: Final = 30  # beside its expression
_COST_OF_PLUGIN: Final = 150
_COST_OF_CALL: Final = 6  # such as `string(now)`
_REFRESHES: Final = 10  # of decisions, one finds all nodes changed


def cost_of(rules: Iterable[FilterRule | ScoreRule], programs: Iterable[Program]) -> int:
    """Return the microseconds of the processor that a policy takes for one pod and 5,000 nodes.

    They are right in order of magnitude. A microsecond is a step of the budget.
    """
    cost = sum(_cost_of_values(program) for program in programs)
    for rule in rules:
        cost += _COST_OF_RULE
        if isinstance(rule.evaluator, NodeExpression):
            # Twice what all nodes share: for the key of a remembered column, and for the column.
            cost += 2 * _cost_of_values(rule.evaluator.program)
            for plan in rule.evaluator.plans:
                cost += plan.steps(_ROWS) + plan.refresh_cost / _REFRESHES
            cost += len(rule.evaluator.statistics) * COST_MICROS
        else:
            cost += _COST_OF_PLUGIN
    return math.ceil(cost)


def _cost_of_values(program: Program) -> float:
    """Return the microseconds of one evaluation: functions may make texts, or read them."""
    root = program.root
    return evaluation_cost(root) + evaluated_calls(root) * _COST_OF_CALL


def too_costly(cost: int, others: int = 0) -> str:
    """Return the message for a policy of a namespace that costs too much.

    Args:
        cost: its own.
        others: that of the policies of its namespace that are in force.
    """
    whole = f", with the others of its namespace {_millis(cost + others)}" if others else ""
    return (
        f"it takes some {_millis(cost)} for each pod and 5,000 nodes{whole}:"
        f" more than the {_millis(MOST_COST_OF_A_NAMESPACE)} that policies of a namespace may"
    )


def _millis(cost: int) -> str:
    return f"{cost / 1000:.2f} ms"


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

    def __post_init__(self) -> None:
        evaluators = [rule.evaluator for rule in self.scores]
        used = [each.entry for each in evaluators if isinstance(each, PluginScore)]
        names = [name for name, plugin in PLUGINS.items() if any(each is plugin for each in used)]
        object.__setattr__(self, "score_plugins", frozenset(names))

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


_FILTERS: Final = (
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
)
SCHEDULER_WEIGHTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict(WISH_WEIGHTS),
        "NodeResourcesFit": 1,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
)
"""The weights of the scheduler's scores.

Source: pkg/scheduler/apis/config/v1/default_plugins.go.
"""


def _filter(name: str) -> FilterRule:
    plugin = PLUGINS[name]
    return FilterRule(
        policy=SCHEDULER,
        name=name,
        dynamic=name not in STATIC_PLUGINS,
        evaluator=PluginFilter(plugin.default_filter(), plugin),
    )


SCHEDULER_FILTERS: Final = tuple(map(_filter, _FILTERS))
"""Filters that the scheduler applies by itself, under any policy, with its default args.

A node that fails one of them cannot win; they are in the scheduler's order.
"""

_CONCERNS: Final = tuple(PLUGINS[rule.name].concerns for rule in SCHEDULER_FILTERS)


def scheduler_filters(context: RuleContext) -> list[FilterRule]:
    """Return those of SCHEDULER_FILTERS that may reject any node."""
    rules = zip(SCHEDULER_FILTERS, _CONCERNS, strict=True)
    return [rule for rule, concerns in rules if concerns(context)]


def rule_keys(policies: Iterable[CompiledPolicy]) -> Iterator[tuple[str, str]]:
    """Yield policy and name of all rules that may decide: of policies, and the scheduler's own."""
    yield from ((SCHEDULER, name) for name in (*_FILTERS, *SCHEDULER_WEIGHTS))
    yield from ((policy.name, rule.name) for policy in policies for rule in policy.rules)


@cache  # INVARIANT: batches take equal scores for one rule
def _score(name: str, weight: int) -> ScoreRule:
    plugin = PLUGINS[name]
    evaluator = PluginScore(plugin.default_score(), plugin)
    return ScoreRule(policy=SCHEDULER, name=name, weight=weight, evaluator=evaluator)


SCHEDULER_POLICY: Final = CompiledPolicy(
    name=SCHEDULER, scores=tuple(_score(*each) for each in SCHEDULER_WEIGHTS.items())
)
"""Scores as the scheduler does, with its default args, after `SCHEDULER_FILTERS`."""


def scheduler_scores(context: RuleContext, policies: Sequence[CompiledPolicy]) -> list[ScoreRule]:
    """Return the scores of what a pod asks for that may tell nodes apart for it.

    They count beside those of the policies, with the weights that the first one gives them. A
    plugin that any of the policies scores with counts there alone.

    Args:
        context: of the pod and the cluster.
        policies: that apply, highest priority first; at least one.
    """
    own = policies[0].score_plugins.union(*(policy.score_plugins for policy in policies[1:]))
    return [
        _score(name, weight)
        for name, weight in policies[0].placement.scheduler_scores
        if weight and name not in own and PLUGINS[name].ranks(context)
    ]
