"""What waits, and for what: queued pods, their quotas, and the bounds of these."""

from __future__ import annotations

from typing import NamedTuple

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.bounds import effective_max, effective_min
from engine.quota.rules import QuotaRules


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
