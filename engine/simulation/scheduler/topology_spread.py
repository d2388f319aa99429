"""PodTopologySpread's score: how few pods like one are in the domains of a node.

Source: pkg/scheduler/framework/plugins/podtopologyspread/{common,scoring,plugin}.go. A constraint
that keeps a pod away from no node (`ScheduleAnyway`) costs a node `pods * ln(domains + 2) +
maxSkew - 1`, where the domains are those of the nodes that compete.

A pod without constraints has the default ones of the scheduler, if a controller or a Service
selects it. Which pods these select is not known here: of a ReplicaSet, ReplicationController or
StatefulSet it is taken to be those with the labels of the pod, but for labels that each pod of a
StatefulSet has of its own; pods that only a Service selects have no constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.selectors import LabelSelector, Operator, Requirement
from engine.plugins import MAX_SCORE
from engine.plugins.lib.arithmetic import rounded
from engine.plugins.lib.spread_constraints import (
    SpreadConstraint,
    constraints_of,
    counting_nodes,
    has_label,
    matching_pods,
)
from engine.view import MISSING, BoolColumn, ClusterView, IntColumn, label_column

SYSTEM_DEFAULT_CONSTRAINTS: Final = (
    SpreadConstraint("kubernetes.io/hostname", max_skew=3),
    SpreadConstraint("topology.kubernetes.io/zone", max_skew=5),
)
"""What the scheduler asks for where its configuration names no constraints."""

_HOSTNAME: Final = "kubernetes.io/hostname"
_SPREADING: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_OWN_LABELS: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels of pods of a StatefulSet that are not in its selector."""

_SELECTORS: Final = 1024


def spread_points(
    pod: Pod,
    view: ClusterView,
    rows: NDArray[np.intp],
    defaults: Sequence[SpreadConstraint] = SYSTEM_DEFAULT_CONSTRAINTS,
) -> IntColumn:
    """Return 0..MAX_SCORE for each of some rows, in their order; 0 for a pod without constraints.

    Args:
        pod: the pod.
        view: the cluster.
        rows: the nodes that compete.
        defaults: the constraints of a pod that has none of its own.
    """
    has_own = bool(pod.topology_spread or pod.soft_topology_spread)
    constraints = _own_constraints(pod) if has_own else _default_constraints(pod, defaults)
    if not constraints:
        return np.zeros(rows.size, np.int64)
    # Default constraints leave nodes in that lack a label, so that clusters without zones spread.
    needs_labels = has_own or defaults is not SYSTEM_DEFAULT_CONSTRAINTS
    counts = np.ones(rows.size, np.bool_)
    if needs_labels:
        labelled = [has_label(each.key, view).take(rows) for each in constraints]
        counts = np.logical_and.reduce(labelled)
    counting = counting_nodes(constraints, pod, view, with_all_labels=needs_labels)
    costs = np.zeros(rows.size, np.float64)
    for constraint, nodes in zip(constraints, counting, strict=True):
        costs += _costs(constraint, nodes, pod, view, rows, counts)
    return _normalized(rounded(costs), counts)


def _costs(
    constraint: SpreadConstraint,
    counting: BoolColumn,
    pod: Pod,
    view: ClusterView,
    rows: NDArray[np.intp],
    counts: BoolColumn,
) -> NDArray[np.float64]:
    """Return what a constraint costs each of some rows; 0 for those without its label.

    Args:
        constraint: the constraint.
        counting: the nodes whose pods count, (n,).
        pod: the pod.
        view: the cluster.
        rows: the nodes that compete.
        counts: which of them have all labels that are needed.
    """
    label = label_column(view, constraint.key)
    codes = label.codes.take(rows)
    pods = matching_pods(constraint.selector_for(pod), pod.namespace, view)
    if constraint.key == _HOSTNAME:
        domains, near = int(np.count_nonzero(counts)), pods.take(rows)
    else:
        domains = int(np.count_nonzero(np.bincount(codes[counts])))
        sums = np.bincount(label.codes, np.where(counting, pods, 0), minlength=len(label.book))
        near = sums.take(codes).astype(np.int64)
    costs = near * log(domains + 2) + (constraint.max_skew - 1)
    return np.where(codes != MISSING, costs, 0.0)


def _normalized(costs: IntColumn, counts: BoolColumn) -> IntColumn:
    """Return MAX_SCORE for the least cost; 0 for rows that do not count."""
    least, most = int(costs.min(where=counts, initial=2**62)), int(costs[counts].max(initial=0))
    if not most:
        return np.where(counts, MAX_SCORE, 0)
    return np.where(counts, MAX_SCORE * (most + least - costs) // most, 0)


def _own_constraints(pod: Pod) -> Sequence[SpreadConstraint]:
    """Return the soft constraints of a pod; none where some cannot be read."""
    if not pod.soft_topology_spread:
        return ()
    constraints = constraints_of(pod.soft_topology_spread)
    return () if constraints is None or constraints.mistakes else constraints.each


def _default_constraints(
    pod: Pod, defaults: Sequence[SpreadConstraint]
) -> Sequence[SpreadConstraint]:
    """Return the default constraints with the pods that the controller of a pod selects."""
    if not (defaults and pod.labels and _SPREADING.intersection(pod.owner_kinds)):
        return ()
    return _selecting(tuple(defaults), frozenset(pod.labels.items()))


@lru_cache(maxsize=_SELECTORS)
def _selecting(
    constraints: tuple[SpreadConstraint, ...], labels: frozenset[tuple[str, str]]
) -> tuple[SpreadConstraint, ...]:
    """Return constraints for pods that have some labels."""
    selector = LabelSelector(
        tuple(
            Requirement(key, Operator.IN, frozenset((value,)))
            for key, value in sorted(labels)
            if key not in _OWN_LABELS
        )
    )
    return tuple(
        SpreadConstraint(each.key, each.max_skew, selector=selector) for each in constraints
    )
