"""Whether a request fits an ElasticQuota's `max`, said in ResourceQuota's words.

Source of the rule and the wording: Kubernetes ResourceQuota admission (resourcequota/controller.go,
CheckRequest): only resources that the request names and the quota limits are compared, and only
those exceeded are listed, in sorted order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.model.quantity import amount_text
from engine.model.resources import Amounts


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


def judge(requests: Amounts, used: Amounts, quotas: Iterable[ElasticQuota]) -> QuotaVerdict:
    """Compare a request with every quota of its namespace; all must fit.

    Args:
        requests: what the pod adds, base units; zero amounts are not compared.
        used: what the namespace's pods and reservations already hold, without the pod.
        quotas: the namespace's quotas; a resource that `max` does not name is unlimited.
    """
    exceeded, clauses = [], []
    for quota in quotas:
        over = _over(requests, used, quota.max or {})
        if over:
            exceeded.append(quota.name)
            clauses.append(
                f"exceeded quota: {quota.name}, requested: {_listed(over, requests)},"
                f" used: {_listed(over, used)}, limited: {_listed(over, quota.max or {})}"
            )
    return QuotaVerdict(tuple(exceeded), "; ".join(clauses))


def _over(requests: Amounts, used: Amounts, limits: Amounts) -> list[str]:
    """Return the resources in which the request would pass the limit, sorted."""
    return sorted(
        name
        for name, amount in requests.items()
        if amount > 0 and name in limits and used.get(name, 0) + amount > limits[name]
    )


def _listed(names: Iterable[str], amounts: Mapping[str, int]) -> str:
    return ",".join(f"{name}={amount_text(name, amounts.get(name, 0))}" for name in names)
