"""Whether a request fits its quotas, said in ResourceQuota's words.

Source of the rule and the wording: Kubernetes ResourceQuota admission (resourcequota/controller.go,
CheckRequest): only resources that the request names and the quota limits are compared, and only
those exceeded are listed, in sorted order. Other rules: see `QuotaRules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.model.quantity import amount_text
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota.bounds import CohortUsage, effective_max, over_max, over_min, sum_of
from engine.quota.rules import RESOURCE_QUOTA_RULES, QuotaRules

POOL = "the sum of all min"
"""What stands for the name of a quota where the pool is exceeded."""


@dataclass(frozen=True, slots=True)
class QuotaVerdict:
    """The answer to "does this pod fit?".

    Attributes:
        exceeded: the names of the quotas it does not fit, in name order.
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
        requests: what the pod adds, base units.
        used: what the namespace's pods and reservations already hold, without the pod.
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


def judge_borrowing(requests: Amounts, pool: CohortUsage) -> QuotaVerdict:
    """Compare a request with what all quotas guarantee together.

    Every resource that anyone holds is compared: while one of them is over, none of the namespaces
    gets any more of any (CapacityScheduling, PreFilter).
    """
    asked = {name: amount for name, amount in requests.items() if name != PODS}
    over = over_min(sum_of((pool.used, asked)), {}, pool.guaranteed)
    if not over:
        return QuotaVerdict()
    needed, held, bounds = (
        {name: amounts.get(name, 0) for name in over}
        for amounts in (requests, pool.used, pool.guaranteed)
    )
    return QuotaVerdict((POOL,), exceeded_clause(POOL, over, needed, held, bounds))


def exceeded_clause(
    name: str, over: Iterable[str], requests: Amounts, used: Amounts, bounds: Amounts
) -> str:
    """Return what ResourceQuota says of the resources in which a quota is exceeded.

    An amount that is not known is left out.
    """
    return (
        f"exceeded quota: {name}, requested: {_listed(over, requests)},"
        f" used: {_listed(over, used)}, limited: {_listed(over, bounds)}"
    )


def _listed(names: Iterable[str], amounts: Mapping[str, int]) -> str:
    return ",".join(
        f"{name}={amount_text(name, amounts[name])}" for name in names if name in amounts
    )
