"""Marks on nodes: what the filters of policies say of a node whatever the pod.

A filter over changing state can be marked as far as it does not depend on the pod: a plugin
declares that part, and an expression is one if it reads the node and the moment alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from engine.cel import Program, compile_program
from engine.model import api
from engine.model.node_marks import AVOID_TAINT, mark_label
from engine.model.pod import pod_of
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.policy.context import RuleContext
from engine.policy.environment import ExpressionScope, environment
from engine.policy.expressions import FALSE, FilterExpression
from engine.policy.label_analysis import FilterLabels, filter_labels
from engine.policy.label_analysis.label_predicate import Unknown
from engine.policy.label_analysis.requirements import precompute
from engine.policy.policy_set import CompiledPolicy, PolicySet
from engine.policy.rules import FilterRule
from engine.policy.schema import Mode
from engine.view import FRESH, BoolColumn, ClusterView, Freshness

_PREFERRED: Final = FilterLabels(precompute(Unknown("marks come and go while pods run")))
_WITHOUT_POD: Final = ("node", "now")
_NO_POD: Final = PlacementRequest(
    pod=pod_of(msgspec.json.decode(b"{}", type=api.Pod)),
    raw=b"{}",
)
"""Stands for the request where no expression reads any of it."""


def needs_no_pod(program: Program, variables: Mapping[str, Program]) -> bool:
    """Return whether an expression reads the node and the moment alone, also by its variables.

    Args:
        program: the expression.
        variables: those of its policy, each of which reads only those before it.
    """
    for root, *path in program.references:
        if root == "variables":
            read = [variables[name] for name in path[:1] if name in variables]
            if not all(needs_no_pod(each, variables) for each in read or variables.values()):
                return False
        elif root not in _WITHOUT_POD:
            return False
    return True


@dataclass(frozen=True, slots=True)
class NodeFilterExpression:
    """A filter by an expression that needs no pod.

    Attributes:
        expression: the filter.
        policy: the name of its policy.
        variables: those of the policy.
    """

    expression: FilterExpression
    policy: str
    variables: Mapping[str, Program]

    def rejects_every_pod(self, view: ClusterView, now: Micros) -> BoolColumn:
        """Return the nodes that it is false for; not those it cannot be evaluated for."""
        context = RuleContext(_NO_POD, view, now, policy=self.policy, variables=self.variables)
        rejects: BoolColumn = self.expression.filter(context).codes == FALSE
        return rejects


def mark_filter(policy: str, *, is_required: bool) -> FilterRule:
    """Return the filter that keeps pods of a policy off nodes that carry its label.

    It speaks of labels alone, so the scheduler can evaluate it on fresh labels. Its name is the
    label: no rule that people write can have it.

    Args:
        policy: the name of the policy.
        is_required: whether it is a promise. A label that comes and goes is none by default: what
            is required of the node of a running pod is judged again by others.
    """
    label = mark_label(policy)
    program = compile_program(f"!('{label}' in node.labels)", environment(ExpressionScope.RULES))
    return FilterRule(
        policy=policy,
        name=label,
        dynamic=False,
        evaluator=FilterExpression(program, f"the node is marked by policy {policy}"),
        labels=filter_labels(program, errors_pass=False) if is_required else _PREFERRED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMarker:
    """A policy that marks nodes.

    Attributes:
        policy: its name.
        keys: of the taint or label, or both, that stand on the nodes it rejects.
        filters: its filters, as far as they are true whatever the pod.
    """

    policy: str
    keys: frozenset[str]
    filters: tuple[FilterRule, ...]

    def rejected_nodes(
        self, view: ClusterView, now: Micros, freshness: Freshness = FRESH
    ) -> list[str]:
        """Return the names of the nodes that one of the filters rejects, in the order of rows.

        A filter that reads data which is too old rejects none.
        """
        rejected = np.zeros(len(view), np.bool_)
        for rule in self.filters:
            if rule.node_filter is not None and not freshness.stale_among(rule.evaluator.reads):
                rejected |= rule.node_filter.rejects_every_pod(view, now)
        rejected &= view.valid
        return [view.names[row] for row in np.flatnonzero(rejected).tolist()]


def node_markers(policies: PolicySet) -> tuple[NodeMarker, ...]:
    """Return the policies that mark nodes.

    Every pod sees a taint, so only a policy for all pods taints nodes; a policy that says `Marked`
    labels them for its own pods.
    """
    return tuple(_markers(policy for policy in policies if policy.mode is Mode.ENFORCE))


def _markers(policies: Iterable[CompiledPolicy]) -> Iterable[NodeMarker]:
    for policy in policies:
        keys = []
        if policy.selects_all:
            keys.append(AVOID_TAINT)
        if policy.placement.dynamic_filters.marks_nodes:
            keys.append(mark_label(policy.name))
        filters = tuple(rule for rule in policy.filters if rule.node_filter is not None)
        if keys and filters:
            yield NodeMarker(policy=policy.name, keys=frozenset(keys), filters=filters)
