"""The verdict on a request, in the words of ResourceQuota.

Source of the rule and the wording: Kubernetes ResourceQuota admission (resourcequota/controller.go,
CheckRequest): only resources that the request names and the quota limits are compared, and only
those exceeded are listed, in sorted order. Other rules: see `QuotaRules`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from engine.model.elastic_quota import ElasticQuota
from engine.model.pod import DeploymentPod
from engine.model.quantity import PODS, amount_text
from engine.model.resources import Amounts
from engine.quota.bounds import (
    RESOURCE_QUOTA_RULES,
    CohortUsage,
    QuotaRules,
    effective_max,
    over_max,
    over_min,
    sum_of,
)
from engine.quota.reservations import Reservation

# The surge of rollouts: pods above `max` that replace others, while these still run.
#
# A quota whose annotation allows it admits one pod of each Deployment beyond `max`, as far as it
# requests no more than a pod of an older revision that it is to replace. The reservation of such a
# pod names both. It is kept on the object while both are there and the quota uses more than `max`.
#
# INVARIANT: what a namespace uses, without what its surging pods and those that they replace have
# in common, is within `max`; of each Deployment one pod surges at most. For both pods of a surge
# count in every view that is current, or are reserved; where either has gone, the usage has fallen
# by as much as was left out.


CountedPods: TypeAlias = Callable[[str], Amounts]
"""Returns what a view counts for the pod of a name, none if it has no such pod."""

ReplacedPods: TypeAlias = Callable[[DeploymentPod], Iterable[str]]
"""Returns the names of some pods of older revisions that a pod of a Deployment may replace."""


def no_replaced_pods(_pod: DeploymentPod) -> tuple[str, ...]:
    """Return that no pod may be replaced."""
    return ()


class Surges:
    """The surging pods of one quota, as one replica knows them."""

    def __init__(self) -> None:
        self._ended: set[str] = set()  # keys of reservations

    def retain(self, keys: Container[str]) -> None:
        """Forget all but some reservations."""
        self._ended = {key for key in self._ended if key in keys}

    def lasts(self, reservation: Reservation) -> bool:
        """Return whether a reservation is of a pod that still surges, for all that is known."""
        return bool(reservation.surge) and reservation.key not in self._ended

    def update(
        self,
        reservations: Iterable[Reservation],
        counted: CountedPods,
        *,
        is_observed: Callable[[str], bool],
        is_within_max: bool,
    ) -> None:
        """End the surges that are over: no room beyond `max` is used for them any more."""
        for pod in reservations:
            if not self.lasts(pod):
                continue
            is_gone = is_observed(pod.key) and not (counted(pod.name) and counted(pod.replaces))
            if is_within_max or is_gone:
                self._ended.add(pod.key)

    def plain(self, reservation: Reservation) -> Reservation:
        """Return a reservation as it is to be written: without a surge that has ended."""
        if not reservation.surge or self.lasts(reservation):
            return reservation
        return msgspec.structs.replace(reservation, surge="", replaces="")


def in_common(requests: Amounts, replaced: Amounts) -> dict[str, int]:
    """Return what a pod requests of what comes back with the one that it replaces."""
    return {
        name: min(amount, replaced[name]) for name, amount in requests.items() if name in replaced
    }


def surplus_of(surging: Iterable[Reservation], counted: CountedPods) -> dict[str, int]:
    """Return what pods use above `max` until those that they replace have ended."""
    return sum_of(in_common(pod.amounts, counted(pod.replaces)) for pod in surging)


def beside(used: Amounts, surplus: Mapping[str, int]) -> Amounts:
    """Return what is used but for the surplus."""
    return {name: amount - surplus.get(name, 0) for name, amount in used.items()}


_EXCEEDED: Final = "exceeded quota: "

COHORT = "the sum of all min"
"""Stands for the name of a quota in the denial of a request that exceeds the cohort."""


@dataclass(frozen=True, slots=True)
class QuotaVerdict:
    """Whether a request fits every quota of its namespace.

    Attributes:
        exceeded: names of the quotas it exceeds, in the order of the quotas.
        message: one clause per such quota; "" when it fits.
    """

    exceeded: tuple[str, ...] = ()
    message: str = ""

    @property
    def allowed(self) -> bool:
        """Whether the request fits every quota."""
        return not self.exceeded


def judge(
    requests: Amounts,
    used: Amounts,
    quotas: Iterable[ElasticQuota],
    rules: QuotaRules = RESOURCE_QUOTA_RULES,
) -> QuotaVerdict:
    """Compare a request with every quota of its namespace; all must fit.

    Args:
        requests: of the pod, base units.
        used: by pods and reservations of the namespace, without the pod.
        quotas: the namespace's quotas.
        rules: what is compared.
    """
    exceeded, clauses = [], []
    for quota in quotas:
        over = over_max(requests, used, quota, rules)
        if over:
            exceeded.append(quota.name)
            bounds = effective_max(quota, rules)
            needed, held = (
                {name: amounts.get(name, 0) for name in over} for amounts in (requests, used)
            )
            clauses.append(exceeded_clause(quota.name, over, needed, held, bounds))
    return QuotaVerdict(tuple(exceeded), "; ".join(clauses))


def judge_queued(
    requests: Amounts,
    waiting: int,
    quotas: Iterable[ElasticQuota],
    rules: QuotaRules = RESOURCE_QUOTA_RULES,
) -> QuotaVerdict:
    """Return whether a pod may wait for the quotas of its namespace.

    It may not if it would wait for ever, for it alone exceeds `max`, or if enough others wait.

    Args:
        requests: of the pod, base units.
        waiting: number of pods of the namespace that wait already.
        quotas: the namespace's quotas.
        rules: what is compared.
    """
    listed = tuple(quotas)
    alone = judge(requests, {}, listed, rules)
    full = [quota for quota in listed if waiting >= quota.max_queued]
    if not (full and alone.allowed):
        return alone
    clauses = [
        f"too many pods wait for quota: {quota.name}, waiting: {waiting},"
        f" limited: {quota.max_queued}"
        for quota in full
    ]
    return QuotaVerdict(tuple(quota.name for quota in full), "; ".join(clauses))


def is_exceeded(message: str) -> bool:
    """Return whether an error of the API server says that a quota is exceeded."""
    return _EXCEEDED in message


def judge_borrowing(requests: Amounts, cohort: CohortUsage) -> QuotaVerdict:
    """Compare a request with the sum of all `min`.

    Every resource in use is compared: while one of them is exceeded, no namespace gets any more of
    any resource (CapacityScheduling, PreFilter).
    """
    more = {name: amount for name, amount in requests.items() if name != PODS}
    over = over_min(sum_of((cohort.used, more)), {}, cohort.guaranteed)
    if not over:
        return QuotaVerdict()
    needed, held, bounds = (
        {name: amounts.get(name, 0) for name in over}
        for amounts in (requests, cohort.used, cohort.guaranteed)
    )
    return QuotaVerdict((COHORT,), exceeded_clause(COHORT, over, needed, held, bounds))


def exceeded_clause(
    name: str, over: Iterable[str], requests: Amounts, used: Amounts, bounds: Amounts
) -> str:
    """Return ResourceQuota's clause on a quota that is exceeded in some resources.

    An amount that is unknown is left out.
    """
    return (
        f"{_EXCEEDED}{name}, requested: {_listed(over, requests)},"
        f" used: {_listed(over, used)}, limited: {_listed(over, bounds)}"
    )


def _listed(names: Iterable[str], amounts: Mapping[str, int]) -> str:
    return ",".join(
        f"{name}={amount_text(name, amounts[name])}" for name in names if name in amounts
    )
