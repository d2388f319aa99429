"""The scheduler's own filters, and its own scores for a pod that no policy places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final

from engine.model.placement_options import WISH_WEIGHTS
from engine.model.rule_outcomes import SCHEDULER
from engine.plugins import PLUGINS
from engine.policy.context import RuleContext
from engine.policy.plugin_evaluators import PluginFilter, PluginScore
from engine.policy.policy_set import CompiledPolicy
from engine.policy.rules import STATIC_PLUGINS, FilterRule, ScoreRule

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
    assert plugin.filter is not None  # noqa: S101 - all of them are filters
    return FilterRule(
        policy=SCHEDULER,
        name=name,
        dynamic=name not in STATIC_PLUGINS,
        evaluator=PluginFilter(plugin.filter(plugin.args()), plugin),
    )


SCHEDULER_FILTERS: Final = tuple(map(_filter, _FILTERS))
"""Filters that the scheduler applies by itself, under any policy, with its default args.

A node that fails one of them cannot win; they are in the scheduler's order.
"""

_CONCERNS: Final = tuple(PLUGINS[rule.name].concerns for rule in SCHEDULER_FILTERS)


def scheduler_filters(context: RuleContext) -> list[FilterRule]:
    """Return those of SCHEDULER_FILTERS that may reject any node."""
    pod, view = context.request.pod, context.view
    return [
        rule
        for rule, concerns in zip(SCHEDULER_FILTERS, _CONCERNS, strict=True)
        if concerns(pod, view)
    ]


@cache  # INVARIANT: batches take equal scores for one rule
def _score(name: str, weight: int) -> ScoreRule:
    plugin = PLUGINS[name]
    assert plugin.score is not None  # noqa: S101 - all of them are scores
    evaluator = PluginScore(plugin.score(plugin.args()), plugin)
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
    pod, view = context.request.pod, context.view
    own = policies[0].score_plugins.union(*(policy.score_plugins for policy in policies[1:]))
    return [
        _score(name, weight)
        for name, weight in policies[0].placement.scheduler_scores
        if weight and name not in own and PLUGINS[name].ranks(pod, view)
    ]
