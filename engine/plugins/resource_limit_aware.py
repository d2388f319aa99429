"""ResourceLimitAware: prefer nodes whose pods' limits are the least over-subscribed.

Source: kubernetes-sigs/scheduler-plugins, kep/217-resource-limit-aware-scoring; a proposal that was
never implemented. Pods on a node count by the limits of their containers, the incoming pod also by
its init containers and overhead. Pod-level resources do not count, because they are newer.

Differences from upstream:

- **Pods without limits**: an incoming one counts for `defaultLimits`, and for everything that a
  node offers of resources not named there. Pods on a node count for their own limits. The proposal
  does not say.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from engine.model.pod import Pod
from engine.model.quantity import CPU, MEMORY, NATIVE, base_units, is_scalar
from engine.model.rule_outcomes import RuleInput, RuleInputs, unit_of
from engine.plugins.base import MAX_SCORE, Args, Cycle, Plugin, ResourceName, Score, Scores
from engine.plugins.lib.args import Quantities
from engine.plugins.lib.arithmetic import bounded_percent, free_percent, minmax_normalize
from engine.view import Domain, IntColumn, Sum, capped


class ScoredResource(Args):
    """A resource that counts, and how much."""

    name: ResourceName
    weight: Annotated[int, Field(strict=True, ge=1, le=MAX_SCORE)] = 1


class ResourceLimitAwareArgs(Args):
    """The scored resources, and the amounts of a pod without limits.

    Attributes:
        resources: cpu, memory, ephemeral-storage or a scalar resource each; others count nothing.
        default_limits: quantities by resource name, for an incoming pod without any limit; all of
            what the node offers where a resource is not named.
    """

    resources: tuple[ScoredResource, ...] = (
        ScoredResource(name=CPU),
        ScoredResource(name=MEMORY),
    )
    default_limits: Quantities = Field(default_factory=dict)


class ResourceLimitAwareScore(Score):
    """Prefers nodes whose limits leave the most of what they offer, or exceed it the least."""

    def __init__(self, args: ResourceLimitAwareArgs) -> None:
        self._scored = tuple(
            (resource.name, resource.weight)
            for resource in args.resources
            if resource.name in NATIVE or is_scalar(resource.name)
        )
        self._defaults = {
            name: base_units(name, text) for name, text in args.default_limits.items()
        }

    def score(self, cycle: Cycle) -> Scores:
        """Return the weighted sum of what is left of each resource, in percent."""
        view = cycle.view
        total = np.zeros(len(view))
        for (name, weight), amount in zip(self._scored, self._amounts(cycle.pod), strict=True):
            offered = view.amount(view.allocatable, name)
            limits = view.amount(view.sums[Sum.CONTAINER_LIMITS], name)
            limits = limits + (offered if amount is None else amount)
            percent = free_percent(np.maximum(offered, 1).astype(np.float64), offered - limits)
            total += (offered > 0) * percent * weight
        return Scores(bounded_percent(total))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Stretch the scores over 0..MAX_SCORE, truncated; all equal scores become 0."""
        return minmax_normalize(scores)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        view = cycle.view
        inputs = []
        for (name, _), amount in zip(self._scored, self._amounts(cycle.pod), strict=True):
            offered = int(view.amount(view.allocatable, name)[row])
            others = int(view.amount(view.sums[Sum.CONTAINER_LIMITS], name)[row])
            total = others + (offered if amount is None else amount)
            inputs.append(RuleInput(f"{name} limits", total, unit_of(name), capacity=offered))
        return tuple(inputs)

    def _amounts(self, pod: Pod) -> tuple[int | None, ...]:
        """Return what the pod counts for per scored resource; None is all the node offers."""
        limits_nothing = not pod.shape.limits
        limits = self._defaults if limits_nothing else pod.shape.peak_limits
        absent = None if limits_nothing else 0
        amounts = (limits.get(name, absent) for name, _ in self._scored)
        return tuple(amount if amount is None else capped(amount) for amount in amounts)


PLUGIN = Plugin(
    args=ResourceLimitAwareArgs,
    score=ResourceLimitAwareScore,
    reads=(Domain.NODES, Domain.PODS),
)
