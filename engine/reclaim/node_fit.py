"""Whether nodes would take a pod, by the scheduler's own filters and those of its policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.request import PlacementRequest
from engine.model.rule_outcomes import and_not
from engine.model.time import Micros
from engine.pipeline import Scope, policies_for
from engine.placement.stored_pod import contexts_of
from engine.policy import SCHEDULER_FILTERS, FilterRule, PolicySet, RuleContext
from engine.view import BoolColumn, ClusterView, Domain, Freshness, WhatIf

_SCHEDULER: Final = 0


class NodeFit:
    """The filters that a pod must pass on a node, scores aside.

    Those that read no pods are evaluated once. One that reads other nodes is evaluated for the
    cluster as a whole alone: nodes are not independent of each other then.

    Args:
        request: the pod and its context.
        policies: those in force.
        view: the cluster.
        now: the moment.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old.
        nodes: those that it may take, (n,); None for all.
    """

    def __init__(
        self,
        request: PlacementRequest,
        policies: PolicySet,
        view: ClusterView,
        now: Micros,
        scope: Scope,
        freshness: Freshness,
        nodes: BoolColumn | None = None,
    ) -> None:
        enforced = policies_for(request, policies, now, scope=scope)
        own = RuleContext(request, view, now, freshness)
        of_policies = contexts_of(enforced, request, view, now, freshness)
        if of_policies:
            own.pod = of_policies[0].pod
        self._contexts = [own, *of_policies]
        rules = [(rule, _SCHEDULER) for rule in SCHEDULER_FILTERS]
        rules += [(rule, i) for i, each in enumerate(enforced, 1) for rule in each.filters]
        reads = {domain for rule, _ in rules for domain in rule.evaluator.reads}
        self.stale = own.stale_among(reads)
        """The data that a filter reads and that is too old, with a text that says so."""
        moving = [bound for bound in rules if Domain.PODS in bound[0].evaluator.reads]
        self._of_each_node = [bound for bound in moving if not self._reads_others(*bound)]
        self._of_the_cluster = [bound for bound in moving if self._reads_others(*bound)]
        still = [bound for bound in rules if Domain.PODS not in bound[0].evaluator.reads]
        among = view.valid if nodes is None else view.valid & nodes
        self.may_pass = self._passing(still, view, among)
        """(n,), where only filters that read pods may reject the pod."""

    @property
    def reads_other_nodes(self) -> bool:
        """Whether what runs on other nodes may make a node fit or not."""
        return bool(self._of_the_cluster)

    def passing(self, what_if: WhatIf) -> BoolColumn:
        """Return which nodes of a cluster would take the pod, (n,)."""
        rules = (*self._of_each_node, *self._of_the_cluster)
        return self._passing(rules, what_if.view, self.may_pass)

    def first(self, what_if: WhatIf) -> str:
        """Return the first node by name that would take the pod, "" for none."""
        rows: list[int] = self.passing(what_if).nonzero()[0].tolist()
        return min((what_if.view.names[row] for row in rows), default="")

    def passing_alone(self, what_if: WhatIf, rows: NDArray[np.intp]) -> BoolColumn:
        """Return which of some rows would take the pod, aligned with them.

        Each as if nothing but itself were other than it is: what reads other nodes passes.
        """
        part = what_if.take(rows).view
        return self._passing(self._of_each_node, part, self.may_pass[rows])

    def _reads_others(self, rule: FilterRule, number: int) -> bool:
        return rule.evaluator.reads_other_nodes(self._contexts[number])

    def _passing(
        self, rules: Sequence[tuple[FilterRule, int]], view: ClusterView, nodes: BoolColumn
    ) -> BoolColumn:
        contexts = [context.on(view) for context in self._contexts]
        for rule, number in rules:
            nodes = and_not(nodes, rule.outcome(contexts[number]).rejects)
        return nodes
