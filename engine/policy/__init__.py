"""Policies: from YAML files to filters and scores that run, and which of them speak of a pod.

What belongs here is the policy kind, its files with the place of every mistake, and the world that
its expressions read. What never does is any decision: that is made in `engine.pipeline`.
"""

from __future__ import annotations

from engine.policy.compiled import CompiledPolicy, Match, PolicySet
from engine.policy.context import PolicyContext
from engine.policy.loader import load_policies
from engine.policy.rules import FilterRule, ScoreRule
from engine.policy.scheduler_filters import SCHEDULER_FILTERS
from engine.policy.schema import Mode, PlacementPolicy

__all__ = [
    "SCHEDULER_FILTERS",
    "CompiledPolicy",
    "FilterRule",
    "Match",
    "Mode",
    "PlacementPolicy",
    "PolicyContext",
    "PolicySet",
    "ScoreRule",
    "load_policies",
]
