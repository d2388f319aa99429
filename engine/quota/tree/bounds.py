"""What bounds the pods of a quota of the tree: its runtime, and the `max` of all above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.model.elastic_quota import QuotaKey
from engine.model.resources import Amounts
from engine.quota.bounds import sum_of
from engine.quota.tree.requests import QuotaRequests, sum_requests, sum_usage
from engine.quota.tree.runtime import RuntimeQuota, runtime_quotas
from engine.quota.tree.tree import QuotaTree


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageByQuota:
    """What the pods of each quota request, by name of the quota, without those of its children.

    Attributes:
        used: by pods that count, so not by those that wait for quota.
        queued: by pods that wait for quota.
    """

    used: Mapping[str, Amounts]
    queued: Mapping[str, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeBounds:
    """The tree at one moment, each by name of a quota; base units.

    Attributes:
        tree: the quotas.
        requests: with queued pods, children included.
        used: without queued pods, children included.
        shares: runtime and scaled min.
    """

    tree: QuotaTree
    requests: Mapping[str, QuotaRequests]
    used: Mapping[str, Amounts]
    shares: Mapping[str, RuntimeQuota]

    def of(self, name: str) -> tuple[tuple[QuotaKey, Amounts], ...]:
        """Return what bounds the pods of a quota: whose usage, and how much of each resource.

        Its runtime, and the `max` of every quota above it; its own `max` is not less than its
        runtime. Nothing for a quota that is not in the tree.
        """
        quota, share = self.tree.get(name), self.shares.get(name)
        if quota is None or share is None:
            return ()
        above = ((up.key, up.max or {}) for up in self.tree.ancestors_of(name))
        return ((quota.key, share.runtime), *above)

    @property
    def used_by_key(self) -> dict[QuotaKey, Amounts]:
        """What the pods of each quota and of those below it use."""
        return {quota.key: self.used[quota.name] for quota in self.tree}


def tree_bounds(
    tree: QuotaTree,
    usage: UsageByQuota,
    total: Amounts,
    outside: Amounts,
    *,
    scales_min: bool = True,
) -> TreeBounds:
    """Return what bounds each quota.

    Args:
        tree: the quotas.
        usage: of the pods of each quota.
        total: allocatable of all nodes, cordoned ones too.
        outside: requests of the bound pods of no quota of the tree, see `usage_outside`.
        scales_min: whether guarantees shrink where they come to more than there is.
    """
    names = usage.used.keys() | usage.queued.keys()
    own = {name: sum_of((usage.used.get(name, {}), usage.queued.get(name, {}))) for name in names}
    taken = sum_of((outside, *tree.taken_out()))
    left = {name: amount - taken.get(name, 0) for name, amount in total.items()}
    requests = sum_requests(tree, own)
    return TreeBounds(
        tree=tree,
        requests=requests,
        used=sum_usage(tree, usage.used),
        shares=runtime_quotas(tree, requests, left, scales_min=scales_min),
    )
