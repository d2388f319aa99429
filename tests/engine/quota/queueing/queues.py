"""Queues in as few words as a test needs: amounts of cpu alone, or of several resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.model.elastic_quota import UPSTREAM_GROUP
from engine.model.time import SECOND, Micros
from engine.quota.queueing import (
    Bound,
    Cohort,
    QueueCycle,
    QueueDecision,
    QueuedPod,
    QueueQuota,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.model.elastic_quota import QuotaKey
    from engine.model.resources import Amounts

NOW = Micros(1_700_000_000 * SECOND)
PLENTY = 1_000_000


def key(name: str) -> QuotaKey:
    """Return the key of the quota of a namespace."""
    return name, UPSTREAM_GROUP, "quota"


def of_cpu(amounts: int | Amounts) -> Amounts:
    """Return amounts; an integer is of cpu."""
    return {"cpu": amounts} if isinstance(amounts, int) else amounts


def quota(
    name: str,
    minimum: int | Amounts = 0,
    maximum: int | Amounts = PLENTY,
    *,
    weight: int = 1,
    more: Sequence[Bound] = (),
) -> QueueQuota:
    """Return a quota of the namespace of its name."""
    bounds = (Bound(key(name), of_cpu(maximum)), *more)
    return QueueQuota(key(name), of_cpu(minimum) if minimum else {}, weight, bounds)


def pod(name: str, requests: int | Amounts, *, waited: int = 0) -> QueuedPod:
    """Return a pod `namespace/name` that has waited for some seconds."""
    return QueuedPod(
        name, key(name.partition("/")[0]), of_cpu(requests), Micros(NOW - waited * SECOND)
    )


def cycle(
    queued: Sequence[QueuedPod],
    quotas: Sequence[QueueQuota],
    used: Mapping[str, int | Amounts] | None = None,
    *,
    room: int | Amounts = PLENTY,
    outside: int | Amounts = 0,
) -> QueueCycle:
    """Return a cycle over pods in order.

    Args:
        queued: in the queue order.
        quotas: all of the cohort.
        used: by the name of a quota.
        room: what the cohort has.
        outside: what others use of it.
    """
    usage = {key(name): of_cpu(amounts) for name, amounts in (used or {}).items()}
    total = dict(of_cpu(outside))
    for amounts in usage.values():
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return QueueCycle(
        queued, {each.key: each for each in quotas}, usage, Cohort(of_cpu(room), total), NOW
    )


def decide(
    queued: Sequence[QueuedPod],
    quotas: Sequence[QueueQuota],
    used: Mapping[str, int | Amounts] | None = None,
    *,
    room: int | Amounts = PLENTY,
    outside: int | Amounts = 0,
) -> QueueDecision:
    """Return the decision of a cycle."""
    ended = cycle(queued, quotas, used, room=room, outside=outside)
    return QueueDecision(tuple(ended.releases()), ended.waits())


def released(decision: QueueDecision) -> list[str]:
    """Return the keys of the pods that may go, in order."""
    return [release.key for release in decision.released]
