"""The quotas of one moment, as plans count them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engine.model.elastic_quota import QuotaKey
from engine.model.pod_shape import PodShape
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota.queueing import QueueSituation
from engine.reclaim.plan import QuotaAccount

_NOTHING: Amounts = {}
_NONE: Mapping[QuotaKey | None, Amounts] = {}


class QuotaStanding(NamedTuple):
    """The quotas of one moment, without the pods that a plan is for.

    Attributes:
        accounts: of each quota that shares the cohort.
        cohort_room: what all together may use more, see `Situation`.
        lendable: what all together may use.
    """

    accounts: dict[QuotaKey, QuotaAccount]
    cohort_room: Amounts
    lendable: Amounts


def quota_standing(
    situation: QueueSituation,
    shapes: Iterable[PodShape],
    counted: Mapping[QuotaKey | None, Amounts] = _NONE,
) -> QuotaStanding:
    """Return how quotas stand for pods that get room together.

    Args:
        situation: of all queues.
        shapes: of the pods.
        counted: what the situation counts of the pods already, by the quota that they are counted
            for, None for those of none; it is left out.
    """
    capacity, used = situation.cohort.capacity, situation.cohort.used
    for amounts in counted.values():
        used = _less(used, amounts)
    requested = {name for shape in shapes for name in shape.requests}
    return QuotaStanding(
        accounts={
            key: QuotaAccount(
                guaranteed=quota.guaranteed,
                used=_less(situation.usage.get(key, _NOTHING), counted.get(key, _NOTHING)),
                weight=quota.weight,
            )
            for key, quota in situation.quotas.items()
            if quota.is_in_cohort
        },
        cohort_room={
            name: capacity.get(name, 0) - used.get(name, 0)
            for name in {*capacity, *requested, PODS}
        },
        lendable=capacity,
    )


def _less(amounts: Amounts, taken: Amounts) -> Amounts:
    return {name: amount - taken.get(name, 0) for name, amount in amounts.items()}
