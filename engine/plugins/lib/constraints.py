"""Constraints of pods: the nodes they select, and the pods and domains that count for them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import numpy as np

from engine.model import api
from engine.model.node import NO_EXECUTE, NO_SCHEDULE, untolerated
from engine.model.pod import AffinityTerm, Pod
from engine.model.selectors import (
    NAME_FIELD,
    LabelSelector,
    Mistakes,
    NodeSelector,
    Operator,
    Requirement,
    Term,
    parse_label_selector,
    parse_node_selector,
)
from engine.view import (
    MISSING,
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    LabelColumn,
    PodQuery,
    integer_label_column,
    label_column,
    namespaces_matching,
    node_label_keys,
    pods_matching,
    taint_column,
)


def sums_of_domains(label: LabelColumn, counts: IntColumn) -> IntColumn:
    """Return for each row the sum over all rows of its domain, 0 where it is in none, shape (n,).

    Args:
        label: the label of each row.
        counts: what is summed, shape (n,); sums below 2**53 are exact.
    """
    sums = np.bincount(label.codes, counts, minlength=len(label.book)).astype(np.int64)
    sums[MISSING] = 0
    return label.spread(sums)


_MOST_KEYS: Final = 64  # a column per label costs half a millisecond, and anyone may create a pod
TOO_MANY_KEYS: Final = f"node affinity names more than {_MOST_KEYS} labels"
"""Why a pod could not be judged; see `names_too_many`."""


def names_too_many(terms: Sequence[Term], more: Collection[str]) -> bool:
    """Return whether more label columns are needed than a pod may ask for."""
    keys = {label.key for term in terms if term.only_name is None for label in term.labels}
    return len(keys.union(more)) > _MOST_KEYS


def matching_required(
    labels: Mapping[str, str], required: NodeSelector | None, view: ClusterView
) -> BoolColumn:
    """Return which nodes a pod allows by its node selector and its required affinity, (n,)."""
    found = np.ones(len(view), np.bool_)
    for key, value in labels.items():
        found &= label_column(view, key).isin((value,))
    if required is not None:
        found &= matching_any(required, view)
    return found


def allowed_by_labels(pod: Pod, view: ClusterView) -> BoolColumn:
    """Return which nodes the pod's node selector and the affinity it will have allow, (n,)."""
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution
    selector = None if required is None else parse_node_selector(required)[0]
    if names_too_many(selector.terms if selector else (), pod.node_selector):
        return np.zeros(len(view), np.bool_)  # NodeAffinity rejects all of them
    allowed = matching_required(pod.node_selector, selector, view)
    return allowed & matching_promised(pod.promised, view) if pod.promised else allowed


def matching_promised(
    alternatives: Sequence[Sequence[Requirement]], view: ClusterView
) -> BoolColumn:
    """Return which nodes meet one of some alternatives of requirements on labels, (n,).

    All of them if there is none.
    """
    if not alternatives:
        return np.ones(len(view), np.bool_)
    found = np.zeros(len(view), np.bool_)
    for requirements in alternatives:
        term = np.ones(len(view), np.bool_)
        for requirement in requirements:
            term &= _holds(requirement, view)
        found |= term
    return found


def matching_any(selector: NodeSelector, view: ClusterView) -> BoolColumn:
    """Return which nodes a selector picks, shape (n,)."""
    found = np.zeros(len(view), np.bool_)
    for term in selector.terms:
        found[matching(term, view)] = True
    return found


def matching(term: Term, view: ClusterView) -> BoolColumn | list[int]:
    """Return which nodes a term matches: a mask of shape (n,), or rows where it names one node."""
    name = term.only_name
    if name is not None:
        row = view.rows.get(name)
        node = None if row is None else view.nodes[row]
        if row is None or node is None or not term.matches(node.labels, name):
            return []
        return [row]
    found = np.ones(len(view), np.bool_)
    for requirement in term.labels:
        found &= _holds(requirement, view)
    for requirement in term.fields:
        if requirement.key == NAME_FIELD:
            excluded = [view.rows[value] for value in requirement.values if value in view.rows]
            found[excluded] = False
        elif not requirement.matches(""):
            found[:] = False
    return found


def _holds(requirement: Requirement, view: ClusterView) -> BoolColumn:
    """Return on which nodes a label satisfies a requirement, shape (n,)."""
    match requirement.operator:
        case Operator.IN:
            return label_column(view, requirement.key).isin(requirement.values)
        case Operator.NOT_IN:
            return ~label_column(view, requirement.key).isin(requirement.values)
        case Operator.EXISTS:
            return label_column(view, requirement.key).present
        case Operator.DOES_NOT_EXIST:
            return ~label_column(view, requirement.key).present
        case Operator.GT:
            number, present = integer_label_column(view, requirement.key)
            return present & (number > requirement.bound)
        case Operator.LT:
            number, present = integer_label_column(view, requirement.key)
            return present & (number < requirement.bound)


def query_of(term: AffinityTerm, view: ClusterView) -> PodQuery:
    """Return the pods that a term selects, by the namespaces that are known."""
    if term.selector is None:
        return PodQuery(frozenset(), LabelSelector())
    selector = term.namespace_selector
    if selector is None:
        return PodQuery(term.namespaces, term.selector)
    if not selector.requirements:
        return PodQuery(None, term.selector)
    return PodQuery(term.namespaces | namespaces_matching(view, selector), term.selector)


def parts_of(term: AffinityTerm) -> int:
    """Return the number of passes over the labels of all pods that a term takes at most."""
    selectors = (term.selector, term.namespace_selector)
    return 1 + sum(len(each.requirements) for each in selectors if each is not None)


_NODES: Final = (Domain.NODES,)
_LONGEST_TEXT: Final = 8_192  # bytes of all constraints; one of an everyday pod has some 150
_MOST_PARTS: Final = 64  # constraints and requirements; each is a pass over nodes or pods
_CACHED_TEXTS: Final = 256  # of templates that arrive together
TOO_LARGE: Final = f"topology spread has more than {_MOST_PARTS} constraints and requirements"
"""Why constraints could not be read; see `constraints_of`."""

_HONOR: Final = "Honor"
_REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[api.TopologySpreadConstraint, ...]).decode


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint of a template of pods."""

    key: str  # the label whose values are the domains
    max_skew: int  # how many pods more than in the domain with the fewest there may be
    min_domains: int = 1  # of fewer domains that count, the fewest pods are taken to be 0
    selector: LabelSelector | None = None  # of the pods that count; None for none
    # keys of labels that the pods that count share with the pod, if it has them
    same: tuple[str, ...] = ()
    # whether only nodes count that the pod's node selector and affinity allow
    honors_affinity: bool = True
    honors_taints: bool = False  # whether only nodes count whose taints the pod tolerates

    def selector_for(self, pod: Pod) -> LabelSelector | None:
        """Return the selector of the pods that count for a pod, None for none."""
        labels = [(key, pod.labels[key]) for key in self.same if key in pod.labels]
        if self.selector is None or not labels:
            return self.selector
        same = [Requirement(key, Operator.IN, frozenset((value,))) for key, value in labels]
        return LabelSelector((*self.selector.requirements, *same))


class SpreadConstraints(NamedTuple):
    """Constraints of a template of pods, and the mistakes in their selectors."""

    each: tuple[SpreadConstraint, ...]
    mistakes: Mistakes


def constraints_of(written: tuple[api.TopologySpreadConstraint, ...]) -> SpreadConstraints | None:
    """Return constraints as they were written, None where they are too large to be checked."""
    try:
        text = _encode(written)
    except (UnicodeEncodeError, OverflowError):
        return None
    return _parsed(text) if len(text) <= _LONGEST_TEXT else None


def matching_pods(selector: LabelSelector | None, namespace: str, view: ClusterView) -> IntColumn:
    """Return how many pods of a namespace count on each node, (n,).

    Pods that are about to be deleted do not; a selector without requirements counts none, as
    upstream.
    """
    if selector is None or not selector.requirements:
        return np.zeros(len(view), np.int64)
    query = PodQuery(frozenset((namespace,)), selector)
    return pods_matching(view, (query,), terminating=False)


def has_label(key: str, view: ClusterView) -> BoolColumn:
    """Return which nodes have a label, (n,); no column is made for one that none has."""
    if key not in node_label_keys(view.whole):
        return np.zeros(len(view), np.bool_)
    return label_column(view, key).present


def counting_nodes(
    constraints: Sequence[SpreadConstraint],
    pod: Pod,
    view: ClusterView,
    *,
    with_all_labels: bool = True,
) -> BoolColumn:
    """Return which nodes count for each constraint, (len(constraints), n), remembered."""

    def counting(rows: ClusterView) -> BoolColumn:
        labelled = rows.valid
        if with_all_labels:
            labelled = np.logical_and.reduce([has_label(each.key, rows) for each in constraints])
        allowed, tolerated = allowed_by_labels(pod, rows), _tolerated(pod, rows)
        return np.array(
            [
                labelled
                & (allowed | (not constraint.honors_affinity))
                & (tolerated | (not constraint.honors_taints))
                for constraint in constraints
            ]
        )

    about = counting_key(constraints, pod, with_all_labels=with_all_labels)
    return view.pod_column(("PodTopologySpread", *about), _NODES, counting)


def counting_key(
    constraints: Sequence[SpreadConstraint], pod: Pod, *, with_all_labels: bool
) -> tuple[Hashable, ...]:
    """Return a key that tells apart all that `counting_nodes` reads; see there."""
    policies = tuple([(each.key, each.honors_affinity, each.honors_taints) for each in constraints])
    selector = frozenset(pod.node_selector.items())
    affinity = _encode(_required(pod)), pod.promised
    return policies, with_all_labels, selector, affinity, pod.tolerations


def _required(pod: Pod) -> api.NodeSelector | None:
    if pod.affinity is None:
        return None
    return pod.affinity.required_during_scheduling_ignored_during_execution


@lru_cache(maxsize=_CACHED_TEXTS)
def _parsed(text: bytes) -> SpreadConstraints | None:
    parsed = [_parse(i, each) for i, each in enumerate(_decode(text))]
    constraints = SpreadConstraints(
        tuple(constraint for constraint, _ in parsed),
        tuple(mistake for _, mistakes in parsed for mistake in mistakes),
    )
    return constraints if sum(map(_parts, constraints.each)) <= _MOST_PARTS else None


def _parse(i: int, wire: api.TopologySpreadConstraint) -> tuple[SpreadConstraint, Mistakes]:
    selector: LabelSelector | None = None
    mistakes: Mistakes = ()
    if wire.label_selector is not None:
        at = ("topologySpreadConstraints", i, "labelSelector")
        selector, mistakes = parse_label_selector(wire.label_selector, at)
    constraint = SpreadConstraint(
        key=wire.topology_key,
        max_skew=wire.max_skew,
        min_domains=1 if wire.min_domains is None else wire.min_domains,
        selector=selector,
        same=tuple(wire.match_label_keys or ()),
        honors_affinity=wire.node_affinity_policy in {None, _HONOR},
        honors_taints=wire.node_taints_policy == _HONOR,
    )
    return constraint, mistakes


def _parts(constraint: SpreadConstraint) -> int:
    requirements = constraint.selector.requirements if constraint.selector is not None else ()
    return 1 + len(requirements) + len(constraint.same)


def _tolerated(pod: Pod, view: ClusterView) -> BoolColumn:
    """Return the nodes without a NoSchedule or NoExecute taint that the pod does not tolerate."""
    taints = taint_column(view)
    return taints.spread(
        np.array(
            [not untolerated(value or (), pod.tolerations, _REPELLING) for value in taints.values]
        )
    )
