"""Whether a pod fits its quota and those above, as Koordinator's scheduler checks it.

It shows that bounds and usage of our tree lead to upstream's answers, word for word. Source:
koordinator, pkg/scheduler/plugins/elasticquota/{plugin,plugin_helper}.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.quota.bounds import sum_of
from engine.quota.tree import QuotaTree
from engine.quota.tree.tree import masked


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeUsage:
    """What a pod is compared with, each by name of a quota; base units.

    Attributes:
        bounds: greatest amounts: the runtime, or `max`. A quota that is missing is not bounded.
        used: by pods of the quota and of those below it.
        non_preemptible: the part of `used` by pods that may not be preempted.
    """

    bounds: Mapping[str, Amounts]
    used: Mapping[str, Amounts]
    non_preemptible: Mapping[str, Amounts]


def check_pod_fits(
    quota: ElasticQuota,
    requests: Amounts,
    usage: TreeUsage,
    tree: QuotaTree | None = None,
    *,
    is_preemptible: bool = True,
) -> str:
    """Return why a pod does not fit its quota, "" if it does.

    Args:
        quota: of the pod.
        requests: of the pod.
        usage: without the pod.
        tree: to compare with the quotas above too; None compares with its own alone.
        is_preemptible: whether the pod may exceed `min`.
    """
    needed = masked(requests, quota)
    name = quota.name
    # Its own quota may be exceeded in nothing at all; those above only in what the pod requests.
    over = _over(needed, usage, name)
    if over:
        return _insufficient(f"quotaName: {name}", usage, name, needed, over)
    if not is_preemptible:
        held = usage.non_preemptible.get(name, {})
        least = quota.min or {}
        over = _exceeded(sum_of((held, needed)), least)
        if over:
            return (
                f"Insufficient non-preemptible quotas, quotaName: {name}, min: {_listed(least)},"
                f" nonPreemptibleUsed: {_listed(held)},"
                f" pod's request: {_listed(needed)}, exceedDimensions: [{' '.join(over)}]"
            )
    path = [name]
    for above in tree.ancestors_of(name) if tree is not None else ():
        path.insert(0, above.name)
        over = [key for key in _over(needed, usage, above.name) if key in needed]
        if over:
            topology = f"quotaNameTopo: [{' '.join(path)}]"
            return _insufficient(topology, usage, above.name, needed, over)
    return ""


def _over(requests: Amounts, usage: TreeUsage, name: str) -> list[str]:
    """Return the resources in which a quota would be exceeded, sorted."""
    bounds = usage.bounds.get(name, {})
    return _exceeded(sum_of((usage.used.get(name, {}), requests)), bounds)


def _exceeded(amounts: Amounts, bounds: Amounts) -> list[str]:
    return sorted(name for name, amount in amounts.items() if amount > bounds.get(name, amount))


def _insufficient(
    quota: str, usage: TreeUsage, name: str, requests: Amounts, over: Sequence[str]
) -> str:
    return (
        f"Insufficient quotas, {quota}, runtime: {_listed(usage.bounds.get(name, {}))},"
        f" used: {_listed(usage.used.get(name, {}))}, pod's request: {_listed(requests)},"
        f" exceedDimensions: [{' '.join(over)}]"
    )


def _listed(amounts: Amounts) -> str:
    """Return amounts as upstream lists them; `<empty>` where there are none."""
    listed = sorted(f"{name}:{amount_text(name, amount)}" for name, amount in amounts.items())
    return ",".join(listed) or "<empty>"
