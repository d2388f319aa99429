"""A batch of pods is decided in order, and what their decisions share is computed once."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

from engine.batch.outcome import BatchOutcome
from engine.batch.placements import Placements
from engine.batch.ranking import Ranking
from engine.batch.template import Template
from engine.batch.template_rules import TemplateRules, UnevenError
from engine.batch.templates import TemplateKeys
from engine.model.decision import Decision, Verdict
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.pipeline import Scope, decide, policies_for
from engine.policy import PolicySet
from engine.view import FRESH, ClusterView, Freshness

_SCOPE: Final = Scope()
_MOST_TEMPLATES: Final = 128
"""That are remembered at a time: each takes some 250 KB in a cluster of 5,000 nodes."""


def decide_batch(
    requests: Sequence[PlacementRequest],
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    scope: Scope = _SCOPE,
    freshness: Freshness = FRESH,
) -> list[BatchOutcome]:
    """Decide where pods should go, in order: each sees those before it on their best nodes.

    As if each were decided by `decide` and then counted by `ClusterState.nominate`. Decisions of
    policies in Audit mode are not made.

    Args:
        requests: the pods, none of which counts on a node of the view, and their contexts.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment of all decisions.
        scope: the pods to place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    keys = TemplateKeys(policies)
    by_request = [keys.key(request) for request in requests]
    pods_of = Counter(by_request)
    batch = _Batch(policies, view, now, scope, freshness)
    return [
        batch.decide(request, key if pods_of[key] > 1 else None)
        for request, key in zip(requests, by_request, strict=True)
    ]


class _Kind:
    """What pods of one key have in common.

    Attributes:
        template: None where each pod must be decided by itself.
        unplaced: the latest outcome without a node, and the number of pods placed then.
    """

    def __init__(self, template: Template | None) -> None:
        self.template = template
        self.unplaced: tuple[int, BatchOutcome] | None = None


class _Batch:
    """The pods that were decided so far, and the cluster with them."""

    def __init__(
        self,
        policies: PolicySet,
        view: ClusterView,
        now: Micros,
        scope: Scope,
        freshness: Freshness,
    ) -> None:
        self._policies = policies
        self._view = view
        self._now = now
        self._scope = scope
        self._freshness = freshness
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._placements = Placements(view, self._rankings)

    def decide(self, request: PlacementRequest, key: Hashable | None) -> BatchOutcome:
        """Decide for a pod, and place it; pods of one key cannot be told apart."""
        kind = None if key is None else self._kind(key, request)
        if kind is None or kind.template is None:
            return self._decide_alone(request)
        try:
            kind.template.refresh(request.pod)
        except UnevenError:
            kind.template = None
            return self._decide_alone(request)
        ranking = kind.template.ranking
        if not ranking.count:
            return self._unplaced(kind, request)
        row, score = ranking.best(request.pod)
        kind.template.place(request.pod, row)
        return BatchOutcome(
            node=self._view.names[row],
            verdict=Verdict.PLACE,
            message="",
            score=score,
            candidates=ranking.count,
            estimate=kind.template.decision.estimate,
            decision=kind.template.decision,
        )

    def _decide_alone(self, request: PlacementRequest) -> BatchOutcome:
        decision = self._decision(request)
        if decision.candidates.size:
            self._placements.add(request.pod, int(decision.candidates[0]))
        return BatchOutcome.of(decision)

    def _decision(self, request: PlacementRequest) -> Decision:
        view = self._placements.what_if.view
        return decide(
            request,
            self._policies,
            view,
            self._now,
            scope=self._scope,
            freshness=self._freshness,
        )

    def _unplaced(self, kind: _Kind, request: PlacementRequest) -> BatchOutcome:
        """Return the outcome for a pod that no node can take."""
        placed = len(self._placements.rows)
        if kind.unplaced is None or kind.unplaced[0] != placed:
            kind.unplaced = placed, BatchOutcome.of(self._decision(request))
        return kind.unplaced[1]

    def _kind(self, key: Hashable, request: PlacementRequest) -> _Kind:
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._new_kind(request)
            if len(self._kinds) > _MOST_TEMPLATES:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        return kind

    def _new_kind(self, request: PlacementRequest) -> _Kind:
        policies = policies_for(request, self._policies, self._now, scope=self._scope)
        if not policies or request.pod.nominated_node_name:
            return _Kind(None)
        view = self._placements.what_if.view
        try:
            rules = TemplateRules(policies, request, view, self._now, self._freshness)
            return _Kind(Template(rules, self._placements))
        except UnevenError:
            return _Kind(None)

    def _rankings(self) -> list[Ranking]:
        templates = (kind.template for kind in self._kinds.values())
        return [template.ranking for template in templates if template is not None]
