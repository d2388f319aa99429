"""Requests and usage of the quotas of a tree, summed upwards.

Source: koordinator, core/group_quota_manager.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts, greater
from engine.quota.bounds import sum_of
from engine.quota.tree.tree import QuotaTree


@dataclass(frozen=True, slots=True)
class QuotaRequests:
    """What a quota and its children request; base units.

    Attributes:
        pods: sum over its pods, waiting ones included, and over what its children pass up.
        request: the same, but at least `min` where it does not lend.
        limited: what it passes up: no more than `max` of the resources that `max` names.
    """

    pods: Amounts
    request: Amounts
    limited: Amounts


def sum_requests(tree: QuotaTree, own: Mapping[str, Amounts]) -> dict[str, QuotaRequests]:
    """Return the requests of every quota, by name.

    Args:
        tree: the quotas.
        own: requests of the pods of each quota, by name; what `max` does not name is left out.
    """
    sums: dict[str, QuotaRequests] = {}
    for quota in tree.bottom_up():
        children = (sums[child.name].limited for child in tree.children_of(quota.name))
        pods = sum_of((masked(own.get(quota.name, {}), quota), *children))
        request = pods if quota.tree.lends else greater(pods, quota.min or {})
        greatest = quota.max or {}
        limited = {name: min(n, greatest.get(name, n)) for name, n in request.items()}
        sums[quota.name] = QuotaRequests(pods, request, limited)
    return sums


def sum_usage(tree: QuotaTree, own: Mapping[str, Amounts]) -> dict[str, Amounts]:
    """Return what the pods of each quota and of those below it use, by name."""
    sums: dict[str, Amounts] = {}
    for quota in tree.bottom_up():
        below = (sums[child.name] for child in tree.children_of(quota.name))
        sums[quota.name] = sum_of((masked(own.get(quota.name, {}), quota), *below))
    return sums


def masked(amounts: Amounts, quota: ElasticQuota) -> Amounts:
    """Return the amounts of the resources that `max` of a quota names."""
    named = quota.max or {}
    return {name: amount for name, amount in amounts.items() if name in named}
