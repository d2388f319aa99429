"""How the pods of a batch are decided: by which policies, and among which nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.decision import Decision, PlacementRequest
from engine.model.rule_outcomes import and_not
from engine.model.time import Micros
from engine.pipeline import Scope, decide_in, policies_for
from engine.placement.stored_pod import contexts_of
from engine.policy import SCHEDULER_POLICY, CompiledPolicy, PolicySet, scheduler_filters
from engine.view import FRESH, BoolColumn, ClusterView, Freshness

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
