"""Results remembered between decisions on one cluster; bounded, and without effect on any answer.

Every result is a pure function of its key and of the rows it reads. An old view, older than the
entry it asks for, is answered by computing again, and nothing is remembered.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain
from engine.model.selectors import LabelSelector
from engine.view.dictionary import CodeBook, DictionaryColumn
from engine.view.image_index import ImageIndex

FORGOTTEN_AFTER: Final = 50_000
"""Events after which an unused entry makes room: policies that are gone leave columns behind."""

NODE_COLUMNS = 256  # one per label key, annotation or node-only expression the policies read
POD_COLUMNS = 256  # one per rule and pod template
NAMESPACE_SETS = 256
NAMESPACE_SET_BYTES = 4 * 2**20
POD_COLUMN_BYTES = 4 * 2**20  # fifty of those of a number on 5,000 nodes
_REDO_ALL_ABOVE = 4  # past a quarter of the rows, one pass over all is cheaper than picking
_SPARE_VALUES = 64  # values of the past that the book of a small cluster may hold
_LONGEST_KEY = 4096  # bytes, about; parts of a pod are in keys, and bounded by nothing else
_NAME_BYTES = 64  # of a name in a set, which others hold too
_PART = 32  # bytes that any part of a key counts for

_Value = TypeVar("_Value")
_Item = TypeVar("_Item", bound=np.generic)


class VersionedRows(Protocol):
    """The part of a `ClusterView` that a memo reads; see there."""

    @property
    def version(self) -> int: ...  # noqa: D102 (see the class)
    @property
    def latest(self) -> tuple[int, ...]: ...  # noqa: D102
    def __len__(self) -> int: ...
    def changed_since(self, version: int, domains: Sequence[Domain]) -> NDArray[np.intp]: ...  # noqa: D102
    def part_changed_since(self, version: int, domains: Sequence[Domain]) -> Self: ...  # noqa: D102


_Rows = TypeVar("_Rows", bound=VersionedRows)


@dataclass(slots=True)
class _Entry(Generic[_Value]):
    """A remembered result.

    Attributes:
        version: the newest version of a view that it was right for and that read it.
        value: the result.
        size: the bytes it counts for.
    """

    version: int
    value: _Value
    size: int


class LruCache(Generic[_Value]):
    """Entries by key, the least recently used first.

    An entry with a very long key is not kept.

    Args:
        most: entries, however small.
        most_bytes: of all of them together, as of the last time that one was added.
    """

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        self._entries: OrderedDict[Hashable, _Entry[_Value]] = OrderedDict()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def _put(self, key: Hashable, version: int, value: _Value, size: int) -> None:
        """Add or replace an entry, and make room for it."""
        old = self._entries.get(key)
        if old is None and is_long(key):
            return
        self._bytes += size - (old.size if old else 0)
        self._entries[key] = _Entry(version, value, size)
        self._entries.move_to_end(key)
        self._make_room(version - FORGOTTEN_AFTER)

    def _make_room(self, since: int) -> None:
        """Forget entries that are unused since a version, and those beyond the bounds."""
        while self._entries:
            key, eldest = next(iter(self._entries.items()))
            too_much = len(self._entries) > self._most or self._bytes > self._most_bytes
            if not too_much and eldest.version >= since:
                return
            del self._entries[key]
            self._bytes -= eldest.size


class ColumnCache(LruCache[NDArray[Any]]):
    """Row-wise columns; only rows that changed are computed again, in a new array."""

    def get(
        self,
        key: Hashable,
        view: _Rows,
        domains: Sequence[Domain],
        compute: Callable[[_Rows], NDArray[_Item]],
    ) -> NDArray[_Item]:
        """Return the column `key` for `view`; see `ClusterView.node_column` for the arguments."""
        entry = self._entries.get(key)
        if entry is None:
            values = _frozen(compute(view))
            self._put(key, view.version, values, values.nbytes)
            return values
        if entry.version > view.version:
            return compute(view)
        if entry.version < view.version:
            for domain in domains:
                if entry.version < view.latest[domain]:
                    values = _frozen(_renewed(entry, view, domains, compute))
                    # Put anew: columns that it is made of may have taken its place meanwhile.
                    self._put(key, view.version, values, values.nbytes)
                    return values
            entry.version = view.version
        self._entries.move_to_end(key)
        return entry.value


class RowWise(ABC):
    """A result for all nodes together that is made of columns alone, and so has some rows of it."""

    __slots__ = ()

    @abstractmethod
    def take(self, rows: NDArray[np.intp]) -> Self:
        """Return what the result is for some rows."""


class AggregateCache(LruCache[Any]):
    """Results for all nodes together, made again when any row changed in their domains."""

    def get(
        self,
        key: Hashable,
        view: _Rows,
        domains: Sequence[Domain],
        make: Callable[[_Rows], _Value],
    ) -> _Value:
        """Return the result of `make` for `view`; see `ClusterView.node_aggregate`."""
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
                known: _Value = entry.value
                return known
        made = make(view)
        size = made.nbytes if isinstance(made, np.ndarray) else 0
        self._put(key, view.version, made, size)
        return made


class DictionaryCache:
    """Dictionary columns; only rows that changed are read again.

    A book with many values that are gone from the cluster is replaced by a new one.
    """

    def __init__(self, most: int) -> None:
        self._coders: OrderedDict[Hashable, _Coder] = OrderedDict()
        self._most = most

    def get(
        self,
        key: Hashable,
        view: _Rows,
        domains: Sequence[Domain],
        values_of: Callable[[_Rows], Iterable[Any]],
    ) -> DictionaryColumn[Any]:
        """Return the column `key` for `view`; see `ClusterView.dictionary_column`."""
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


class NamespaceSets(LruCache[frozenset[str]]):
    """The namespaces that selectors select, found again when labels of any namespace change."""

    def get(
        self, selector: LabelSelector, labels_of: Mapping[str, Mapping[str, str]], version: int
    ) -> frozenset[str]:
        """Return the names of the namespaces that a selector selects.

        Args:
            selector: of their labels.
            labels_of: the labels of each.
            version: of these.
        """
        entry = self._entries.get(selector)
        if entry is not None and entry.version == version:
            return entry.value
        names = frozenset([name for name, labels in labels_of.items() if selector.matches(labels)])
        self._put(selector, version, names, _NAME_BYTES * len(names))
        return names


class Memo:
    """All that views of one cluster share; see the methods of `ClusterView` of these names.

    Attributes:
        node_columns: columns that depend on nodes alone.
        pod_columns: columns that also depend on a pod.
        node_aggregates: results for all nodes together.
        dictionaries: dictionary columns.
        images: rows by image name.
        namespace_sets: names of namespaces, by the selector of their labels.
    """

    def __init__(self) -> None:
        self.node_columns = ColumnCache(NODE_COLUMNS)
        self.pod_columns = ColumnCache(POD_COLUMNS, POD_COLUMN_BYTES)
        self.node_aggregates = AggregateCache(NODE_COLUMNS, POD_COLUMN_BYTES)
        self.dictionaries = DictionaryCache(NODE_COLUMNS)
        self.images = ImageIndex()
        self.namespace_sets = NamespaceSets(NAMESPACE_SETS, NAMESPACE_SET_BYTES)


def is_long(key: Hashable) -> bool:
    """Return whether a key takes too much memory to be kept; stops counting once it does."""
    left, parts = _LONGEST_KEY, [key]
    while parts and left > 0:
        part = parts.pop()
        left -= _PART
        if isinstance(part, str | bytes):
            left -= len(part)
        elif isinstance(part, msgspec.Struct):
            parts.extend(msgspec.structs.astuple(part))
        elif isinstance(part, tuple | frozenset):
            left -= _PART * len(part)
            if left > 0:
                parts.extend(part)
    return left <= 0


def _frozen(values: NDArray[_Item]) -> NDArray[_Item]:
    values.flags.writeable = False
    return values


def _renewed(
    entry: _Entry[NDArray[Any]],
    view: _Rows,
    domains: Sequence[Domain],
    compute: Callable[[_Rows], NDArray[_Item]],
) -> NDArray[_Item]:
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
    values: NDArray[_Item] = np.zeros((*part.shape[:-1], len(view)), dtype)
    known = min(len(view), entry.value.shape[-1])
    values[..., :known] = entry.value[..., :known]
    values[..., rows] = part
    return values
