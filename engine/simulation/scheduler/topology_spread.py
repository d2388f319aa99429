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

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import log
from typing import Final, NamedTuple

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


class SoftSpread(NamedTuple):
    """The soft constraints of a pod.

    Attributes:
        constraints: those of its own, else the default ones with the selector of its controller.
        selectors: of the pods that count for each; None for none.
        needs_labels: whether only nodes count that have the labels of all constraints. The default
            ones leave the others in, so that clusters without zones spread, too.
    """

    constraints: Sequence[SpreadConstraint] = ()
    selectors: Sequence[LabelSelector | None] = ()
    needs_labels: bool = True


def soft_spread(pod: Pod, defaults: Sequence[SpreadConstraint]) -> SoftSpread:
    """Return the soft constraints of a pod.

    Args:
        pod: the pod.
        defaults: the constraints of a pod that has none of its own, hard or soft.
    """
    if pod.topology_spread or pod.soft_topology_spread:
        constraints = _own_constraints(pod)
        return SoftSpread(constraints, [each.selector_for(pod) for each in constraints])
    if not (defaults and pod.labels and _SPREADING.intersection(pod.owner_kinds)):
        return SoftSpread()
    selector = _selector_of(frozenset(pod.labels.items()))
    needs_labels = defaults is not SYSTEM_DEFAULT_CONSTRAINTS
    return SoftSpread(defaults, [selector] * len(defaults), needs_labels)


def spread_points(
    spread: SoftSpread,
    pod: Pod,
    view: ClusterView,
    rows: NDArray[np.intp],
    matching: Mapping[LabelSelector, IntColumn],
) -> IntColumn:
    """Return 0..MAX_SCORE for each of some rows, in their order; 0 for a pod without constraints.

    Args:
        spread: the constraints of the pod.
        pod: the pod.
        view: the cluster.
        rows: the nodes that compete.
        matching: (n,) each, how many pods of each node the selectors of the constraints select.
    """
    if not spread.constraints:
        return np.zeros(rows.size, np.int64)
    competes = np.ones(rows.size, np.bool_)
    if spread.needs_labels:
        labelled = [has_label(each.key, view).take(rows) for each in spread.constraints]
        competes = np.logical_and.reduce(labelled)
    counting = counting_nodes(spread.constraints, pod, view, with_all_labels=spread.needs_labels)
    costs = np.zeros(rows.size, np.float64)
    for constraint, selector, nodes in zip(
        spread.constraints, spread.selectors, counting, strict=True
    ):
        pods = np.zeros(len(view), np.int64) if selector is None else matching[selector]
        costs += _costs(constraint, nodes, pods, view, rows, competes)
    return _normalized(rounded(costs), competes)


def _costs(
    constraint: SpreadConstraint,
    counting: BoolColumn,
    pods: IntColumn,
    view: ClusterView,
    rows: NDArray[np.intp],
    competes: BoolColumn,
) -> NDArray[np.float64]:
    """Return what a constraint costs each of some rows; 0 for those without its label.

    Args:
        constraint: the constraint.
        counting: nodes whose pods count in their domains, (n,).
        pods: pods of each node that the constraint selects, (n,).
        view: the cluster.
        rows: nodes.
        competes: which of them have all labels that are needed.
    """
    label = label_column(view, constraint.key)
    codes = label.codes.take(rows)
    if constraint.key == _HOSTNAME:
        domains, near = int(np.count_nonzero(competes)), pods.take(rows)
    else:
        domains = int(np.count_nonzero(np.bincount(codes[competes])))
        sums = np.bincount(label.codes, pods * counting, minlength=len(label.book))
        near = sums.take(codes).astype(np.int64)
    costs = near * log(domains + 2) + (constraint.max_skew - 1)
    return np.where(codes != MISSING, costs, 0.0)


def _normalized(costs: IntColumn, competes: BoolColumn) -> IntColumn:
    """Return MAX_SCORE for the least cost; 0 for rows that do not compete."""
    least, most = int(costs.min(where=competes, initial=2**62)), int(costs[competes].max(initial=0))
    if not most:
        return np.where(competes, MAX_SCORE, 0)
    return np.where(competes, MAX_SCORE * (most + least - costs) // most, 0)


def _own_constraints(pod: Pod) -> Sequence[SpreadConstraint]:
    """Return the soft constraints of a pod; none where some cannot be read."""
    if not pod.soft_topology_spread:
        return ()
    constraints = constraints_of(pod.soft_topology_spread)
    return () if constraints is None or constraints.mistakes else constraints.each


@lru_cache(maxsize=_SELECTORS)
def _selector_of(labels: frozenset[tuple[str, str]]) -> LabelSelector:
    """Return the selector of the pods that the controller of a pod with some labels selects."""
    return LabelSelector(
        tuple(
            Requirement(key, Operator.IN, frozenset((value,)))
            for key, value in sorted(labels)
            if key not in _OWN_LABELS
        )
    )
