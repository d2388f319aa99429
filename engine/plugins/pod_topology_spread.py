"""PodTopologySpread: keeps the pods that a pod selects evenly spread over the values of a label.

Source: pkg/scheduler/framework/plugins/podtopologyspread/{common,filtering}.go. Only constraints
with `whenUnsatisfiable: DoNotSchedule` reject nodes; default constraints of a scheduler's
configuration, of which the built-in ones never do, are not known here.

A domain is all nodes with one value of the topology key. It counts if one of its nodes has the keys
of all constraints, and the affinity and taints that the constraint honours allow that node. Pods on
other nodes do not count, nor do those that are about to be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.model.decision import FilterResult
from engine.model.pod import Pod
from engine.model.rule_input import RuleInput, RuleInputs, Unit
from engine.model.selectors import (
    LabelSelector,
    Mistake,
    Mistakes,
    Operator,
    Requirement,
    parse_label_selector,
    parse_node_selector,
)
from engine.model.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from engine.model.time import Micros
from engine.plugins.base import FAULT, PASS, Args, Plugin, result_of
from engine.plugins.lib.node_selection import matching_required, names_too_many
from engine.view import (
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    PodQuery,
    label_column,
    pods_matching,
    taint_column,
)

_NODES: Final = (Domain.NODES,)
_MOST_CONSTRAINTS: Final = 16  # of one key most pods have one; anyone may create a pod with more
_MOST_TOLD: Final = 3  # mistakes in a message
_MOST_CONSTRAINTS_TOLD: Final = 4
_HONOR: Final = "Honor"
_REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)
_ENCODE: Final = msgspec.json.Encoder().encode
_MISMATCH: Final = 1
_NO_LABEL: Final = 2
_REASONS: Final = {
    _MISMATCH: "node(s) didn't match pod topology spread constraints",
    _NO_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
}


class PodTopologySpreadArgs(Args):
    """PodTopologySpread takes none."""


@dataclass(frozen=True, slots=True)
class _Constraint:
    """One constraint of a pod.

    Attributes:
        key: the label whose values are the domains.
        max_skew: how many pods more than in the domain with the fewest there may be.
        min_domains: of fewer domains that count, the fewest pods are taken to be 0.
        selector: of the pods that count, with the values of `matchLabelKeys`; None for no pod.
        honors_affinity: whether only nodes count that the pod's node selector and affinity allow.
        honors_taints: whether only nodes count whose taints the pod tolerates.
    """

    key: str
    max_skew: int
    min_domains: int
    selector: LabelSelector | None
    honors_affinity: bool
    honors_taints: bool

    def selects(self, pod: Pod) -> bool:
        """Return whether the pod counts once it is on a node."""
        return self.selector is not None and self.selector.matches(pod.labels)

    def pods(self, pod: Pod, view: ClusterView) -> IntColumn:
        """Return how many pods on each node count, (n,): upstream counts none without a filter."""
        if self.selector is None or not self.selector.requirements:
            return np.zeros(len(view), np.int64)
        query = PodQuery(frozenset((pod.namespace,)), self.selector)
        return pods_matching(view, (query,), terminating=False)


@dataclass(frozen=True, slots=True)
class _Spread:
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
        constraints, mistakes = _constraints_of(pod)
        if mistakes or len(constraints) > _MOST_CONSTRAINTS:
            return result_of(np.full(len(view), FAULT, np.int8))
        spreads = _spreads(constraints, pod, view)
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
        _, mistakes = _constraints_of(pod)
        told = "; ".join(str(mistake) for mistake in mistakes[:_MOST_TOLD])
        return told or f"the pod has more than {_MOST_CONSTRAINTS} topology spread constraints"

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:
        """Return the pods of the domains of the node, with this one, and the fewest elsewhere."""
        if view.parent is not None:
            whole, rows = view.parent
            return self.inputs(pod, whole, int(rows[row]), now)
        constraints, mistakes = _constraints_of(pod)
        if mistakes or len(constraints) > _MOST_CONSTRAINTS:
            return ()
        node = view.nodes[row]
        labels = node.labels if node else {}
        told = zip(constraints, _spreads(constraints, pod, view), strict=True)
        return tuple(
            value
            for constraint, spread in list(told)[:_MOST_CONSTRAINTS_TOLD]
            for value in _inputs(constraint, spread, labels.get(constraint.key), row)
        )


def _inputs(
    constraint: _Constraint, spread: _Spread, domain: str | None, row: int
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


def _constraints_of(pod: Pod) -> tuple[list[_Constraint], Mistakes]:
    """Return the constraints of a pod that reject nodes, and the mistakes in their selectors."""
    constraints: list[_Constraint] = []
    wrong: list[Mistake] = []
    for i, written in enumerate(pod.topology_spread):
        selector = None
        if written.label_selector is not None:
            at = ("topologySpreadConstraints", i, "labelSelector")
            selector, mistakes = parse_label_selector(written.label_selector, at)
            selector = LabelSelector((*selector.requirements, *_same_values(written, pod)))
            wrong += mistakes
        constraints.append(
            _Constraint(
                key=written.topology_key,
                max_skew=written.max_skew,
                min_domains=1 if written.min_domains is None else written.min_domains,
                selector=selector,
                honors_affinity=written.node_affinity_policy in {None, _HONOR},
                honors_taints=written.node_taints_policy == _HONOR,
            )
        )
    return constraints, tuple(wrong)


def _same_values(constraint: api.TopologySpreadConstraint, pod: Pod) -> list[Requirement]:
    """Return that pods have the same values of `matchLabelKeys` as this one, where it has any."""
    return [
        Requirement(key, Operator.IN, frozenset((pod.labels[key],)))
        for key in constraint.match_label_keys or ()
        if key in pod.labels
    ]


def _spreads(constraints: list[_Constraint], pod: Pod, view: ClusterView) -> list[_Spread]:
    included = _included(constraints, pod, view)
    return [
        _spread(constraint, which, pod, view)
        for constraint, which in zip(constraints, included, strict=True)
    ]


def _spread(constraint: _Constraint, included: BoolColumn, pod: Pod, view: ClusterView) -> _Spread:
    """Return how a constraint finds pods spread; included are the nodes that count, (n,)."""
    label = label_column(view, constraint.key)
    codes, pods = label.codes[included], constraint.pods(pod, view)[included]
    # Floats hold such counts exactly.
    by_domain = np.bincount(codes, pods, minlength=len(label.book)).astype(np.int64)
    counts = np.bincount(codes, minlength=len(label.book)) > 0
    domains, fewest = int(np.count_nonzero(counts)), 0
    if domains and domains >= constraint.min_domains:
        fewest = int(by_domain[counts].min())
    return _Spread(
        pods=label.spread(by_domain),
        has_domain=label.present,
        fewest=fewest,
        most=fewest + constraint.max_skew,
        own=int(constraint.selects(pod)),
    )


def _included(constraints: list[_Constraint], pod: Pod, view: ClusterView) -> BoolColumn:
    """Return which nodes count for each constraint, (len(constraints), n), remembered."""
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution

    def included(rows: ClusterView) -> BoolColumn:
        present = [label_column(rows, constraint.key).present for constraint in constraints]
        labelled = np.logical_and.reduce(present)
        allowed, tolerated = _allowed(pod, required, rows), _tolerated(pod, rows)
        return np.array(
            [
                labelled
                & (allowed | (not constraint.honors_affinity))
                & (tolerated | (not constraint.honors_taints))
                for constraint in constraints
            ]
        )

    policies = tuple(
        (constraint.key, constraint.honors_affinity, constraint.honors_taints)
        for constraint in constraints
    )
    selector = frozenset(pod.node_selector.items())
    key = ("PodTopologySpread", policies, selector, _ENCODE(required), pod.tolerations)
    return view.pod_column(key, _NODES, included)


def _allowed(pod: Pod, required: api.NodeSelector | None, view: ClusterView) -> BoolColumn:
    """Return which nodes the pod's node selector and required affinity allow, (n,)."""
    selector = None if required is None else parse_node_selector(required)[0]
    if names_too_many(selector.terms if selector else (), pod.node_selector):
        return np.zeros(len(view), np.bool_)  # NodeAffinity rejects all of them
    return matching_required(pod.node_selector, selector, view)


def _tolerated(pod: Pod, view: ClusterView) -> BoolColumn:
    """Return the nodes without a NoSchedule or NoExecute taint that the pod does not tolerate."""
    taints = taint_column(view)
    return taints.spread(
        np.array(
            [not untolerated(value or (), pod.tolerations, _REPELLING) for value in taints.values]
        )
    )


PLUGIN = Plugin(
    args=PodTopologySpreadArgs,
    filter=PodTopologySpreadFilter,
    reads=(Domain.NODES, Domain.PODS),
    reads_other_nodes=lambda pod, view: bool(pod.topology_spread),  # noqa: ARG005 (a protocol)
)
