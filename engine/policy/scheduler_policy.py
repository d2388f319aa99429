"""What decides for a pod that no policy places: the scheduler's own filters and scores."""

from __future__ import annotations

from typing import Final

from engine.model.rule_outcomes import SCHEDULER
from engine.plugins import PLUGINS
from engine.policy.plugin_evaluators import PluginScore
from engine.policy.policy_set import CompiledPolicy
from engine.policy.rules import ScoreRule

_WEIGHTS: Final = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""Of the scheduler's default scores, those that are plugins here.

Source: pkg/scheduler/apis/config/v1/default_plugins.go.
"""


def _score(name: str, weight: int) -> ScoreRule:
    plugin = PLUGINS[name]
    assert plugin.score is not None  # noqa: S101 - all of them are scores
    evaluator = PluginScore(plugin.score(plugin.args()), plugin)
    return ScoreRule(policy=SCHEDULER, name=name, weight=weight, evaluator=evaluator)


SCHEDULER_POLICY: Final = CompiledPolicy(
    name=SCHEDULER, scores=tuple(_score(name, weight) for name, weight in _WEIGHTS.items())
)
"""Scores as the scheduler does, with its default args, after `SCHEDULER_FILTERS`."""
