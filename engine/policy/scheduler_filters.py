"""The filters that the scheduler applies by itself, whatever a policy says."""

from __future__ import annotations

from typing import Final

from engine.model.decision import SCHEDULER
from engine.plugins import PLUGINS
from engine.policy.filter_evaluators import PluginJudge
from engine.policy.rules import FilterRule

STATIC_PLUGINS: Final = frozenset({"NodeAffinity", "NodeUnschedulable", "TaintToleration"})
"""Plugins whose filters read what an administrator says of a node, not its changing state."""

_NAMES = ("NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit")


def _filter_rule(name: str) -> FilterRule:
    plugin = PLUGINS[name]
    assert plugin.filter is not None  # noqa: S101 - all of them are filters
    return FilterRule(
        policy=SCHEDULER,
        name=name,
        dynamic=name not in STATIC_PLUGINS,
        judge=PluginJudge(plugin.filter(plugin.args()), plugin.reads),
    )


SCHEDULER_FILTERS: Final = tuple(map(_filter_rule, _NAMES))
"""A node that fails here cannot win; in the scheduler's order, with its default args."""
