"""The cohort: what all quotas share, and how much of it is in use.

A quota may use more than its min while the cohort has room. `Nodes`: what the nodes of a selection
offer, so that quotas may borrow whatever stands idle there. `SumOfMin`: the sum of all min, as
CapacityScheduling has it (scheduler-plugins, pkg/capacityscheduling), whatever the nodes offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.elastic_quota import QuotaKey
from engine.model.kinds import Domain
from engine.model.quantity import INT64_MAX, PODS
from engine.model.resources import Amounts
from engine.model.selectors import LabelSelector
from engine.quota.bounds import sum_of
from engine.quota.queueing.queued_pod import QueueQuota
from engine.view import ClusterView, Sum

QuotaCohort: TypeAlias = Literal["Nodes", "SumOfMin"]
"""What all quotas share: what nodes offer, or the sum of their min."""

_NOTHING: Final[Amounts] = {}


@dataclass(frozen=True, slots=True)
class Cohort:
    """What all quotas share.

    Attributes:
        capacity: amounts to share, base units; of a resource that is not named there is nothing.
        used: by whoever takes of it, be it beyond the quotas. It may exceed the capacity.
    """

    capacity: Amounts
    used: Amounts


def sum_of_min(quotas: Mapping[QuotaKey, QueueQuota], usage: Mapping[QuotaKey, Amounts]) -> Cohort:
    """Return the cohort that is the sum of all min, used by the pods of the quotas.

    Of a resource that no min names there is nothing, but for the number of pods, which upstream
    leaves out.

    Args:
        quotas: all of the cohort.
        usage: of each by its key, and maybe of others.
    """
    capacity = sum_of(
        {name: max(amount, 0) for name, amount in quota.guaranteed.items()}
        for quota in quotas.values()
    )
    used = sum_of(usage.get(key, _NOTHING) for key in quotas)
    return Cohort({**capacity, PODS: INT64_MAX}, used)


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The nodes of a cohort: those that a selector picks, are ready, and are not cordoned.

    What runs on another node takes nothing of the cohort, and what such a node has free is no room:
    nothing new can be bound there. Taints of tenants are not looked at, as the pods of some quotas
    may tolerate them.
    """

    selector: LabelSelector = field(default_factory=LabelSelector)

    def mask(self, view: ClusterView) -> NDArray[np.bool_]:
        """Return which rows are selected, shape (n,)."""
        return view.node_column(("cohort", self.selector), (Domain.NODES,), self._mask)

    def _mask(self, view: ClusterView) -> NDArray[np.bool_]:
        return np.array(
            [
                node is not None
                and node.ready
                and not node.unschedulable
                and self.selector.matches(node.labels)
                for node in view.nodes
            ],
            np.bool_,
        )


def cohort_of_nodes(
    view: ClusterView,
    selection: NodeSelection,
    *,
    assumed: Iterable[tuple[str, Amounts]],
    unbound: Amounts,
) -> Cohort:
    """Return the cohort that selected nodes are.

    Pods of every namespace that are on these nodes use it, those of no quota too. A node whose pods
    request more than it offers has nothing free, and takes nothing from the others.

    Args:
        view: the cluster.
        selection: of its nodes.
        assumed: pods of the quotas that count on a node and are not bound, each with the name of
            the node and its requests: they are counted by `unbound`, or wait.
        unbound: requests of all pods of the quotas that count as used and are not bound.
    """
    mask = selection.mask(view)
    offered = view.allocatable[:, mask]
    held, names = view.sums[Sum.REQUESTS].copy(), view.axis.names
    used: dict[str, int] = dict(unbound)
    for node_name, requests in assumed:
        row = view.rows.get(node_name)
        if row is None or not mask[row]:
            continue
        for name, amount in requests.items():
            index = view.axis.find(name)
            if index is None:
                used[name] = used.get(name, 0) - amount
            else:
                held[index, row] -= amount
    taken = np.clip(held[:, mask], 0, np.maximum(offered, 0))
    capacity = dict(zip(names, offered.sum(axis=1).tolist(), strict=True))
    for name, amount in zip(names, taken.sum(axis=1).tolist(), strict=True):
        used[name] = used.get(name, 0) + amount
    return Cohort(capacity, used)
