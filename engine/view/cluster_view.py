"""One moment of the cluster, in columns, and the memo that views of it share."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import itemgetter
from typing import Any, Final, Self, TypeVar, cast
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from engine.model.caches import Entry, LruCache, is_long
from engine.model.kinds import AuxObject, Domain
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.node import Node
from engine.model.scheduler_plugins import Workload
from engine.model.usage import NodeUsage
from engine.view.axis import BoolColumn, IntColumn, ResourceAxis
from engine.view.dictionary import CodeBook, DictionaryColumn, ImageIndex
from engine.view.namespaces import NamespaceFacts, NamespaceSets
from engine.view.pod_accounting import PodsOnNodes, PodSumProfile, PodTransitions
from engine.view.trait_book import PodQuery, TraitBook

NODE_COLUMNS: Final = 256  # one per label key, annotation or node-only expression of policies
POD_COLUMNS: Final = 256  # one per rule and pod template
POD_COLUMN_BYTES: Final = 4 * 2**20  # fifty of those of a number on 5,000 nodes
NAMESPACE_SETS: Final = 256
NAMESPACE_SET_BYTES: Final = 4 * 2**20
_REDO_ALL_ABOVE: Final = 4  # past a quarter of the rows, one pass over all is cheaper than picking
_SPARE_VALUES: Final = 64  # values of the past that the book of a small cluster may hold

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
            `engine.view.columns`.
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


class RowWise:
    """A result for all nodes together that has some rows of it: a dataclass of arrays of nodes.

    Nodes are on the last axis; a field that is neither an array nor `RowWise` is kept as it is.
    """

    __slots__ = ()

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Return what the result is for some rows."""
        taken: dict[str, object] = {}
        for each in fields(cast("Any", self)):
            value = getattr(self, each.name)
            if isinstance(value, RowWise):
                taken[each.name] = value.take(rows)
            elif isinstance(value, np.ndarray):
                taken[each.name] = value.take(rows, axis=-1)
        return cast("Self", replace(cast("Any", self), **taken))


class Memo:
    """Results that views of one cluster share; see the methods of `ClusterView` of these names.

    Every result is a pure function of its key and of the rows it reads. An old view, older than the
    entry it asks for, is answered by computing again, and nothing is remembered.

    A memo may lie over that of another view, of the same nodes with other pods. What no pod changes
    is as there; columns that pods change begin as there.

    Attributes:
        node_columns: columns that depend on nodes alone.
        pod_columns: columns that also depend on a pod.
        node_aggregates: results for all nodes together.
        dictionaries: dictionary columns.
        images: rows by image name.
        namespace_sets: names of namespaces, by the selector of their labels.

    Args:
        base: the view below. INVARIANT: nothing but pods ever differs from it.
        rows: those of the base that the views of this memo have; None for all.
    """

    def __init__(
        self, base: ClusterView | None = None, rows: NDArray[np.intp] | None = None
    ) -> None:
        if base is None:
            self.node_columns = ColumnCache(NODE_COLUMNS)
            self.pod_columns = ColumnCache(POD_COLUMNS, POD_COLUMN_BYTES)
            self.node_aggregates = AggregateCache(NODE_COLUMNS, POD_COLUMN_BYTES)
            self.dictionaries = DictionaryCache(NODE_COLUMNS)
            self.images = ImageIndex()
            self.namespace_sets = NamespaceSets(NAMESPACE_SETS, NAMESPACE_SET_BYTES)
            return
        below = _Below(base, rows)
        self.node_columns = ColumnCache(
            NODE_COLUMNS, POD_COLUMN_BYTES, below=below.node_column, since=base.version
        )
        self.pod_columns = ColumnCache(
            POD_COLUMNS, POD_COLUMN_BYTES, below=below.pod_column, since=base.version
        )
        self.node_aggregates = AggregateCache(
            NODE_COLUMNS, POD_COLUMN_BYTES, below=below.node_aggregate
        )
        self.dictionaries = DictionaryCache(NODE_COLUMNS, below=below.dictionary_column)
        self.images = base.memo.images
        self.namespace_sets = base.memo.namespace_sets


class _Below:
    """The results of a base that a memo over it begins with; None for those to compute."""

    def __init__(self, base: ClusterView, rows: NDArray[np.intp] | None) -> None:
        self._base = base
        self._rows = rows

    def node_column(self, *args: Any) -> NDArray[Any] | None:  # noqa: ANN401 (see `ClusterView`)
        return self._column(self._base.node_column, *args)

    def pod_column(self, *args: Any) -> NDArray[Any] | None:  # noqa: ANN401
        return self._column(self._base.pod_column, *args)

    def _column(
        self,
        column: Callable[..., NDArray[Any]],
        key: Hashable,
        domains: Sequence[Domain],
        compute: Callable[[ClusterView], NDArray[Any]],
    ) -> NDArray[Any] | None:
        # The whole that the base is a part of may be at a later version.
        is_part = self._rows is not None or self._base.parent is not None
        if Domain.PODS in domains and is_part:
            return None
        values = column(key, domains, compute)
        return values if self._rows is None else values[..., self._rows]

    def node_aggregate(
        self, key: Hashable, domains: Sequence[Domain], make: Callable[[ClusterView], Any]
    ) -> Any:  # noqa: ANN401 (whatever `make` gives)
        if Domain.PODS in domains or self._base.parent is not None:
            return None
        made = self._base.node_aggregate(key, domains, make)
        if self._rows is None:
            return made
        return made.take(self._rows) if isinstance(made, RowWise) else None

    def dictionary_column(
        self,
        key: Hashable,
        domains: Sequence[Domain],
        values_of: Callable[[ClusterView], Iterable[Any]],
    ) -> DictionaryColumn[Any] | None:
        if Domain.PODS in domains or self._base.parent is not None:
            return None
        column = self._base.dictionary_column(key, domains, values_of)
        return column if self._rows is None else column.take(self._rows)


def _nothing(*_: object) -> None:
    """Return None: of a memo that lies over no other."""


class ColumnCache(LruCache[NDArray[Any]]):
    """Row-wise columns; only rows that changed are computed again, in a new array."""

    def __init__(
        self,
        most: int,
        most_bytes: int = sys.maxsize,
        *,
        below: Callable[..., NDArray[Any] | None] = _nothing,
        since: int = 0,
    ) -> None:
        super().__init__(most, most_bytes)
        self._below = below
        self._since = since

    def get(
        self,
        key: Hashable,
        view: ClusterView,
        domains: Sequence[Domain],
        compute: Callable[[ClusterView], NDArray[_T]],
    ) -> NDArray[_T]:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        else:
            values, version = self._below(key, domains, compute), self._since
            if values is None:
                values, version = _frozen(compute(view)), view.version
            entry = self._put(key, version, values, values.nbytes)
        if entry.version > view.version:
            return compute(view)
        if entry.version < view.version:
            for domain in domains:
                if entry.version < view.latest[domain]:
                    values = _frozen(_renewed(entry, view, domains, compute))
                    # Put again: columns that it is made of may have taken its place.
                    self._put(key, view.version, values, values.nbytes)
                    return values
            entry.version = view.version
        return entry.value


class AggregateCache(LruCache[Any]):
    """Results for all nodes together, made again when any row changed in their domains."""

    def __init__(
        self, most: int, most_bytes: int = sys.maxsize, *, below: Callable[..., Any] = _nothing
    ) -> None:
        super().__init__(most, most_bytes)
        self._below = below

    def get(
        self,
        key: Hashable,
        view: ClusterView,
        domains: Sequence[Domain],
        make: Callable[[ClusterView], _Made],
    ) -> _Made:
        entry = self._entries.get(key)
        if entry is not None:
            version, latest = entry.version, view.latest
            if version > view.version:
                return make(view)
            for domain in domains:
                if latest[domain] > version:
                    break
            else:
                entry.version = view.version
                self._entries.move_to_end(key)
                known: _Made = entry.value
                return known
        made: _Made | None = self._below(key, domains, make)
        if made is None:
            made = make(view)
        size = made.nbytes if isinstance(made, np.ndarray) else 0
        self._put(key, view.version, made, size)
        return made


class DictionaryCache:
    """Dictionary columns; only rows that changed are read again.

    A book with many values that are gone from the cluster is replaced by a new one.
    """

    def __init__(
        self, most: int, *, below: Callable[..., DictionaryColumn[Any] | None] = _nothing
    ) -> None:
        self._coders: OrderedDict[Hashable, _Coder] = OrderedDict()
        self._most = most
        self._below = below
        self._begun: dict[Hashable, DictionaryColumn[Any]] = {}

    def get(
        self,
        key: Hashable,
        view: ClusterView,
        domains: Sequence[Domain],
        values_of: Callable[[ClusterView], Iterable[Any]],
    ) -> DictionaryColumn[Any]:
        column = self._begun.get(key) or self._below(key, domains, values_of)
        if column is not None:
            if len(self._begun) < self._most:
                self._begun[key] = column
            return column
        coder = self._coders.get(key)
        if coder is None or len(coder.book) > 2 * len(view) + _SPARE_VALUES:
            coder = _Coder()
            if not is_long(key):
                self._coders[key] = coder
        if key in self._coders:
            self._coders.move_to_end(key)
        if len(self._coders) > self._most:
            self._coders.popitem(last=False)
        book = coder.book
        codes = coder.codes.get(None, view, domains, lambda rows: book.encode(values_of(rows)))
        if coder.column is None or coder.column.codes is not codes:
            coder.column = DictionaryColumn(codes, book)
        return coder.column


@dataclass(slots=True)
class _Coder:
    """A book and the newest column written with it."""

    book: CodeBook[Any] = field(default_factory=CodeBook)
    codes: ColumnCache = field(default_factory=lambda: ColumnCache(1))
    column: DictionaryColumn[Any] | None = None


def _frozen(values: NDArray[_T]) -> NDArray[_T]:
    values.flags.writeable = False
    return values


def _renewed(
    entry: Entry[NDArray[Any]],
    view: ClusterView,
    domains: Sequence[Domain],
    compute: Callable[[ClusterView], NDArray[_T]],
) -> NDArray[_T]:
    """Return the column of `entry` brought up to `view`."""
    # Without those that did not change, more columns share the rows and the view of them.
    domains = [domain for domain in domains if view.latest[domain] > entry.version]
    rows = view.changed_since(entry.version, domains)
    if rows.size * _REDO_ALL_ABOVE > len(view):
        return compute(view)
    part = compute(view.part_changed_since(entry.version, domains))
    if len(view) == entry.value.shape[-1] and np.array_equal(entry.value[..., rows], part):
        return entry.value
    # Of two dtypes that hold all of both: some columns are bools where these suffice.
    dtype = np.promote_types(part.dtype, entry.value.dtype)
    values: NDArray[_T] = np.zeros((*part.shape[:-1], len(view)), dtype)
    known = min(len(view), entry.value.shape[-1])
    values[..., :known] = entry.value[..., :known]
    values[..., rows] = part
    return values
