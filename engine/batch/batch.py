"""Pods in order, each decided as if those before it were on their nodes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.batch.look_ahead import (
    DEFAULT_SCOPE,
    Judge,
    Placements,
    Template,
    TemplateRules,
    UnevenError,
    template_keys,
)
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.resources import Amounts
from engine.model.rule_outcomes import SCHEDULER
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.view import FRESH, BoolColumn, ClusterView, Freshness


class BatchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one pod of a batch.

    Attributes:
        node: the name of the best node, "" where there is none.
        verdict: as of a `Decision`: there is a node if and only if it is PLACE.
        message: why there is no node, in one line; "" where there is one.
        score: the total of that node.
        candidates: the number of nodes that could take the pod.
        estimate: expected usage of the pod, base units; empty when no rule estimates.
        decision: the one made for the first pod of its template; what it computes on demand is of
            no moment any more.
    """

    node: str
    verdict: Verdict
    message: str
    score: int
    candidates: int
    estimate: Amounts
    decision: Decision

    @classmethod
    def of(cls, decision: Decision) -> BatchOutcome:
        """Return the outcome of a decision."""
        best = decision.ranking.best(1)
        fits = best.size > 0
        return cls(
            node=decision.best_node,
            verdict=decision.verdict,
            message="" if fits else decision.message,
            score=decision.ranking.given_totals.item(best[0]) if fits else 0,
            candidates=len(decision.ranking),
            estimate=decision.estimate,
            decision=decision,
        )


_MOST_TEMPLATES: Final = 128
"""That are remembered at a time: each takes some 250 KB in a cluster of 5,000 nodes."""


class Batch:
    """Decides pods in order, as it is iterated; what their decisions share is computed once."""

    def __init__(
        self,
        requests: Sequence[PlacementRequest],
        judge: Judge,
        view: ClusterView,
        keys: Sequence[Hashable | None],
    ) -> None:
        self._requests = requests
        self._keys = keys
        self._judge = judge
        self._view = view
        self._pods_of = Counter(keys)
        self._templates: OrderedDict[Hashable, Template | None] = OrderedDict()
        self._placements = Placements(view)

    def __iter__(self) -> Iterator[BatchOutcome]:
        """Yield the outcome for each pod; the next one is decided when it is asked for."""
        for request, key in zip(self._requests, self._keys, strict=True):
            yield self._decide(request, key)

    def _decide(self, request: PlacementRequest, key: Hashable | None) -> BatchOutcome:
        """Decide for a pod, and place it."""
        template, best = self._template(key, request), None
        if template is not None:
            try:
                best = template.best(request.pod)
            except UnevenError:
                self._templates[key] = None
        if template is None or best is None:
            return self._decide_alone(request)
        row, score = best
        template.place(request.pod, row)
        decision = template.decision
        return BatchOutcome(
            node=self._view.names[row],
            verdict=Verdict.PLACE,
            message="",
            score=score,
            candidates=template.ranking.count,
            estimate=decision.estimate,
            decision=decision,
        )

    def _decide_alone(self, request: PlacementRequest) -> BatchOutcome:
        decision = self._judge.decide(request, self._placements.what_if.view)
        best = decision.best(1)
        if best.size:
            self._placements.add(request.pod, best.item())
        return BatchOutcome.of(decision)

    def _template(self, key: Hashable | None, request: PlacementRequest) -> Template | None:
        """Return the template of the pods of a key, None where each is decided by itself."""
        if key is None or self._pods_of[key] == 1:
            return None
        if key not in self._templates:
            self._templates[key] = self._new_template(request, self._pods_of[key])
            if len(self._templates) > _MOST_TEMPLATES:
                self._templates.popitem(last=False)
        self._templates.move_to_end(key)
        return self._templates[key]

    def _new_template(self, request: PlacementRequest, pods: int) -> Template | None:
        if request.pod.nominated_node_name:
            return None
        view, policies = self._placements.what_if.view, self._judge.policies_for(request)
        try:
            rules = TemplateRules(policies, request, view, self._judge)
            return Template(rules, self._placements, pods)
        except UnevenError:
            return None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes for pods that must be placed together.

    Attributes:
        outcomes: of each pod, in order; up to the first that is not placed.
        failed: the position of that pod, None where all are placed.
        message: why it is not, in one line; "" where all are.
    """

    outcomes: Sequence[BatchOutcome]
    failed: int | None = None
    message: str = ""

    @property
    def nodes(self) -> list[str]:
        """The name of the node of each pod, in order; empty unless all are placed."""
        return [] if self.failed is not None else [outcome.node for outcome in self.outcomes]


def place_all(
    requests: Sequence[PlacementRequest],
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    rows: NDArray[np.intp] | None = None,
    scope: Scope = DEFAULT_SCOPE,
    freshness: Freshness = FRESH,
) -> Trial:
    """Find a node for every pod, in order: each sees those before it on their nodes.

    A pod goes where `decide` would place it, once those before it were counted by
    `ClusterState.nominate`. One that no policy places goes where the scheduler would, as far as its
    filters and scores are known here. A pod also fails where the scheduler's own filters cannot be
    judged, for what they read is too old.

    Args:
        requests: the pods, none of which counts on a node of the view, and their contexts.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment.
        rows: of the nodes that may take them; None for all. Others still count where
            a rule looks at other nodes.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    judge = Judge(policies=policies, now=now, scope=scope, freshness=freshness)
    return trial_of(requests, judge, view, template_keys(requests, policies, view), rows=rows)


def trial_of(
    requests: Sequence[PlacementRequest],
    judge: Judge,
    view: ClusterView,
    keys: Sequence[Hashable | None],
    *,
    rows: NDArray[np.intp] | None,
) -> Trial:
    """Find a node for every pod, in order; see `place_all`."""
    if rows is not None:
        judge = replace(judge, nodes=_among(view, rows))
    outcomes: list[BatchOutcome] = []
    latest: Decision | None = None
    for position, outcome in enumerate(Batch(requests, judge, view, keys)):
        outcomes.append(outcome)
        message = outcome.message
        if outcome.decision is not latest:  # pods of a template share one
            latest = outcome.decision
            message = message or _stale_filters(latest)
        if message:
            return Trial(outcomes=outcomes, failed=position, message=message)
    return Trial(outcomes=outcomes)


def _among(view: ClusterView, rows: NDArray[np.intp]) -> BoolColumn:
    nodes = np.zeros(len(view), np.bool_)
    nodes[rows] = True
    return nodes & view.valid


def _stale_filters(decision: Decision) -> str:
    """Return what the scheduler's own filters read and is too old, "" for nothing."""
    abstained = (each.abstained for each in decision.filters if each.policy == SCHEDULER)
    return ", ".join({text: None for texts in abstained for text in texts.values()})
