"""Runtime quotas: how much of what its parent has each quota may use now.

Source: koordinator, core/{runtime_quota_calculator,group_quota_manager}.go. All of it is exact: the
rest is split by the largest remainder method, of which upstream computes the products in 128 bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota.tree.requests import QuotaRequests
from engine.quota.tree.scaled_min import ChildMin, scaled_mins
from engine.quota.tree.tree import QuotaTree


@dataclass(frozen=True, slots=True)
class Claim:
    """What one quota claims of one resource; base units.

    Attributes:
        name: of the quota; decides between equal remainders.
        weight: its share of what is left when all have their guarantee.
        request: at most its `max`.
        min: guaranteed.
        lends: whether it leaves to others what it does not request of `min`.
    """

    name: str
    weight: int
    request: int
    min: int
    lends: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeQuota:
    """The share of one quota; base units.

    Attributes:
        runtime: what it may use, of the resources that its `max` names.
        scaled_min: what of it is guaranteed.
    """

    runtime: Amounts
    scaled_min: Amounts


def redistribute(total: int, claims: Iterable[Claim]) -> dict[str, int]:
    """Return the runtime of each quota in one resource, by name.

    Everyone gets what it requests up to its guarantee, also where the total is less than that. The
    rest is split by weight among those that request more, until they have it or nothing is left.
    """
    runtime, competing = {}, []
    for claim in claims:
        if claim.request > claim.min:
            competing.append(claim)
        takes_min = claim.request > claim.min or not claim.lends
        runtime[claim.name] = claim.min if takes_min else claim.request
    rest = total - sum(runtime.values())
    while rest > 0 and competing:
        weights = sum(claim.weight for claim in competing)
        if weights <= 0:
            break
        for claim, part in zip(competing, _parts(rest, weights, competing), strict=True):
            runtime[claim.name] += part
        surplus, short = 0, []
        for claim in competing:
            beyond = runtime[claim.name] - claim.request
            if beyond < 0:
                short.append(claim)
            else:
                surplus += beyond
                runtime[claim.name] = claim.request
        rest, competing = surplus, short
    return runtime


def runtime_quotas(
    tree: QuotaTree,
    requests: Mapping[str, QuotaRequests],
    total: Amounts,
    *,
    scales_min: bool = True,
) -> dict[str, RuntimeQuota]:
    """Return the runtime of each quota of the tree, by name.

    Args:
        tree: the quotas.
        requests: of each quota, those of its children included (`sum_requests`).
        total: what the cluster has for the tree, without what pods of the default and the system
            quota use.
        scales_min: whether guarantees shrink where they come to more than there is.
    """
    shares: dict[str, RuntimeQuota] = {}
    for parent, children in tree.families():
        above = shares.get(parent)
        available = total if above is None else above.runtime
        for tree_total, members in _by_total(tree, available, children):
            shares.update(_shares(tree_total, members, requests, scales_min=scales_min))
    return shares


def _by_total(
    tree: QuotaTree, available: Amounts, children: Sequence[ElasticQuota]
) -> Iterable[tuple[Amounts, Sequence[ElasticQuota]]]:
    """Yield the children that share a total; a tree may have one of its own at the top."""
    apart: dict[str, list[ElasticQuota]] = {}
    together: list[ElasticQuota] = []
    for child in children:
        has_own = tree.is_top_level(child) and tree.total_of(child.tree.tree_id) is not None
        (apart.setdefault(child.tree.tree_id, []) if has_own else together).append(child)
    yield available, together
    for tree_id, members in apart.items():
        yield tree.total_of(tree_id) or {}, members


def _shares(
    total: Amounts,
    children: Sequence[ElasticQuota],
    requests: Mapping[str, QuotaRequests],
    *,
    scales_min: bool,
) -> dict[str, RuntimeQuota]:
    """Return the shares of quotas that divide a total."""
    mins = scaled_mins(
        total, [ChildMin(child.name, child.min or {}, scales_min) for child in children]
    )
    names = sorted({name for child in children for name in child.max or {}})
    runtime: dict[str, dict[str, int]] = {child.name: {} for child in children}
    for name in names:
        claims = [_claim(child, name, mins[child.name], requests) for child in children]
        divided = redistribute(total.get(name, 0), claims)
        for child in children:
            if name in (child.max or {}):
                runtime[child.name][name] = divided[child.name]
    return {key: RuntimeQuota(share, mins[key]) for key, share in runtime.items()}


def _claim(
    quota: ElasticQuota, name: str, least: Amounts, requests: Mapping[str, QuotaRequests]
) -> Claim:
    """Return what a quota claims of a resource.

    One without any pods keeps its guarantee if it does not lend, but does not compete: what its
    object guarantees it above its scaled min nobody requests.
    """
    requested = requests.get(quota.name)
    competes = requested is not None and any(requested.pods.values())
    return Claim(
        quota.name,
        _weights(quota).get(name, 0),
        requested.limited.get(name, 0) if requested is not None and competes else 0,
        least.get(name, 0),
        quota.tree.lends,
    )


def _weights(quota: ElasticQuota) -> Amounts:
    """Return the weights of a quota; without any, its `max`."""
    weights = quota.tree.shared_weight
    return weights if any(weights.values()) else quota.max or {}


def _parts(rest: int, weights: int, claims: Sequence[Claim]) -> list[int]:
    """Return the part of each claim in the rest, by the largest remainder method."""
    parts, remainders = [], []
    for i in range(len(claims)):
        claim = claims[i]
        part, remainder = divmod(claim.weight * rest, weights) if claim.weight > 0 else (0, 0)
        parts.append(part)
        if claim.weight > 0:
            remainders.append((-remainder, claim.name, i))
    for _, _, i in sorted(remainders)[: rest - sum(parts)]:
        parts[i] += 1
    return parts
