"""Policies: from YAML files to the filters and scores that run, and those that select a pod.

The policy kind, its files with the place of every mistake, and the values that its expressions
read belong here. Decisions never do: they are made in `engine.pipeline`.
"""

from __future__ import annotations

from engine.policy.context import MOST_ITERATIONS, RuleContext, request_key
from engine.policy.evaluation import (
    NodeValues,
    node_values,
    pod_fields_read,
    read_expression,
)
from engine.policy.loader import (
    CASES_FILE,
    CompiledResource,
    compile_resource,
    content_of,
    load_policies,
)
from engine.policy.policy_set import (
    MOST_COST_OF_A_NAMESPACE,
    SCHEDULER_FILTERS,
    SCHEDULER_POLICY,
    SCHEDULER_WEIGHTS,
    TOO_COSTLY_HINT,
    CompiledPolicy,
    Match,
    PolicySet,
    rule_keys,
    scheduler_filters,
    scheduler_scores,
    too_costly,
)
from engine.policy.rules import FilterRule, NodeExpression, ScoreRule
from engine.policy.schema import Mode, PlacementPolicy

__all__ = [
    "CASES_FILE",
    "MOST_COST_OF_A_NAMESPACE",
    "MOST_ITERATIONS",
    "SCHEDULER_FILTERS",
    "SCHEDULER_POLICY",
    "SCHEDULER_WEIGHTS",
    "TOO_COSTLY_HINT",
    "CompiledPolicy",
    "CompiledResource",
    "FilterRule",
    "Match",
    "Mode",
    "NodeExpression",
    "NodeValues",
    "PlacementPolicy",
    "PolicySet",
    "RuleContext",
    "ScoreRule",
    "compile_resource",
    "content_of",
    "load_policies",
    "node_values",
    "pod_fields_read",
    "read_expression",
    "request_key",
    "rule_keys",
    "scheduler_filters",
    "scheduler_scores",
    "too_costly",
]
