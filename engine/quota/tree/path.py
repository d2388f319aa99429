"""The quotas of a tree that bound a pod: whose it is, those above it, and whether it fits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import (
    BUILT_IN_QUOTAS,
    DEFAULT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    QuotaKey,
)
from engine.model.quantity import PODS
from engine.model.resources import Amounts
from engine.quota.bounds import QuotaRules, excess, sum_of
from engine.quota.reservations import DEFAULT_RESERVATION_SECONDS, Reservation, held_together
from engine.quota.tree.tree import (
    QuotaRequests,
    QuotaTree,
    RuntimeQuota,
    runtime_quotas,
    sum_requests,
    sum_usage,
)
from engine.quota.verdict import QuotaVerdict, judge, judge_queued
from engine.view import ClusterView


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


# Which of Koordinator's quotas a pod belongs to.
#
# Source: koordinator, pkg/scheduler/plugins/elasticquota/plugin_helper.go and
# pkg/webhook/elasticquota/pod_check.go.


def quota_name(tree: QuotaTree, namespace: str, label: str) -> str:
    """Return the name of the quota that a label names, or its namespace implies.

    Args:
        tree: the quotas.
        namespace: of the pod.
        label: value of its label `quota.scheduling.koordinator.sh/name`, "" if it has none.
    """
    if label:
        return label
    named = tree.get(namespace)
    if named is not None and named.namespace == namespace:
        return namespace
    return tree.listing(namespace) or DEFAULT_QUOTA


def known_quota_name(tree: QuotaTree, namespace: str, label: str) -> str:
    """Return `quota_name`, or the name of the default quota where there is no such quota."""
    name = quota_name(tree, namespace, label)
    return name if name in tree else DEFAULT_QUOTA


def tree_in(view: ClusterView) -> QuotaTree:
    """Return the tree of all quotas of Koordinator."""
    return QuotaTree(quota for listed in view.namespaces.quotas.values() for quota in listed)


def bounds_in(view: ClusterView, tree: QuotaTree, *, scales_min: bool = True) -> TreeBounds:
    """Return what bounds the pods of each quota now; the tree has what all nodes offer."""
    names = {name for quota in tree for name in quota.max or {}}
    total = {name: int(view.amount(view.allocatable, name)[view.valid].sum()) for name in names}
    usage, outside = usage_in(view, tree), usage_outside(view, tree)
    return tree_bounds(tree, usage, total, outside, scales_min=scales_min)


def usage_in(view: ClusterView, tree: QuotaTree) -> UsageByQuota:
    """Return what the pods of each quota request: of its label, or else of its namespace."""
    facts = view.namespaces
    return UsageByQuota(
        used=_by_quota(tree, facts.requested, facts.labelled),
        queued=_by_quota(tree, facts.queued, facts.labelled_queued),
    )


def usage_outside(view: ClusterView, tree: QuotaTree) -> Amounts:
    """Return what pods of the default and of the system quota take of what nodes offer.

    Those that are bound alone, as upstream counts what is used: nobody may ever place the others.
    Source: koordinator, core/group_quota_manager.go.
    """
    facts = view.namespaces
    bound = _by_quota(tree, facts.scheduled, facts.labelled_scheduled)
    return sum_of(bound.get(name, {}) for name in (DEFAULT_QUOTA, SYSTEM_QUOTA))


def _by_quota(
    tree: QuotaTree, by_namespace: Mapping[str, Amounts], by_label: Mapping[str, Amounts]
) -> dict[str, Amounts]:
    sums: dict[str, Amounts] = {}
    for name, amounts in _shares(tree, by_namespace, by_label):
        sums[name] = sum_of((sums[name], amounts)) if name in sums else amounts
    return sums


def _shares(
    tree: QuotaTree, by_namespace: Mapping[str, Amounts], by_label: Mapping[str, Amounts]
) -> Iterator[tuple[str, Amounts]]:
    """Yield the quota of each group of pods, and what they request."""
    labelled: dict[str, list[Amounts]] = {}
    for key, amounts in by_label.items():
        namespace, _, label = key.partition("/")
        labelled.setdefault(namespace, []).append(amounts)
        yield known_quota_name(tree, namespace, label), amounts
    for namespace, amounts in by_namespace.items():
        rest = excess(amounts, sum_of(labelled.get(namespace, ())))
        if rest:
            yield known_quota_name(tree, namespace, ""), rest


# The quotas above a pod that are not those of its namespace, and the pod compared with them.
#
# A namespace's own quotas are exact, by reservations on their objects. What a label, a list of
# namespaces or a parent adds is compared with what a view counts and with what was admitted here
# and is not observed yet: exact for one replica, while pods that several replicas admit at the same
# moment may exceed it together. Where pods wait for quota, one leader releases them: none exceeds
# it.


_COUNTS_SECONDS: Final = 0.1
"""All quotas of a tree are counted at once, 10 ms for a thousand: not for every pod."""


@dataclass(slots=True)
class _Counts:
    """The pods of the tree at a moment, and those admitted here; by name of a quota."""

    at: float  # the moment
    used: dict[str, dict[str, int]]  # by the pods of a quota and of those below it, observed or not
    queued: dict[str, int]  # pods that wait for it


@dataclass(frozen=True, slots=True)
class _Admitted:
    reservation: Reservation
    namespace: str
    label: str
    at: float


def _unobserved(_uid: str) -> int:
    return 0


class QuotaPaths:
    """Compares pods with the quotas of the tree; remembers the tree, and its pods for a moment.

    INVARIANT: a pod that was admitted counts until a view has it, however late watches are.

    All views must be of one cluster, each not older than the one before.

    Args:
        rules: what is compared.
        version_of: the newest version at which a view had a pod, by its uid; 0 for none.
        unseen_seconds: how long an admitted pod counts that no view has had.
    """

    def __init__(
        self,
        rules: QuotaRules,
        *,
        version_of: Callable[[str], int] = _unobserved,
        unseen_seconds: float = DEFAULT_RESERVATION_SECONDS,
    ) -> None:
        self._rules = rules
        self._version_of = version_of
        self._unseen_seconds = unseen_seconds
        self._admitted: dict[str, _Admitted] = {}
        self._tree = QuotaTree(())
        self._version = 0
        self._counts: _Counts | None = None

    def tree(self, view: ClusterView) -> QuotaTree:
        """Return the tree of a view."""
        version = view.namespaces.quotas_version
        if version != self._version:
            self._tree, self._version, self._counts = tree_in(view), version, None
        return self._tree

    def may_have(self, view: ClusterView) -> bool:
        """Return whether any pod may be limited beyond the quotas of its namespace."""
        return len(self.tree(view)) > 0

    def quotas_of(self, view: ClusterView, namespace: str, label: str) -> tuple[ElasticQuota, ...]:
        """Return the quotas that limit a pod besides those of its namespace, its own one first.

        Args:
            view: the cluster.
            namespace: of the pod.
            label: the quota that its label names, "" for none.
        """
        tree = self.tree(view)
        if not len(tree):
            return ()
        name = known_quota_name(tree, namespace, label)
        quota = tree.get(name)
        if quota is None or name in BUILT_IN_QUOTAS:
            return ()
        is_of_namespace = quota.name == quota.namespace == namespace
        return (*(() if is_of_namespace else (quota,)), *tree.ancestors_of(name))

    def judge(
        self,
        view: ClusterView,
        namespace: str,
        label: str,
        reservation: Reservation,
        now: float,
        *,
        dry_run: bool = False,
    ) -> QuotaVerdict:
        """Compare a pod with `max` of the quotas that limit it besides those of its namespace.

        What is admitted counts at once for all that are judged here. A request that is repeated
        counts once.

        Args:
            view: the cluster.
            namespace: of the pod.
            label: the quota that its label names, "" for none.
            reservation: of the pod, or of what it requests in addition.
            now: seconds that only go forward.
            dry_run: whether to judge only, and count nothing.
        """
        quotas = self.quotas_of(view, namespace, label)
        if not quotas:
            return QuotaVerdict()
        counts, requests = self._counts_at(view, now), reservation.amounts
        if reservation.key in self._admitted:
            return QuotaVerdict()
        used = [counts.used.setdefault(quota.name, {}) for quota in quotas]
        verdict = _joined(
            judge(requests, held, [quota], self._rules)
            for quota, held in zip(quotas, used, strict=True)
        )
        if verdict.allowed and requests and not dry_run:
            self._admitted[reservation.key] = _Admitted(reservation, namespace, label, now)
            _add(requests, used)
        return verdict

    def withdraw(self, key: str) -> None:
        """Count an admitted pod soon no longer, by the key of its reservation: others denied it."""
        self._admitted.pop(key, None)

    def judge_queued(
        self,
        view: ClusterView,
        namespace: str,
        label: str,
        reservation: Reservation,
        now: float,
        *,
        dry_run: bool = False,
    ) -> QuotaVerdict:
        """Return whether a pod may wait for these quotas: see `engine.quota.judge_queued`."""
        quotas = self.quotas_of(view, namespace, label)
        if not quotas:
            return QuotaVerdict()
        counts, requests = self._counts_at(view, now), reservation.amounts
        own, *above = quotas
        waiting = counts.queued.get(own.name, 0)
        verdict = _joined(
            (
                judge_queued(requests, waiting, [own], self._rules),
                *(judge(requests, {}, [quota], self._rules) for quota in above),
            )
        )
        if verdict.allowed and not dry_run:
            counts.queued[own.name] = waiting + 1
        return verdict

    def _counts_at(self, view: ClusterView, now: float) -> _Counts:
        """Return what pods use and how many wait, of a moment ago at most."""
        if self._counts is None or not 0 <= now - self._counts.at < _COUNTS_SECONDS:
            tree = self.tree(view)
            usage = usage_in(view, tree)
            used = sum_usage(tree, usage.used)
            self._counts = _Counts(
                now,
                {name: dict(amounts) for name, amounts in used.items()},
                {name: amounts.get(PODS, 0) for name, amounts in usage.queued.items()},
            )
            self._count_unobserved(view, self._counts)
        return self._counts

    def _count_unobserved(self, view: ClusterView, counts: _Counts) -> None:
        """Add what was admitted here and is in no view yet; forget the rest."""
        late = counts.at - self._unseen_seconds
        self._admitted = {
            key: pod
            for key, pod in self._admitted.items()
            if pod.at > late and self._version_of(pod.reservation.uid) <= pod.reservation.after
        }
        together: dict[tuple[str, str], list[Reservation]] = {}
        for pod in self._admitted.values():
            together.setdefault((pod.namespace, pod.label), []).append(pod.reservation)
        for (namespace, label), reservations in together.items():
            quotas = self.quotas_of(view, namespace, label)
            used = [counts.used.setdefault(quota.name, {}) for quota in quotas]
            _add(held_together(reservations), used)


def _add(amounts: Amounts, used: Iterable[dict[str, int]]) -> None:
    """Add amounts to what each of some quotas has in use."""
    for held in used:
        for name, amount in amounts.items():
            held[name] = held.get(name, 0) + amount


def _joined(verdicts: Iterable[QuotaVerdict]) -> QuotaVerdict:
    """Return one verdict of several, all of which must allow."""
    denials = [verdict for verdict in verdicts if not verdict.allowed]
    return QuotaVerdict(
        tuple(name for verdict in denials for name in verdict.exceeded),
        "; ".join(verdict.message for verdict in denials),
    )
