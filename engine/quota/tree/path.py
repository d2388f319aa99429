"""The quotas above a pod that are not those of its namespace, and the pod compared with them.

A namespace's own quotas are exact, by reservations on their objects. What a label, a list of
namespaces or a parent adds is compared with what a view counts and with what was admitted here and
is not observed yet: exact for one replica, while pods that several replicas admit at the same
moment may exceed it together. Where pods wait for quota, one leader releases them: none exceeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import ElasticQuota
from engine.model.koordinator_quota import BUILT_IN_QUOTAS
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota.reservations import DEFAULT_RESERVATION_SECONDS, Reservation, held_together
from engine.quota.rules import QuotaRules
from engine.quota.tree.counting import tree_in, usage_in
from engine.quota.tree.membership import known_quota_name
from engine.quota.tree.requests import sum_usage
from engine.quota.tree.tree import QuotaTree
from engine.quota.verdict import QuotaVerdict, judge, judge_queued
from engine.view import ClusterView

_COUNTS_SECONDS: Final = 0.1
"""All quotas of a tree are counted at once, 10 ms for a thousand: not for every pod."""


@dataclass(slots=True)
class _Counts:
    """The pods of the tree at a moment, and those admitted here; by name of a quota.

    Attributes:
        at: the moment.
        used: by the pods of a quota and of those below it, observed or not.
        queued: pods that wait for it.
    """

    at: float
    used: dict[str, dict[str, int]]
    queued: dict[str, int]


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
