"""NodePorts: the host ports of a pod must be free on the node.

Source: pkg/scheduler/framework/plugins/nodeports/node_ports.go. Ports of sidecars count, as since
Kubernetes 1.33; a port without an address is taken on every address.

No difference from upstream is known.
"""

from __future__ import annotations

from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs, Unit
from engine.plugins.base import Cycle, Filter, NoArgs, Plugin
from engine.view import Domain, pods_using


class NodePortsFilter(Filter):
    """Rejects nodes with a pod that has one of the host ports of the pod."""

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or 1 where a port is taken."""
        if not cycle.pod.host_ports:
            return FilterResult.passing(len(cycle.view))
        is_taken = pods_using(cycle.view, cycle.pod.host_ports) > 0
        return FilterResult(is_taken, is_taken.view("i1"))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        return ("node(s) didn't have free ports for the requested pod ports",)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        if not cycle.pod.host_ports:
            return ()
        pods = int(pods_using(cycle.view, cycle.pod.host_ports)[row])
        return (RuleInput("pods with its ports", pods, Unit.COUNT),)


def _has_ports(cycle: Cycle) -> bool:
    return bool(cycle.pod.host_ports)


PLUGIN = Plugin(
    args=NoArgs, filter=lambda _: NodePortsFilter(), reads=(Domain.PODS,), concerns=_has_ports
)
