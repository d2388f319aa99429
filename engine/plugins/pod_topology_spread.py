"""PodTopologySpread: keeps the pods that a pod selects evenly spread over the values of a label.

Source: pkg/scheduler/framework/plugins/podtopologyspread/{common,filtering}.go. Only constraints
with `whenUnsatisfiable: DoNotSchedule` reject nodes; default constraints of a scheduler's
configuration, of which the built-in ones never do, are not known here.

A domain is all nodes with one value of the topology key. It counts if one of its nodes has the keys
of all constraints, and the affinity and taints that the constraint honours allow that node. Pods on
other nodes do not count, nor do those that are about to be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.rule_input import RuleInput, RuleInputs, Unit
from engine.model.rule_outcomes import FilterResult
from engine.model.time import Micros
from engine.plugins.base import FAULT, PASS, Args, Plugin, result_of
from engine.plugins.lib.spread_constraints import (
    TOO_LARGE,
    SpreadConstraint,
    constraints_of,
    counting_nodes,
    has_label,
    matching_pods,
)
from engine.plugins.lib.topology import sums_of_domains
from engine.view import (
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    label_column,
)

_MOST_TOLD: Final = 4  # constraints in an explanation, and mistakes in a message
_MISMATCH: Final = 1
_NO_LABEL: Final = 2
_REASONS: Final = {
    _MISMATCH: "node(s) didn't match pod topology spread constraints",
    _NO_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
}


class PodTopologySpreadArgs(Args):
    """PodTopologySpread takes none."""


class _Spread(NamedTuple):
    """How a constraint finds the pods of a cluster spread.

    Attributes:
        pods: in the domain of each node, (n,); 0 where a node has none.
        has_domain: where a node has the label, (n,).
        fewest: in a domain that counts.
        most: that there may be in a domain, with the pod itself if it counts.
        own: 1 if it counts, else 0.
    """

    pods: IntColumn
    has_domain: BoolColumn
    fewest: int
    most: int
    own: int

    @property
    def is_exceeded(self) -> BoolColumn:
        """Where the pod would be too much for its domain, (n,)."""
        return self.has_domain & (self.pods > self.most - self.own)


class PodTopologySpreadFilter:
    """Rejects nodes where a pod would be one too many in its domain, or that are in none."""

    def __init__(self, _: PodTopologySpreadArgs) -> None:
        """Take the args, of which there are none."""

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:
        """Return PASS, or what the first constraint that a node breaks says of it."""
        if not pod.topology_spread:
            return FilterResult.passing(len(view))
        if view.parent is not None:  # domains are those of all nodes
            whole, rows = view.parent
            return result_of(self.filter(pod, whole, now).codes[rows])
        constraints = constraints_of(pod.topology_spread)
        if constraints is None or constraints.mistakes:
            return result_of(np.full(len(view), FAULT, np.int8))
        spreads = _spreads(constraints.each, pod, view)
        rejects = np.zeros(len(view), np.bool_)
        for spread in spreads:
            rejects |= ~spread.has_domain | spread.is_exceeded

        def codes() -> NDArray[np.int8]:
            found = np.full(len(view), PASS, np.int8)
            for spread in reversed(spreads):
                found[spread.is_exceeded] = _MISMATCH
                found[~spread.has_domain] = _NO_LABEL
            return found

        return FilterResult(rejects, codes)

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the text of one code."""
        return (_REASONS[code],)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return why no node could be judged."""
        constraints = constraints_of(pod.topology_spread)
        if constraints is None:
            return TOO_LARGE
        return "; ".join(str(mistake) for mistake in constraints.mistakes[:_MOST_TOLD])

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the pods of the domains of the node, with this one, and the fewest elsewhere."""
        whole, name = view.whole, view.names[row]
        constraints = constraints_of(pod.topology_spread)
        if constraints is None or constraints.mistakes:
            return ()
        node, row = view.nodes[row], whole.rows[name]
        labels = node.labels if node else {}
        told = zip(constraints.each, _spreads(constraints.each, pod, whole), strict=True)
        return tuple(
            value
            for constraint, spread in islice(told, _MOST_TOLD)
            for value in _inputs(constraint, spread, labels.get(constraint.key), row)
        )


def _inputs(
    constraint: SpreadConstraint, spread: _Spread, domain: str | None, row: int
) -> list[RuleInput]:
    if domain is None:
        return [RuleInput(f"label {constraint.key}", text="absent")]
    pods = int(spread.pods[row]) + spread.own
    return [
        RuleInput(
            f"pods in {constraint.key}={domain}",
            pods,
            Unit.COUNT,
            capacity=spread.most,
            pod=spread.own,
        ),
        RuleInput("fewest in a domain", spread.fewest, Unit.COUNT),
    ]


def _spreads(constraints: Sequence[SpreadConstraint], pod: Pod, view: ClusterView) -> list[_Spread]:
    """Return how each constraint finds the pods of a whole cluster spread."""
    included = counting_nodes(constraints, pod, view)
    return [
        _spread(constraint, which, pod, view)
        for constraint, which in zip(constraints, included, strict=True)
    ]


def _spread(
    constraint: SpreadConstraint, included: BoolColumn, pod: Pod, view: ClusterView
) -> _Spread:
    """Return how a constraint finds pods spread; included are the nodes that count, (n,)."""
    pods, domains, fewest = np.zeros(len(view), np.int64), 0, 0
    has_domain = has_label(constraint.key, view)
    selector = constraint.selector_for(pod)
    if included.any():
        label = label_column(view, constraint.key)
        pods = matching_pods(selector, pod.namespace, view)
        pods = sums_of_domains(label, np.where(included, pods, 0))
        domains = int(np.count_nonzero(np.bincount(label.codes[included])))
        if domains >= constraint.min_domains:
            fewest = int(pods[included].min())
    return _Spread(
        pods=pods,
        has_domain=has_domain,
        fewest=fewest,
        most=fewest + constraint.max_skew,
        own=int(selector is not None and selector.matches(pod.labels)),
    )


def _is_spread(pod: Pod, view: ClusterView) -> bool:  # noqa: ARG001 (as other plugins)
    """Return whether a pod has a constraint that rejects nodes."""
    return bool(pod.topology_spread)


PLUGIN = Plugin(
    args=PodTopologySpreadArgs,
    filter=PodTopologySpreadFilter,
    reads=(Domain.NODES, Domain.PODS),
    reads_other_nodes=_is_spread,
    concerns=_is_spread,
)
