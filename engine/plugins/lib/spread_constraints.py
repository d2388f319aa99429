"""Constraints of topology spread: which pods and which nodes count for each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import numpy as np

from engine.model import api
from engine.model.pod import Pod
from engine.model.selectors import (
    LabelSelector,
    Mistakes,
    Operator,
    Requirement,
    parse_label_selector,
)
from engine.model.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from engine.plugins.lib.node_selection import allowed_by_labels
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
TOO_LARGE: Final = f"topology spread has more than {_MOST_PARTS} constraints and requirements"
"""Why constraints could not be read; see `constraints_of`."""

_HONOR: Final = "Honor"
_REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[api.TopologySpreadConstraint, ...]).decode


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
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
    min_domains: int = 1
    selector: LabelSelector | None = None
    same: tuple[str, ...] = ()
    honors_affinity: bool = True
    honors_taints: bool = False

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
    """Return which nodes count for each constraint, (len(constraints), n), remembered.

    Args:
        constraints: of the pod, at least one.
        pod: the pod.
        view: the nodes.
        with_all_labels: whether only nodes with the labels of all constraints count.
    """

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
