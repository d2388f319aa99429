"""Namespaces: labels, quotas, and the requests of their pods."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from engine.model.caches import LruCache
from engine.model.elastic_quota import KOORDINATOR_GROUP, ElasticQuota
from engine.model.quantity import PODS
from engine.model.resources import Amounts
from engine.model.selectors import LabelSelector
from engine.view.pod_table import RUNNING, SCHEDULED
from engine.view.rows import Contribution

REQUESTED = 8
"""The standing of every pod that is counted, added to SCHEDULED and RUNNING."""

_Total: TypeAlias = dict[str, int]
_Totals: TypeAlias = dict[str, _Total]
_Amounts: TypeAlias = Iterable[tuple[str, int]]

RequestItems: TypeAlias = tuple[tuple[str, int], ...]
"""Requests of a pod, as quotas count them, with `pods`."""


_Group = TypeVar("_Group", bound=Hashable)
_Key = TypeVar("_Key", bound=Hashable)


class NamespaceFacts(NamedTuple):
    """All that a view holds of namespaces, each by namespace."""

    labels: Mapping[str, Mapping[str, str]]  # of each known namespace
    labels_version: int  # changes when a namespace comes, goes, or gets other labels
    # requests (and `pods`) of all non-terminal pods that are not queued
    requested: Mapping[str, Amounts]
    scheduled: Mapping[str, Amounts]  # the same of those that are bound, and Pending or Running
    # the same of those that are Running, by `PodShape.bare_requests`
    running: Mapping[str, Amounts]
    queued: Mapping[str, Amounts]  # requests (and `pods`) of the pods that wait for quota
    queued_pods: Mapping[str, Mapping[RequestItems, int]]  # how many of these request the same
    # the part of `requested` by pods whose label names a quota of Koordinator, by `namespace/label`
    labelled: Mapping[str, Amounts]
    labelled_scheduled: Mapping[str, Amounts]  # the same part of `scheduled`
    labelled_queued: Mapping[str, Amounts]  # the same part of `queued`
    quota_modes: Mapping[str, str]  # the annotation `stowplan.dev/quota-mode`, where there is one
    quotas: Mapping[str, tuple[ElasticQuota, ...]]  # ElasticQuotas, in name order
    # changes when a quota comes, goes, or changes in anything but its version, its reservations and
    # its status
    quotas_version: int
    pods_version: int  # changes when what pods request changes, of any namespace


class Namespaces:
    """Labels, quota modes and quotas; see `NamespaceFacts`."""

    def __init__(self) -> None:
        self.labels: dict[str, Mapping[str, str]] = {}
        self.quota_modes: dict[str, str] = {}
        self.quotas: dict[str, tuple[ElasticQuota, ...]] = {}
        self._labels_version = 0
        self._quotas_version = 0
        self._of_tree: set[tuple[str, str]] = set()  # namespace and name

    @property
    def has_quota_tree(self) -> bool:
        """Whether any quota is one of Koordinator's, which limit pods by their labels."""
        return bool(self._of_tree)

    def facts(
        self,
        totals: NamespaceTotals,
        queued: NamespaceTotals,
        queued_pods: PodCounts[str, RequestItems],
        labelled: NamespaceTotals,
        labelled_queued: NamespaceTotals,
    ) -> NamespaceFacts:
        """Return the facts, valid until this and the totals are unshared."""
        return NamespaceFacts(
            labels=self.labels,
            labels_version=self._labels_version,
            requested=totals.requested,
            scheduled=totals.scheduled,
            running=totals.running,
            queued=queued.requested,
            queued_pods=queued_pods.counts,
            labelled=labelled.requested,
            labelled_scheduled=labelled.scheduled,
            labelled_queued=labelled_queued.requested,
            quota_modes=self.quota_modes,
            quotas=self.quotas,
            quotas_version=self._quotas_version,
            pods_version=totals.version + queued.version,
        )

    def unshare(self) -> None:
        """Leave the mappings given out so far to their holders, and write to copies."""
        self.labels = self.labels.copy()
        self.quota_modes = self.quota_modes.copy()
        self.quotas = self.quotas.copy()

    def put(self, name: str, labels: Mapping[str, str], quota_mode: str) -> None:
        """Write a namespace; its quota mode is "" where it has none."""
        if self.labels.get(name) != labels:
            self._labels_version += 1
        self.labels[name] = labels
        self.quota_modes.pop(name, None)
        if quota_mode:
            self.quota_modes[name] = quota_mode

    def drop(self, name: str) -> None:
        """Take out a namespace, if it is there; its quotas stay until they are deleted too."""
        if self.labels.pop(name, None) is not None:
            self._labels_version += 1
        self.quota_modes.pop(name, None)

    def put_quota(self, quota: ElasticQuota) -> None:
        old = self._taken_out(quota.namespace, quota.name, quota.group)
        quotas = (*self.quotas.get(quota.namespace, ()), quota)
        self.quotas[quota.namespace] = tuple(sorted(quotas, key=_identity))
        if quota.group == KOORDINATOR_GROUP:
            self._of_tree.add((quota.namespace, quota.name))
        if old is None or _written_by_people(old) != _written_by_people(quota):
            self._quotas_version += 1

    def drop_quota(self, namespace: str, name: str, group: str) -> None:
        if self._taken_out(namespace, name, group) is not None:
            self._quotas_version += 1
        if group == KOORDINATOR_GROUP:
            self._of_tree.discard((namespace, name))

    def _taken_out(self, namespace: str, name: str, group: str) -> ElasticQuota | None:
        quotas = self.quotas.pop(namespace, ())
        left = tuple(quota for quota in quotas if _identity(quota) != (name, group))
        if left:
            self.quotas[namespace] = left
        return next((quota for quota in quotas if _identity(quota) == (name, group)), None)


def _written_by_people(quota: ElasticQuota) -> ElasticQuota:
    return replace(quota, version=0, reservations="", used={})


def _identity(quota: ElasticQuota) -> tuple[str, str]:
    return quota.name, quota.group


class NamespaceTotals:
    """Requests and number of pods by namespace; mappings given out are never written to."""

    def __init__(self) -> None:
        self.requested: _Totals = {}  # of all pods, until `unshare` is called
        self.scheduled: _Totals = {}  # of those that are SCHEDULED, likewise
        self.running: _Totals = {}  # of those that are RUNNING, likewise
        self.version = 0  # grows with every change
        # Of namespaces whose totals nobody else holds: the three totals, in the attributes too
        # unless they are empty.
        self._own: dict[str, tuple[_Total, _Total, _Total]] = {}

    def unshare(self) -> None:
        self.requested = self.requested.copy()
        self.scheduled = self.scheduled.copy()
        self.running = self.running.copy()
        self._own.clear()

    def add(self, namespace: str, added: Contribution, standing: int) -> None:
        """Add a pod to the totals of its standing: REQUESTED, SCHEDULED, RUNNING, added up."""
        self.version += 1
        own = self._own.get(namespace)
        requested, scheduled, running = self._made_own(namespace) if own is None else own
        if standing & REQUESTED:
            if not requested:
                self.requested[namespace] = requested
            _add(requested, added.requests)
        if standing & SCHEDULED:
            if not scheduled:
                self.scheduled[namespace] = scheduled
            _add(scheduled, added.requests)
        if standing & RUNNING:
            if not running:
                self.running[namespace] = running
            _add(running, added.bare_requests)

    def subtract(self, namespace: str, removed: Contribution, standing: int) -> None:
        """Take a pod off totals that it was added to, exactly; of no pods nothing is left."""
        self.version += 1
        own = self._own.get(namespace)
        requested, scheduled, running = self._made_own(namespace) if own is None else own
        if standing & RUNNING and _is_empty_without(running, removed.bare_requests):
            del self.running[namespace]
        if standing & SCHEDULED and _is_empty_without(scheduled, removed.requests):
            del self.scheduled[namespace]
        if standing & REQUESTED and _is_empty_without(requested, removed.requests):
            del self.requested[namespace], self._own[namespace]

    def _made_own(self, namespace: str) -> tuple[_Total, _Total, _Total]:
        """Replace the totals of a namespace by copies that may be written to."""
        own = self._own[namespace] = (
            _copied(self.requested, namespace),
            _copied(self.scheduled, namespace),
            _copied(self.running, namespace),
        )
        return own


class PodCounts(Generic[_Group, _Key]):
    """How many pods of each group have a key; mappings given out are never written to."""

    def __init__(self) -> None:
        self.counts: dict[_Group, dict[_Key, int]] = {}  # none is 0; until `unshare` is called
        self._own: set[_Group] = set()  # groups whose counts nobody else holds

    def unshare(self) -> None:
        self.counts = self.counts.copy()
        self._own.clear()

    def count(self, group: _Group, key: _Key, sign: int) -> None:
        """Count a pod, 1, or no longer, -1."""
        if group not in self._own:
            self._own.add(group)
            self.counts[group] = {**self.counts.get(group, {})}
        counts = self.counts[group]
        left = counts.get(key, 0) + sign
        if left:
            counts[key] = left
            return
        del counts[key]
        if not counts:
            del self.counts[group]
            self._own.discard(group)


def _copied(totals: _Totals, namespace: str) -> _Total:
    """Put a copy in the place of a total; return it, or an empty one that has no place yet."""
    total = totals.get(namespace)
    if total is None:
        return {}
    copy = totals[namespace] = total.copy()
    return copy


def _add(total: _Total, amounts: _Amounts, sign: int = 1) -> None:
    """Add amounts, or take them off; zeros are left out.

    Pods that come and go can name any number of resources: none may stay behind.
    """
    for name, amount in amounts:
        left = total.get(name, 0) + sign * amount
        if left:
            total[name] = left
        else:
            total.pop(name, None)


def _is_empty_without(total: _Total, amounts: _Amounts) -> bool:
    """Take a pod off; empty the total and return True if it was the last."""
    _add(total, amounts, -1)
    if PODS in total:
        return False
    total.clear()
    return True


_NAME_BYTES: Final = 64  # of a name in a set, which others hold too


class NamespaceSets(LruCache[frozenset[str]]):
    """The namespaces that selectors select, found again when labels of any namespace change."""

    def get(
        self, selector: LabelSelector, labels_of: Mapping[str, Mapping[str, str]], version: int
    ) -> frozenset[str]:
        entry = self._entries.get(selector)
        if entry is not None and entry.version == version:
            return entry.value
        names = frozenset([name for name, labels in labels_of.items() if selector.matches(labels)])
        self._put(selector, version, names, _NAME_BYTES * len(names))
        return names
