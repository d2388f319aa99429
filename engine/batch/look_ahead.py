"""The nodes for the pods of one template: its rules, and what they say as its pods take nodes."""

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
from engine.model.decision import Decision, PlacementRequest, tie_mask
from engine.model.pod import Pod, parse_affinity_terms
from engine.model.rule_outcomes import ScoreOutcome, and_not
from engine.model.selectors import parse_label_selector
from engine.model.time import Micros
from engine.model.workload import controller_selector
from engine.pipeline import Scope, decide_in, policies_for, tie_factor
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
from engine.view import (
    FRESH,
    BoolColumn,
    ClusterView,
    Domain,
    Freshness,
    IntColumn,
    WhatIf,
    extremes,
    name_hashes,
)

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


class ScoreColumn:
    """One score over the candidates, some of which may be out by now.

    Its points follow from it and its ends (see `Score.normalize`), so that other nodes keep theirs
    when a pod changes a score between the ends.
    """

    def __init__(self, rule: ScoreRule, score: ScoreOutcome) -> None:
        self._rule = rule
        self._counts = not score.abstained
        self.raw = score.raw.copy()  # before it is normalized, (n_candidates,)
        # times the weight, (n_candidates,); anything for those that are out
        self.points = score.normalized * rule.weight
        # the least and the greatest of `raw` over those that are in
        self.ends: tuple[float, float] = (0, 0)
        if self.raw.size:
            self.ends = extremes(self.raw)

    def normalize(self, inside: NDArray[np.intp] | None) -> None:
        raw = self.raw if inside is None else self.raw.take(inside)
        self.ends = extremes(raw)
        if inside is None:
            self.points[:] = self._points_of(raw)
        else:
            self.points[inside] = self._points_of(raw)

    def replace(self, score: ScoreOutcome, inside: NDArray[np.intp] | None) -> bool:
        """Replace a score that depends on other nodes; return whether points differ."""
        points = score.normalized * self._rule.weight
        old = self.points if inside is None else self.points.take(inside)
        if np.array_equal(old, points):
            return False
        self.points[slice(None) if inside is None else inside] = points
        return True

    def points_between_ends(self, raw: NDArray[Any]) -> IntColumn:
        """Return the points of raw scores none of which is beyond the ends."""
        return self._points_of(np.concatenate([raw, np.array(self.ends, raw.dtype)]))[:-2]

    def write(
        self, places: NDArray[np.intp], raw: NDArray[Any], inside: NDArray[np.intp] | None
    ) -> bool:
        """Replace the scores of candidates that are in; return whether others need new points."""
        if not places.size:
            return False
        self.raw[places] = raw
        if self.has_other_ends(inside):
            return True
        self.points[places] = self.points_between_ends(raw)
        return False

    def renews(self, inside: NDArray[np.intp]) -> bool:
        """Give points again to those that are in; return whether any of them has others now."""
        before = self.points.take(inside)
        self.normalize(inside)
        return not np.array_equal(before, self.points.take(inside))

    def move(self, place: int, raw: np.generic, points: np.int64) -> bool:
        """Replace a score by one between the ends; return whether it was at an end."""
        was_at_end = self.raw[place] in self.ends
        self.raw[place], self.points[place] = raw, points
        return was_at_end

    def has_other_ends(self, inside: NDArray[np.intp] | None) -> bool:
        """Return whether the ends are not what they were; `inside` as for `normalize`."""
        raw = self.raw if inside is None else self.raw.take(inside)
        return extremes(raw) != self.ends

    def _points_of(self, raw: NDArray[Any]) -> IntColumn:
        if not self._counts:
            return np.zeros(raw.size, np.int64)
        points = self._rule.evaluator.normalize(raw)
        if points is None:
            raise UnevenError
        return points * self._rule.weight


class LookaheadTable:
    """States of nodes, computed together; those of one node follow each other, each a pod more."""

    def __init__(self, rows: NDArray[np.intp], passes: BoolColumn, raw: RawScores) -> None:
        self.rows = rows
        self.passes = passes
        self.raw = raw
        # of the candidate of each state; the rest is as of the ends at the last `rate`
        self.places: Sequence[int] = ()
        # whether it is a candidate, and its scores are between the ends
        self.is_between: Sequence[bool] = ()
        # by each score that pods change, where they are between the ends
        self.points: Sequence[IntColumn] = ()
        self.totals: Sequence[int] = ()  # of the points of all scores, likewise
        self.ends_version = -1  # that of the ranking at the last `rate`

    def rate(
        self, dynamic: Sequence[ScoreColumn], places: NDArray[np.intp], static_points: IntColumn
    ) -> None:
        """Give the states points by the ends as they are."""
        between = self.passes.copy()
        for column, raw in zip(dynamic, self.raw, strict=True):
            low, high = column.ends
            between &= (raw >= low) & (raw <= high)
        self.points = [
            column.points_between_ends(np.where(between, raw, column.ends[0]))
            for column, raw in zip(dynamic, self.raw, strict=True)
        ]
        # Of single integers, Python's own are read in a fraction of the time.
        self.places, self.is_between = places.tolist(), between.tolist()
        self.totals = sum(self.points, start=static_points).tolist()


_NEVER: Final = -1
"""The place of a row that was no candidate from the start; the total of one that is none now."""


class TemplateRanking:
    """The candidates of a template with their totals.

    Where filters depend on other nodes, all that would be candidates without these are known.

    Attributes:
        decision: the one for the first pod of the template.
        count: the number of candidates.
        dynamic: the scores that pods change.
        ends_version: grows when candidates that took no pod get other points.
        place_of: of each row among the candidates, _NEVER for one that was none from the start.
        may_pass: which rows pass the filters that no pod changes.
        is_in: which candidates are in by now.
        static_points: of candidates, by the scores that no pod changes.
        totals: of candidates.
    """

    def __init__(self, rules: TemplateRules, view: ClusterView) -> None:
        self.decision, self.may_pass = rules.decide(view)
        self._rows, scored = rules.contenders(self.decision, view)
        self._columns = [
            ScoreColumn(rule, score) for rule, score in zip(rules.scores, scored, strict=True)
        ]
        self.dynamic: Sequence[ScoreColumn] = [self._columns[i] for i in rules.dynamic_positions]
        self.place_of = np.full(len(view), _NEVER, np.intp)
        self.place_of[self._rows] = np.arange(self._rows.size)
        self.is_in = np.ones(self._rows.size, np.bool_)
        self._inside: NDArray[np.intp] | None = None  # of the candidates; None while all are
        self._hashes = name_hashes(view).take(self._rows)
        self._static = [column for column in self._columns if column not in self.dynamic]
        self.static_points = self._points_by(self._static)
        self.totals = self.static_points + self._points_by(self.dynamic)
        self.count = self._rows.size
        self.ends_version = 0
        self._passes = self.is_in.copy() if rules.is_coupled else None  # before `restrict_to`
        self._unread: list[tuple[NDArray[np.intp], RawScores]] = []  # of places, till then
        self._coupled = [self._columns[i] for i in rules.coupled_positions]
        if not rules.is_local:
            self.look_around(rules, view)

    def look_around(self, rules: TemplateRules, view: ClusterView) -> None:
        """Update what rules say of nodes that depends on other nodes."""
        if rules.is_coupled:
            self.restrict_to(rules.allowed(view))
        if not self._coupled or not self.count:
            return
        rows = self._rows if self._inside is None else self._rows.take(self._inside)
        scored = rules.coupled_scores(view, rows)
        changed = [
            column.replace(score, self._inside)
            for column, score in zip(self._coupled, scored, strict=True)
        ]
        if any(changed):
            self._add_up(is_static_known=False)

    def restrict_to(self, allowed: BoolColumn) -> None:
        """Update which rows pass the filters that depend on other nodes, (n,)."""
        assert self._passes is not None  # noqa: S101 - INVARIANT: there are such filters
        is_in = self._passes & allowed.take(self._rows)
        unread, self._unread = self._unread, []
        only_leave = not (is_in > self.is_in).any() and not any(
            is_in.take(places).any() for places, _ in unread
        )
        stale = self._leave((is_in < self.is_in).nonzero()[0]) if only_leave else self._columns
        for places, raw in unread:  # after they have left, with the scores that they had
            for column, new in zip(self.dynamic, raw, strict=True):
                column.raw[places] = new
        if not only_leave:
            self.is_in[:] = is_in
            self._inside = is_in.nonzero()[0]
            self.count = self._inside.size
        if stale or not only_leave:  # those that come need totals, even by no score at all
            self._rank(stale)

    def best(self, pod: Pod) -> tuple[int, int]:
        """Return the row of the best candidate for a pod, and its total; there must be one."""
        total: int = self.totals.item(self.totals.argmax())
        (tied,) = (self.totals == total).nonzero()
        keys = self._hashes.take(tied) * np.uint64(tie_factor(pod))
        keys &= np.uint64(tie_mask(total, self.count))
        return self._rows.item(tied[keys.argmin()]), total

    def best_rows(self, most: int) -> NDArray[np.intp]:
        """Return the rows of the best candidates, best first; more for ties, at most twice."""
        totals = self.totals
        if most >= self.count:
            (places,) = self.is_in.nonzero()
        else:
            last = np.partition(totals, -most)[-most]
            (above,), (tied,) = (totals > last).nonzero(), (totals == last).nonzero()
            places = np.concatenate([above, tied[: 2 * most - above.size]])
        return self._rows.take(places[(-totals.take(places)).argsort()])

    def update(self, rows: NDArray[np.intp], passes: BoolColumn, raw: RawScores) -> bool:
        """Update nodes that took pods.

        Returns:
            Whether that is possible: it is not for a node that becomes a candidate by pods.
        """
        places = self.place_of.take(rows)
        known = places != _NEVER
        if not known.all():
            if (passes & self.may_pass.take(rows))[~known].any():
                return False
            raw = [each[known[passes]] for each in raw]
            places, passes = places[known], passes[known]
        stays, was_in = places[passes], self.is_in.take(places)
        if self._passes is not None:
            self._passes[places] = passes
            self._unread.append((stays, raw))
            return True
        if (passes > was_in).any():  # they may be beyond the ends of any score
            self.is_in[places] = passes
            for column, new in zip(self.dynamic, raw, strict=True):
                column.raw[stays] = new
            self._inside = self.is_in.nonzero()[0]
            self.count = self._inside.size
            self._rank(self._columns)
            return True
        stale = self._leave(places[passes < was_in])
        for column, new in zip(self.dynamic, raw, strict=True):
            if column.write(stays, new, self._inside) and column not in stale:
                stale.append(column)
        self.totals[stays] = sum(
            [column.points.take(stays) for column in self.dynamic],
            start=self.static_points.take(stays),
        )
        if stale:
            self._rank(stale)
        return True

    def _leave(self, places: NDArray[np.intp]) -> list[ScoreColumn]:
        """Take candidates out; return the scores for which others need new points."""
        if not places.size:
            return []
        self.is_in[places] = False
        self._inside = self.is_in.nonzero()[0]
        self.count = self._inside.size
        self.totals[places] = _NEVER
        if not self.count:
            return []
        return [
            column
            for column in self._columns
            if (column.has_other_ends if column in self.dynamic else column.renews)(self._inside)
        ]

    def advance(self, row: int, table: LookaheadTable, at: int) -> bool:
        """Update a node that took one more pod by its next state.

        Returns:
            Whether that is possible; see `update`.
        """
        if self._passes is None and not self._coupled:  # else points move with most pods
            if table.ends_version != self.ends_version:
                places = self.place_of.take(table.rows)
                table.rate(self.dynamic, places, self.static_points.take(places))
                table.ends_version = self.ends_version
            if table.is_between[at]:
                self._move(table, at)
                return True
        passes = table.passes[at : at + 1]
        return self.update(np.array([row]), passes, [raw[at : at + 1][passes] for raw in table.raw])

    def _move(self, table: LookaheadTable, at: int) -> None:
        """Move a candidate that remains one to a state between the ends."""
        place = table.places[at]
        self.totals[place] = table.totals[at]
        states = zip(self.dynamic, table.raw, table.points, strict=True)
        left = [column for column, raw, points in states if column.move(place, raw[at], points[at])]
        stale = [column for column in left if column.has_other_ends(self._inside)]
        if stale:
            self._rank(stale)

    def _rank(self, columns: Sequence[ScoreColumn]) -> None:
        """Give all candidates points by some scores, and the totals of all scores."""
        if self.count:
            for column in columns:
                column.normalize(self._inside)
        self._add_up(is_static_known=not any(column in self._static for column in columns))

    def _add_up(self, *, is_static_known: bool) -> None:
        """Give all candidates the totals of all scores."""
        self.ends_version += 1
        if not is_static_known:
            self.static_points[:] = self._points_by(self._static)
        np.add(self.static_points, self._points_by(self.dynamic), out=self.totals)
        if self._inside is not None:
            self.totals[~self.is_in] = _NEVER

    def _points_by(self, columns: Sequence[ScoreColumn]) -> IntColumn:
        """Return the points of all candidates by some scores together."""
        points = np.zeros(self._rows.size, np.int64)
        for column in columns:
            points += column.points
        return points


class Placements:
    """The cluster with the pods of a batch.

    Pods are counted when somebody looks.
    """

    def __init__(self, view: ClusterView) -> None:
        self.rows: list[int] = []  # of the pods, in order
        self.sociable = 0  # how many of them want others near or away
        self._pods: list[Pod] = []
        self._whole = WhatIf(view)
        self._in_whole = 0  # pods that are counted there
        self._waiting_for: set[Hashable] = set()  # templates of those that are not
        self._nodes = len(view)

    @property
    def what_if(self) -> WhatIf:
        """The whole cluster, right until the next pod is placed."""
        new, self._in_whole = slice(self._in_whole, None), len(self.rows)
        if self._pods[new]:
            self._whole.place_each(self._pods[new], self.rows[new])
            self._waiting_for.clear()
        return self._whole

    def add(self, pod: Pod, row: int, template: Hashable | None = None) -> bool:
        """Place a pod.

        Returns:
            Whether it counts there unlike others of its template; see `WhatIf.is_reported`.
        """
        is_reported = self._whole.is_reported(pod, row)
        self.rows.append(row)
        if (
            pod.pod_anti_affinity
            or pod.pod_affinity
            or pod.preferred_pod_affinity
            or pod.preferred_pod_anti_affinity
        ):
            self.sociable += 1
        self._pods.append(pod)
        self._waiting_for.add(None if is_reported else template)
        return is_reported

    def ahead(
        self, pod: Pod, template: Hashable, rows: NDArray[np.intp], counts: IntColumn
    ) -> ClusterView:
        """Return rows as they would be if so many more pods of a template were on each.

        See `WhatIf.ahead`, also for what `counts` is. Pods of the template that are placed are not
        counted one by one for it.
        """
        if not self._waiting_for <= {template}:
            return self.what_if.ahead(pod, rows, counts)
        waiting = np.array(self.rows[self._in_whole :], np.intp)
        placed = np.bincount(waiting, minlength=self._nodes)
        return self._whole.ahead(pod, rows, counts + placed.take(rows))


_LEAST_ROWS: Final = 16
_MOST_ROWS: Final = 512
_FIRST_DEPTH: Final = 3


class LookAhead:
    """States of nodes that take one pod of a template after the other.

    When a node is not known, others that are likely to be needed are computed with it.
    """

    def __init__(self, rules: TemplateRules, ranking: TemplateRanking, pods: int) -> None:
        self._rules = rules
        self._ranking = ranking
        self._known: dict[int, tuple[LookaheadTable, int, int]] = {}  # the next states
        self._depths: dict[int, int] = {}  # to compute next time
        self._most = min(pods, _MOST_ROWS)
        self._pods = pods  # that are still to come

    def forget(self, rows: Sequence[int]) -> None:
        """Drop what is known of rows that took other pods."""
        if self._known:
            for row in rows:
                self._known.pop(row, None)

    def take_up(self, row: int, pod: Pod, placements: Placements) -> bool:
        """Bring the ranking up to date for a row that took one more pod of the template.

        Returns:
            Whether that is possible; see `TemplateRanking.update`.
        """
        self._pods -= 1
        known = self._known.get(row)
        if known is None:
            self._compute(row, pod, placements)
            known = self._known[row]
        table, at, end = known
        if at + 1 < end:
            self._known[row] = table, at + 1, end
        else:
            del self._known[row]
        return self._ranking.advance(row, table, at)

    def _compute(self, row: int, pod: Pod, placements: Placements) -> None:
        """Compute a row as it is, and with more pods; and the best others with more pods."""
        likely = max(_LEAST_ROWS, min(self._pods, self._most))
        best = self._ranking.best_rows(likely).tolist()
        self._most = min(2 * self._most, _MOST_ROWS)
        known = self._known.keys() | {row}
        nodes = [row, *[other for other in best if other not in known]]
        # The best of them are likely to take several pods before the last ones take any.
        depths = _FIRST_DEPTH - np.arange(len(nodes)) * _FIRST_DEPTH // len(nodes)
        if self._depths:
            usual = depths.tolist()
            depths[:] = [self._depths.get(*each) for each in zip(nodes, usual, strict=True)]
        ends = np.cumsum(depths)
        firsts = ends - depths
        rows = np.repeat(np.array(nodes, np.intp), depths)
        counts = np.arange(rows.size) - np.repeat(firsts, depths) + 1
        counts[: depths[0]] -= 1  # the row itself has taken its pod already
        view = placements.ahead(pod, self._rules, rows, counts)
        table = LookaheadTable(rows, *judge_states(self._rules, view))
        self._depths[row] = 2 * int(depths[0])
        for node, first, end in zip(nodes, firsts.tolist(), ends.tolist(), strict=True):
            self._known[node] = table, first, end


class Template:
    """The nodes for the pods of one template, as the pods placed so far leave them.

    Attributes:
        decision: for the first pod.
        ranking: of the nodes, as of the last `best`.
    """

    def __init__(self, rules: TemplateRules, placements: Placements, pods: int) -> None:
        self._rules = rules
        self._pods = pods
        self._placements = placements
        self._sociable = placements.sociable
        self._begin()
        self.decision = self.ranking.decision

    def _begin(self) -> None:
        view = self._placements.what_if.view
        self.ranking = TemplateRanking(self._rules, view)
        self._ahead = LookAhead(self._rules, self.ranking, self._pods)
        self._seen = len(self._placements.rows)
        self._own = False  # whether the first pod placed since then is of this template

    def _check_rules(self) -> None:
        """Do nothing if the same rules apply, and depend on other nodes, as at first."""
        if self._sociable != self._placements.sociable:
            self._rules.check(self._placements.what_if.view)
            self._sociable = self._placements.sociable

    def best(self, pod: Pod) -> tuple[int, int] | None:
        """Return row and total of the best node for a pod of the template, None for none."""
        self._refresh(pod)
        return self.ranking.best(pod) if self.ranking.count else None

    def _refresh(self, pod: Pod) -> None:
        """Bring the ranking up to date for the next pod."""
        self._check_rules()
        placed = self._placements.rows
        new = len(placed) - self._seen
        if not new:
            return
        if self._own and new == 1:  # nothing but the latest pod of the template was placed
            can = self._ahead.take_up(placed[-1], pod, self._placements)
        else:
            rows = [*set(placed[-new:])]
            part = self._placements.what_if.part(np.array(rows))
            passes, raw = judge_states(self._rules, part)
            self._ahead.forget(rows)
            can = self.ranking.update(np.array(rows), passes, [each[passes] for each in raw])
        self._own, self._seen = False, len(placed)
        if not can:
            self._begin()
        elif not self._rules.is_local:
            self.ranking.look_around(self._rules, self._placements.what_if.view)

    def place(self, pod: Pod, row: int) -> None:
        """Place the pod that `best` was asked for last."""
        if self._placements.add(pod, row, self._rules):
            self._ahead.forget([row])
        self._own = True
