"""Koordinator's quotas as a tree: requests, scaled guarantees, and runtime quotas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.model.elastic_quota import BUILT_IN_QUOTAS, KOORDINATOR_GROUP, ROOT_QUOTA, ElasticQuota
from engine.model.resources import Amounts, greater
from engine.model.time import Micros
from engine.quota.bounds import sum_of

# Koordinator's quotas as a tree.
#
# Names are global: labels of pods and quotas refer to a quota by its name alone. Webhooks may be
# away when quotas change, so that nothing is assumed of their labels: a quota whose parent does not
# exist, or is among those below it, counts as one of the top level.


class QuotaTree:
    """The quotas of Koordinator's group; the built-in ones are not part of the tree.

    Args:
        quotas: in any order. Of two with one name, which only a webhook that is away lets through,
            that of the first namespace counts.
    """

    def __init__(self, quotas: Iterable[ElasticQuota]) -> None:
        self._named: dict[str, ElasticQuota] = {}
        for quota in sorted(quotas, key=_name_first):
            if quota.group == KOORDINATOR_GROUP:
                self._named.setdefault(quota.name, quota)
        self._members = {
            name: quota for name, quota in self._named.items() if name not in BUILT_IN_QUOTAS
        }
        self._parents = {quota.name: self._parent_name(quota) for quota in self._members.values()}
        children: dict[str, list[ElasticQuota]] = {}
        for name, parent in self._parents.items():
            children.setdefault(parent, []).append(self._members[name])
        self._children: dict[str, tuple[ElasticQuota, ...]] = {
            parent: tuple(found) for parent, found in children.items()
        }
        self._top_down = tuple(self._ordered())
        self._listing: dict[str, str] = {}
        for quota in self._named.values():
            for namespace in quota.tree.namespaces:
                self._listing.setdefault(namespace, quota.name)
        self._totals = {
            quota.tree.tree_id: quota.tree.total
            for quota in self._members.values()
            if quota.tree.tree_id and quota.tree.is_tree_root and quota.tree.total is not None
        }

    def __contains__(self, name: object) -> bool:
        """Whether a quota of that name exists, built-in or not."""
        return name in self._named

    def __iter__(self) -> Iterator[ElasticQuota]:
        """Yield the quotas, each after its parent."""
        return iter(self._top_down)

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str) -> ElasticQuota | None:
        """Return the quota of a name, built-in ones too, None if there is none."""
        return self._named.get(name)

    def listing(self, namespace: str) -> str:
        """Return the name of the quota that lists a namespace, "" if none does."""
        return self._listing.get(namespace, "")

    def bottom_up(self) -> Iterator[ElasticQuota]:
        """Yield the quotas, each after its children."""
        return reversed(self._top_down)

    def children_of(self, name: str) -> Sequence[ElasticQuota]:
        """Return the quotas right below one, in name order."""
        return self._children.get(name, ())

    def is_top_level(self, quota: ElasticQuota) -> bool:
        """Whether a quota is right below the root."""
        return self._parents.get(quota.name) == ROOT_QUOTA

    def families(self) -> Iterator[tuple[str, Sequence[ElasticQuota]]]:
        """Yield each parent with its children, from the root down."""
        for parent in (ROOT_QUOTA, *(quota.name for quota in self._top_down)):
            if parent in self._children:
                yield parent, self._children[parent]

    def ancestors_of(self, name: str) -> tuple[ElasticQuota, ...]:
        """Return the quotas above one, its parent first, without the root."""
        above, parent = [], self._parents.get(name, ROOT_QUOTA)
        while parent != ROOT_QUOTA:
            above.append(self._members[parent])
            parent = self._parents[parent]
        return tuple(above)

    def total_of(self, tree_id: str) -> Amounts | None:
        """Return what a tree with an id has, None where nothing says so."""
        return self._totals.get(tree_id)

    def taken_out(self) -> Iterator[Amounts]:
        """Yield the totals that the tree of the whole cluster does not have."""
        for quota in self._members.values():
            if quota.tree.tree_id in self._totals and quota.tree.is_tree_root:
                total = quota.tree.total
                if total is not None and not quota.tree.ignores_default_tree:
                    yield total

    def _parent_name(self, quota: ElasticQuota) -> str:
        """Return the name of the parent that counts."""
        parent, seen = quota.tree.parent, {quota.name}
        while parent in self._members and parent not in seen:
            seen.add(parent)
            parent = self._members[parent].tree.parent
        is_cyclic = parent == quota.name
        return (
            quota.tree.parent
            if quota.tree.parent in self._members and not is_cyclic
            else ROOT_QUOTA
        )

    def _ordered(self) -> Iterator[ElasticQuota]:
        """Yield the quotas from the root down, those of one level by name."""
        level: Sequence[ElasticQuota] = self.children_of(ROOT_QUOTA)
        while level:
            yield from level
            level = [child for quota in level for child in self.children_of(quota.name)]


def _name_first(quota: ElasticQuota) -> tuple[str, str]:
    return quota.name, quota.namespace


# Requests and usage of the quotas of a tree, summed upwards.
#
# Source: koordinator, core/group_quota_manager.go.


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


# Guarantees of the children of a quota, reduced where their sum is more than there is.
#
# Source: koordinator, core/scale_minquota_when_over_root_res.go. The division is upstream's, in
# float64, so that the same bytes come out.


@dataclass(frozen=True, slots=True)
class ChildMin:
    """The guarantee of one child.

    Attributes:
        name: of the quota.
        min: as its object says, base units.
        scales: whether it may be reduced; those that may not come first.
    """

    name: str
    min: Amounts
    scales: bool = True


def scaled_mins(total: Amounts, children: Sequence[ChildMin]) -> dict[str, Amounts]:
    """Return the guarantee of each child, by name.

    In a resource of which all guarantees come to more than the total, each child that scales gets
    its part of what is left by those that do not. Resources that the total does not name stay.
    """
    fixed = sum_of(child.min for child in children if not child.scales)
    scaling = sum_of(child.min for child in children if child.scales)
    short = {
        name: amount - fixed.get(name, 0)
        for name, amount in total.items()
        if amount < fixed.get(name, 0) + scaling.get(name, 0)
    }
    return {
        child.name: _scaled(child.min, short, scaling) if child.scales else child.min
        for child in children
    }


def _scaled(guaranteed: Amounts, left: Mapping[str, int], scaling: Amounts) -> Amounts:
    """Return a guarantee with its part of what is left of each resource that is short."""
    if not left:
        return guaranteed
    parts = {
        name: _part(amount, guaranteed.get(name, 0), scaling.get(name, 0))
        for name, amount in left.items()
    }
    return {**guaranteed, **parts}


def _part(left: int, own: int, all_of_them: int) -> int:
    if left <= 0 or all_of_them <= 0:
        return 0
    return int(float(left) * float(own) / float(all_of_them))


# Runtime quotas: how much of what its parent has each quota may use now.
#
# Source: koordinator, core/{runtime_quota_calculator,group_quota_manager}.go. All of it is exact:
# the rest is split by the largest remainder method, of which upstream computes the products in 128
# bit.


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


# Pods to take back from a quota that uses more than its runtime.
#
# Source: koordinator, quota_overuse_revoke.go: the least important first until the rest fits, then
# back, the most important first, whoever need not go. When it has used too much for how long is for
# the caller to say (upstream: 120 s).


@dataclass(frozen=True, slots=True)
class RevocablePod:
    """A pod that counts as used.

    Attributes:
        key: `namespace/name`.
        priority: of the pod.
        started: when it began to run; of two pods with one priority the later is less important.
        requests: what its quota counts, base units.
    """

    key: str
    priority: int
    started: Micros
    requests: Amounts


def overused(used: Amounts, runtime: Amounts) -> bool:
    """Return whether a quota uses more than its runtime, of a resource that this names."""
    return any(used.get(name, 0) > bound for name, bound in runtime.items())


def pods_to_revoke(
    pods: Iterable[RevocablePod], used: Amounts, runtime: Amounts
) -> Sequence[RevocablePod]:
    """Return the pods to evict so that a quota uses no more than its runtime.

    Upstream evicts all of them where even that is not enough; so it is here.

    Args:
        pods: of the quota, which may be evicted.
        used: by all pods of the quota, those below it included.
        runtime: of the quota.

    Returns:
        Most important first.
    """
    taken: list[RevocablePod] = []
    left = dict(used)
    for pod in sorted(pods, key=_importance):
        if not overused(left, runtime):
            break
        left = _without(left, pod.requests)
        taken.append(pod)
    if overused(left, runtime):
        return taken[::-1]
    revoked = []
    for pod in reversed(taken):
        with_it = sum_of((left, pod.requests))
        if overused(with_it, runtime):
            revoked.append(pod)
        else:
            left = with_it
    return revoked


def _importance(pod: RevocablePod) -> tuple[int, int, str]:
    """Order pods, the least important first."""
    return pod.priority, -pod.started, pod.key


def _without(amounts: Amounts, taken: Amounts) -> dict[str, int]:
    return {name: amount - taken.get(name, 0) for name, amount in amounts.items()}
