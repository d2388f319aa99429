"""The cohort: what all quotas share, how much each uses of it, and the pods that wait for it.

A quota may use more than its min while the cohort has room. `Nodes`: what the nodes of a selection
offer, so that quotas may borrow whatever stands idle there. `SumOfMin`: the sum of all min, as
CapacityScheduling has it (scheduler-plugins, pkg/capacityscheduling), whatever the nodes offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.kinds import Domain
from engine.model.quantity import INT64_MAX, PODS
from engine.model.resources import Amounts
from engine.model.selectors import LabelSelector
from engine.model.time import Micros
from engine.quota.bounds import QuotaRules, effective_max, effective_min, sum_of
from engine.view import ClusterView, Sum


class QueuedPod(NamedTuple):
    """A pod that waits for quota.

    Attributes:
        key: `namespace/name`.
        quota: whose min guarantees its room.
        requests: of the pod, with `pods`, base units; pods of one template share the object.
        since: when it began to wait: its creation, which is the same on every replica.
        refusal: why its release was refused although it fits by what is known; "" if it was not.
    """

    key: str
    quota: QuotaKey
    requests: Amounts
    since: Micros
    refusal: str = ""


class Bound(NamedTuple):
    """The greatest amounts that the pods of some quotas may use together.

    Attributes:
        key: of the quota that sets it. Usage is counted by this key, so two bounds of one key, such
            as `max` and runtime quota, are two limits on the same usage.
        limit: a resource that is not named is unlimited.
    """

    key: QuotaKey
    limit: Amounts


class QueueQuota(NamedTuple):
    """What a quota guarantees, and what bounds its pods.

    Attributes:
        key: of the quota.
        guaranteed: its min. A resource that is not named is not guaranteed, and all that is used of
            it is borrowed; yet a pod that requests it may be within min, see `is_within_min`.
        weight: in fair sharing, at least 1.
        bounds: all that limit its pods: its own max; that of another quota of the namespace; those
            up a tree.
        is_in_cohort: whether its pods need room in the cohort beyond min; if not, the bounds say
            all of what they may borrow.
    """

    key: QuotaKey
    guaranteed: Amounts
    weight: int
    bounds: tuple[Bound, ...]
    is_in_cohort: bool = True


def queue_quota(
    quota: ElasticQuota,
    rules: QuotaRules,
    more_bounds: tuple[Bound, ...] = (),
    *,
    is_in_cohort: bool = True,
) -> QueueQuota:
    """Return a quota as queues see it.

    Args:
        quota: the object.
        rules: of unlisted resources; by the rule `Zero` none of cpu, memory and ephemeral storage
            is guaranteed unless `min` names it, so a pod that requests it is not within min.
        more_bounds: of its pods, besides its max.
        is_in_cohort: whether its pods need room in the cohort.
    """
    is_strict = rules.unlisted_resources == "Zero"
    return QueueQuota(
        key=quota.key,
        guaranteed=effective_min(quota) if is_strict else quota.min or {},
        weight=quota.weight,
        bounds=(Bound(quota.key, effective_max(quota, rules)), *more_bounds),
        is_in_cohort=is_in_cohort,
    )


# Min, borrowing and the weighted dominant share of a quota; exact integers.
#
# Source of the share: Kueue, pkg/cache/scheduler/fair_sharing.go (dominantResourceShare): over all
# resources the greatest ratio of what is used above min to what the cohort has to lend, divided by
# the weight. Kueue computes it in floating point; here two shares are equal only if they are.


_SCALE_BITS: Final = 168
"""Two shares of int64 amounts and weights up to 2^20 are fractions with denominators below 2^83, so
they differ by 2^-166 at least: scaled by 2^168 they differ when they are rounded down, too."""


def is_within_min(requests: Amounts, used: Amounts, guaranteed: Amounts) -> bool:
    """Return whether a pod would be within min: in all resources that min names and it requests.

    It must request one that min names, else nothing of it is guaranteed. Of the resources that min
    does not name it needs room in the cohort as any other pod.

    Args:
        requests: of the pod.
        used: by the quota, without the pod.
        guaranteed: the min.
    """
    is_any = False
    for name, amount in requests.items():
        if amount > 0 and name in guaranteed:
            if used.get(name, 0) + amount > guaranteed[name]:
                return False
            is_any = True
    return is_any


def weighted_share(
    used: Amounts, requests: Amounts, guaranteed: Amounts, capacity: Amounts, weight: int
) -> int:
    """Return the weighted dominant share of a quota once a pod is admitted, times 2^168.

    What the cohort has none of does not count. To be compared with others of the same capacity
    alone.

    Args:
        used: by the quota.
        requests: of the pod; none for the share as it is.
        guaranteed: its min.
        capacity: of the cohort.
        weight: of the quota.
    """
    greatest = 0
    for name in used.keys() | requests.keys():
        above = used.get(name, 0) + requests.get(name, 0) - max(guaranteed.get(name, 0), 0)
        if above > 0 and (lendable := capacity.get(name, 0)) > 0:
            greatest = max(greatest, (above << _SCALE_BITS) // (lendable * weight))
    return greatest


# What all quotas share.


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
