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
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.model.decision import FilterResult
from engine.model.pod import Pod
from engine.model.rule_input import RuleInput, RuleInputs, Unit
from engine.model.selectors import (
    LabelSelector,
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
from engine.plugins.lib.topology import sums_of_domains
from engine.view import (
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    PodQuery,
    label_column,
    node_label_keys,
    pods_matching,
    taint_column,
)

_NODES: Final = (Domain.NODES,)
_LONGEST_TEXT: Final = 8_192  # bytes of all constraints; one of an everyday pod has some 150
_MOST_PARTS: Final = 64  # constraints and requirements; each is a pass over nodes or pods
_CACHED_TEXTS: Final = 256  # of templates that arrive together
_TOO_LARGE: Final = f"topology spread has more than {_MOST_PARTS} constraints and requirements"
_MOST_TOLD: Final = 4  # constraints in an explanation, and mistakes in a message
_HONOR: Final = "Honor"
_REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)
_MISMATCH: Final = 1
_NO_LABEL: Final = 2
_REASONS: Final = {
    _MISMATCH: "node(s) didn't match pod topology spread constraints",
    _NO_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[api.TopologySpreadConstraint, ...]).decode


class PodTopologySpreadArgs(Args):
    """PodTopologySpread takes none."""


@dataclass(frozen=True, slots=True)
class _Constraint:
    """One constraint of a template of pods.

    Attributes:
        key: the label whose values are the domains.
        max_skew: how many pods more than in the domain with the fewest there may be.
        min_domains: of fewer domains that count, the fewest pods are taken to be 0.
        selector: of the pods that count; None for none.
        same: keys of labels that the pods that count share with the pod, if it has them.
        honors_affinity: whether only nodes count that the pod's node selector and affinity allow.
        honors_taints: whether only nodes count whose taints the pod tolerates.
    """

    key: str
    max_skew: int
    min_domains: int
    selector: LabelSelector | None
    same: tuple[str, ...]
    honors_affinity: bool
    honors_taints: bool

    def selector_for(self, pod: Pod) -> LabelSelector | None:
        """Return the selector of the pods that count for a pod, None for none."""
        labels = [(key, pod.labels[key]) for key in self.same if key in pod.labels]
        if self.selector is None or not labels:
            return self.selector
        same = [Requirement(key, Operator.IN, frozenset((value,))) for key, value in labels]
        return LabelSelector((*self.selector.requirements, *same))


class _Constraints(NamedTuple):
    """The constraints of a template of pods, and the mistakes in their selectors."""

    each: tuple[_Constraint, ...]
    mistakes: Mistakes


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
        constraints = _constraints_of(pod)
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
        constraints = _constraints_of(pod)
        if constraints is None:
            return _TOO_LARGE
        return "; ".join(str(mistake) for mistake in constraints.mistakes[:_MOST_TOLD])

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the pods of the domains of the node, with this one, and the fewest elsewhere."""
        whole, name = view.whole, view.names[row]
        constraints = _constraints_of(pod)
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


def _constraints_of(pod: Pod) -> _Constraints | None:
    """Return what a pod requires, None where it is too large to be checked."""
    try:
        text = _encode(pod.topology_spread)
    except (UnicodeEncodeError, OverflowError):
        return None
    return _parsed(text) if len(text) <= _LONGEST_TEXT else None


@lru_cache(maxsize=_CACHED_TEXTS)
def _parsed(text: bytes) -> _Constraints | None:
    parsed = [_parse(i, each) for i, each in enumerate(_decode(text))]
    constraints = _Constraints(
        tuple(constraint for constraint, _ in parsed),
        tuple(mistake for _, mistakes in parsed for mistake in mistakes),
    )
    return constraints if sum(map(_parts, constraints.each)) <= _MOST_PARTS else None


def _parse(i: int, wire: api.TopologySpreadConstraint) -> tuple[_Constraint, Mistakes]:
    selector: LabelSelector | None = None
    mistakes: Mistakes = ()
    if wire.label_selector is not None:
        at = ("topologySpreadConstraints", i, "labelSelector")
        selector, mistakes = parse_label_selector(wire.label_selector, at)
    constraint = _Constraint(
        key=wire.topology_key,
        max_skew=wire.max_skew,
        min_domains=1 if wire.min_domains is None else wire.min_domains,
        selector=selector,
        same=tuple(wire.match_label_keys or ()),
        honors_affinity=wire.node_affinity_policy in {None, _HONOR},
        honors_taints=wire.node_taints_policy == _HONOR,
    )
    return constraint, mistakes


def _parts(constraint: _Constraint) -> int:
    requirements = constraint.selector.requirements if constraint.selector is not None else ()
    return 1 + len(requirements) + len(constraint.same)


def _spreads(constraints: Sequence[_Constraint], pod: Pod, view: ClusterView) -> list[_Spread]:
    """Return how each constraint finds the pods of a whole cluster spread."""
    included = _included(constraints, pod, view)
    return [
        _spread(constraint, which, pod, view)
        for constraint, which in zip(constraints, included, strict=True)
    ]


def _spread(constraint: _Constraint, included: BoolColumn, pod: Pod, view: ClusterView) -> _Spread:
    """Return how a constraint finds pods spread; included are the nodes that count, (n,)."""
    pods, domains, fewest = np.zeros(len(view), np.int64), 0, 0
    has_domain = _has_label(constraint.key, view)
    selector = constraint.selector_for(pod)
    if included.any():
        label = label_column(view, constraint.key)
        if selector is not None and selector.requirements:  # upstream counts none without any
            query = PodQuery(frozenset((pod.namespace,)), selector)
            pods = pods_matching(view, (query,), terminating=False)
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


def _has_label(key: str, view: ClusterView) -> BoolColumn:
    """Return which nodes have a label, (n,); no column is made for one that none has."""
    if key not in node_label_keys(view.whole):
        return np.zeros(len(view), np.bool_)
    return label_column(view, key).present


def _included(constraints: Sequence[_Constraint], pod: Pod, view: ClusterView) -> BoolColumn:
    """Return which nodes count for each constraint, (len(constraints), n), remembered."""
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution

    def included(rows: ClusterView) -> BoolColumn:
        labelled = np.logical_and.reduce([_has_label(each.key, rows) for each in constraints])
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
    key = ("PodTopologySpread", policies, selector, _encode(required), pod.tolerations)
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
