"""NodeUnschedulable: keeps pods off cordoned nodes.

Source: pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go.

No difference from upstream is known.
"""

from __future__ import annotations

import numpy as np

from engine.model import api
from engine.model.node import NO_SCHEDULE, tolerates
from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs
from engine.plugins.base import Cycle, Filter, NoArgs, Plugin
from engine.view import Domain

_CORDON = api.Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
"""Pods that tolerate this tolerate a cordoned node, tainted or not."""


class NodeUnschedulableFilter(Filter):
    """Rejects nodes with `spec.unschedulable` unless the pod tolerates the taint that says so."""

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or 1 for a cordoned node."""
        cordoned = cycle.view.unschedulable
        for toleration in cycle.pod.tolerations:
            if tolerates(toleration, _CORDON):
                cordoned = np.zeros(len(cycle.view), np.bool_)
        return FilterResult(cordoned, cordoned.view(np.int8))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        return ("node(s) were unschedulable",)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return (RuleInput("cordoned", text="yes" if cycle.view.unschedulable[row] else "no"),)


PLUGIN = Plugin(args=NoArgs, filter=lambda _: NodeUnschedulableFilter(), reads=(Domain.NODES,))
