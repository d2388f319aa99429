"""What waits, and for what: queued pods, their quotas, and the bounds of these."""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.bounds import QuotaRules, effective_max, effective_min


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
