"""One moment of the cluster, in columns: the input of every rule."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeVar, cast
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from engine.model.aux_object import AuxObject
from engine.model.domain import Domain
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.network import Workload
from engine.model.node import Node
from engine.model.usage import NodeUsage
from engine.view.axis import BoolColumn, IntColumn, ResourceAxis
from engine.view.dictionary import DictionaryColumn
from engine.view.memo import Memo
from engine.view.namespaces import NamespaceFacts
from engine.view.pod_counts import PodsOnNodes, PodTransitions
from engine.view.pod_sums import PodSumProfile
from engine.view.trait_book import PodQuery, TraitBook

_T = TypeVar("_T", bound=np.generic)
_Made = TypeVar("_Made")
_Value = TypeVar("_Value", bound=Hashable)
_Aux = TypeVar("_Aux", bound=AuxObject)


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class ClusterView:
    """One moment of the cluster: row i is the same node in every column; nothing here changes.

    Rows without a node (freed, or known only from a pod or a report) have `valid` False and take
    no part in any decision; rules may compute anything for them. Pods that were advised to take a
    node but are not bound yet count there like those that are.

    Attributes:
        version: grows with every event.
        axis: the resource axis, n_resources long.
        names: node name per row, "" for a free row.
        nodes: node per row, None where `valid` is False.
        usages: latest usage report per row, None where there is none.
        traits: per row the numbers of the traits of its pods, by `trait_book`; see
            `engine.view.existing_pods`.
        trait_book: what rules for other pods read of the pods.
        valid: (n,).
        unschedulable: (n,), cordoned.
        allocatable: (n_resources, n), base units.
        sums: (len(Sum), n_resources, n), sums over the pods of each node, base units.
        assumed: (n,), number of pods of each node that are advised and not bound.
        metric_time: (n,), microseconds since the epoch; 0 where there is no report or no time.
        changed: (len(Domain), n), the version at which a row last changed, by domain.
        latest: the version at which any row last changed, by domain.
        pod_sums: per tracked profile, sums over the pods of each node, (profile.width, n).
        transitions: pods about to leave or to come, by the name of each node that has any.
        rows: row by node name.
        namespaces: labels, quotas, and requests of the pods of each namespace.
        kubernetes: the version by which the scheduler of the cluster counts.
        extras: objects that only some rules read, by their type and key; see `lookup`.
        exhausted_budgets: what PodDisruptionBudgets select that allow no disruption, by their
            `namespace/name`. INVARIANT: where these change, the rows of such pods change too.
        workloads: pods of AppGroups, by workload and node name.
        memo: results shared by all views of this cluster.
        parent: the view that this one has some rows of, and which; None for all rows.
        scratch: results that columns of this very view share with one another.
    """

    version: int
    axis: ResourceAxis
    names: tuple[str, ...]
    nodes: Sequence[Node | None]
    usages: Sequence[NodeUsage | None]
    traits: Sequence[bytes]
    trait_book: TraitBook
    valid: BoolColumn
    unschedulable: BoolColumn
    allocatable: IntColumn
    sums: IntColumn
    assumed: IntColumn
    metric_time: IntColumn
    changed: IntColumn
    latest: tuple[int, ...]
    pod_sums: Mapping[PodSumProfile, IntColumn]
    transitions: Mapping[str, PodTransitions]
    rows: Mapping[str, int]
    namespaces: NamespaceFacts
    kubernetes: KubernetesVersion
    extras: Mapping[tuple[type[AuxObject], str], AuxObject]
    exhausted_budgets: Mapping[str, PodQuery]
    workloads: Mapping[Workload, PodsOnNodes]
    memo: Memo = field(repr=False)
    parent: tuple[ClusterView, NDArray[np.intp]] | None = None
    scratch: dict[Hashable, object] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def whole(self) -> ClusterView:
        """The view of all nodes that this one has some rows of; itself if it has them all."""
        return self if self.parent is None else self.parent[0].whole

    def lookup(self, kind: type[_Aux], key: str) -> _Aux | None:
        """Return the object of a type and key, None where there is none."""
        return cast("_Aux | None", self.extras.get((kind, key)))

    def all_of(self, kind: type[_Aux]) -> list[_Aux]:
        """Return the objects of a type, in any order; looks at those of every type."""
        return [extra for extra in self.extras.values() if isinstance(extra, kind)]

    def amount(self, matrix: IntColumn, resource: str) -> IntColumn:
        """Return the column of `resource` in an (n_resources, n) matrix; zeros if never seen."""
        at = self.axis.find(resource)
        return np.zeros(len(self), np.int64) if at is None else matrix[at]

    def amounts(self, matrix: IntColumn, resources: tuple[str, ...]) -> IntColumn:
        """Return the columns of several resources, (len(resources), n); see `amount`."""
        span = self.axis.span(resources)
        if span is not None:
            return matrix[span]
        picked = [self.amount(matrix, resource) for resource in resources]
        return np.array(picked, np.int64).reshape(len(resources), len(self))

    def changed_since(self, version: int, domains: Sequence[Domain]) -> NDArray[np.intp]:
        """Return the rows that changed after `version` in any of `domains`."""
        key = ("rows", version, tuple(domains))
        rows = self.scratch.get(key)
        if rows is None:
            changed = self.changed[domains[0]] > version
            for domain in domains[1:]:
                changed = changed | (self.changed[domain] > version)
            rows = self.scratch[key] = np.flatnonzero(changed)
        return cast("NDArray[np.intp]", rows)

    def part_changed_since(self, version: int, domains: Sequence[Domain]) -> ClusterView:
        """Return the view of the rows of `changed_since`, made once per view."""
        key = ("part", version, tuple(domains))
        part = self.scratch.get(key)
        if part is None:
            rows = self.changed_since(version, domains)
            # Weak, for the view holds the part: in a cycle neither would die in time, and the state
            # would copy its columns before every write.
            part = self.scratch[key] = replace(self.take(rows), parent=(proxy(self), rows))
        return cast("ClusterView", part)

    def node_column(
        self,
        key: Hashable,
        domains: Sequence[Domain],
        compute: Callable[[ClusterView], NDArray[_T]],
    ) -> NDArray[_T]:
        """Return a column that depends on nothing but each row's own node, remembered.

        Only rows that changed in `domains` since the last call are computed again.

        Args:
            key: names the column; must differ wherever `compute` closes over something else.
            domains: all that the column is made from.
            compute: row-wise; gets a view of some rows, returns an array with those on its
                last axis.
        """
        if self.parent is not None:
            whole, rows = self.parent
            return whole.node_column(key, domains, compute).take(rows, axis=-1)
        return self.memo.node_columns.get(key, self, domains, compute)

    def dictionary_column(
        self,
        key: Hashable,
        domains: Sequence[Domain],
        values_of: Callable[[ClusterView], Iterable[_Value | None]],
    ) -> DictionaryColumn[_Value]:
        """Return a column of values by number, remembered as in `node_column`.

        Args:
            key: names the column; must differ wherever `values_of` closes over something else.
            domains: all that the values are made from.
            values_of: row-wise; gives the value of each row of a view, None for no value.
        """
        if self.parent is not None:
            whole, rows = self.parent
            return whole.dictionary_column(key, domains, values_of).take(rows)
        return self.memo.dictionaries.get(key, self, domains, values_of)

    def pod_column(
        self,
        key: Hashable,
        domains: Sequence[Domain],
        compute: Callable[[ClusterView], NDArray[_T]],
    ) -> NDArray[_T]:
        """Return a column that also depends on a pod, remembered as in `node_column`.

        `key` must tell apart everything of the pod that `compute` reads, and nothing more, so that
        pods of one template share it.
        """
        if self.parent is not None:
            return compute(self)
        return self.memo.pod_columns.get(key, self, domains, compute)

    def node_aggregate(
        self, key: Hashable, domains: Sequence[Domain], make: Callable[[ClusterView], _Made]
    ) -> _Made:
        """Return a result for all nodes together, remembered until one changes in `domains`.

        For what is quick to make of remembered columns, but not as quick as to look it up: that
        none of them is at fault, for one.

        Args:
            key: names it; must differ wherever `make` closes over something else.
            domains: all that it is made from.
            make: gets a view; what it gives may be `RowWise`. INVARIANT: its result holds neither
                the view nor columns of it, which are overwritten once nobody holds the view.
        """
        if self.parent is not None:
            return make(self)
        return self.memo.node_aggregates.get(key, self, domains, make)

    def take(self, rows: NDArray[np.intp]) -> ClusterView:
        """Return the view of some rows alone, in the order given."""
        at = rows.tolist()
        picked = itemgetter(*at) if len(at) > 1 else lambda values: tuple([values[i] for i in at])
        names = picked(self.names)
        # Of several columns together, which are parts of larger ones, `take` would copy all.
        return replace(
            self,
            names=names,
            nodes=picked(self.nodes),
            usages=picked(self.usages),
            traits=picked(self.traits),
            valid=self.valid.take(rows),
            unschedulable=self.unschedulable.take(rows),
            allocatable=self.allocatable[:, rows],
            sums=self.sums[:, :, rows],
            assumed=self.assumed.take(rows),
            metric_time=self.metric_time.take(rows),
            changed=self.changed[:, rows],
            pod_sums={profile: sums[:, rows] for profile, sums in self.pod_sums.items()},
            rows=dict(zip(names, range(len(names)), strict=True)),
            parent=(self, rows),
            scratch={},
        )
