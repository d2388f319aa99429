"""Nodes as the table that expressions are planned on: `node` of `engine.policy.environment`.

INVARIANT: in a valid row a column has the value that `engine.policy.activation` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.cel.vector import (
    MOMENTS,
    Column,
    DictColumn,
    Elements,
    MissingPath,
    Path,
    Table,
    TextColumn,
    either,
    packed,
    unpacked,
)
from engine.model.pod import Pod
from engine.model.resource_names import CPU, MEMORY
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.policy.activation import NODE_FIELDS, node_value, taints_value
from engine.policy.condition_table import NO_TIME, condition_tables
from engine.policy.node_layout import (
    AMOUNT_FIELDS,
    CONDITIONS,
    CREATED,
    NAME,
    SCALAR_FIELDS,
    SUM_FIELDS,
    TEXT_FIELDS,
    domains_of,
    domains_of_field,
)
from engine.policy.owner_pods import OWNER_FIELDS, owner_pods, reads_owner_pods
from engine.policy.usage_span import usage_span
from engine.view import (
    BoolColumn,
    ClusterView,
    DictionaryColumn,
    Domain,
    Sum,
    label_column,
    pods_not_evictable,
    taint_column,
)
from engine.view.axis import PODS

_T = TypeVar("_T")
_Scalar = TypeVar("_Scalar", bound=np.generic)

_MILLI = 1000
_NODES = (Domain.NODES,)
_METRICS = (Domain.METRICS,)
_OF_PATHS = frozenset({"numbers", "presence", "dictionary", "texts"})
_MOST_CODES = 64  # that are used even for a small cluster


class NodeTable:
    """The nodes of a view at a moment; rows that are not nodes may hold anything."""

    def __init__(self, view: ClusterView, now: Micros, pod: Pod | None = None) -> None:
        """Take the view, the moment to judge the age of reports at, and the pod.

        Without one, the columns that differ by the pod are as for one without an owner.
        """
        self._view = view
        self._now = now
        self._pod = pod
        self._span = usage_span(view, now)

    def __len__(self) -> int:
        return len(self._view)

    def numbers(self, path: Path) -> Column:
        """Return a number or bool of each node, at fault where it has none."""
        return self._cached(("numbers", path), lambda: self._numbers(path))

    def presence(self, path: Path) -> Column:
        """Return whether the last key of a path is there, at fault where its map is not."""
        return self._cached(("presence", path), lambda: self._presence(path))

    def dictionary(self, path: Path) -> DictColumn | None:
        """Return the values of a path by code; None for a map, and if too many differ."""
        return self._cached(("dictionary", path), lambda: self._dictionary(path))

    def texts(self, path: Path) -> TextColumn | None:
        """Return a label, an annotation or the name of each node; None for any other field."""
        return self._cached(("texts", path), lambda: self._text_column(path))

    def row(self, number: int, paths: Sequence[Path]) -> Mapping[str, object]:
        """Return the node of a row with the fields that `paths` name."""
        return next(self.rows_at([number], paths))

    def rows_at(
        self, numbers: Iterable[int], paths: Sequence[Path]
    ) -> Iterator[Mapping[str, object]]:
        """Return the nodes of some rows with the fields that `paths` name."""
        fields = {path[1] for path in paths if len(path) > 1}
        whole = any(len(path) == 1 for path in paths)
        names = NODE_FIELDS if whole else sorted(fields & NODE_FIELDS.keys())
        view, now = self._view, self._now
        for number in numbers:
            known = view.nodes[number] is not None
            yield {"node": node_value(names, view, number, now, self._pod) if known else {}}

    def elements(self, path: Path, variable: str) -> Iterable[Elements] | None:
        """Return the tables of conditions."""
        return condition_tables(self, self._view, variable) if path == CONDITIONS else None

    def remember(
        self,
        key: Hashable,
        paths: Sequence[Path],
        compute: Callable[[Table], Column],
        *,
        for_all_requests: bool,
    ) -> Column:
        """Return the column that `compute` gives, remembered by the view."""
        if reads_owner_pods(paths):
            return compute(self)

        def column() -> Column:
            return unpacked(
                self.remembered(
                    key,
                    domains_of(tuple(paths)),
                    lambda rows: packed(compute(rows)),
                    for_all_requests=for_all_requests,
                )
            )

        return self._cached(("unpacked", key), column) if for_all_requests else column()

    def remembered(
        self,
        key: Hashable,
        domains: tuple[Domain, ...],
        compute: Callable[[NodeTable], NDArray[_Scalar]],
        *,
        for_all_requests: bool,
    ) -> NDArray[_Scalar]:
        """Return the array that `compute` gives, remembered by the view; see `remember`.

        Args:
            key: as there.
            domains: those of the paths that it is made from.
            compute: row-wise.
            for_all_requests: as there.
        """
        now = self._now
        expired = self._span.key if Domain.METRICS in domains else b""
        remembered = self._view.node_column if for_all_requests else self._view.pod_column
        return remembered(
            ("expression", key, expired), domains, lambda part: compute(NodeTable(part, now))
        )

    def _cached(self, key: tuple[str, Any], make: Callable[[], _T]) -> _T:
        """Return the result of `make`, cached until the view or its span of time changes."""
        kind, path = key
        if kind in _OF_PATHS and path[1:2] and path[1] in OWNER_FIELDS:
            return make()
        columns = self._span.columns
        if key not in columns:
            columns[key] = make()
        found: _T = columns[key]
        return found

    # Columns.

    def _numbers(self, path: Path) -> Column:
        _, field, *rest = path
        if field == "podCount":
            return Column(self._view.sums[Sum.REQUESTS, PODS])
        if field == "podsNotEvictable":
            return Column(pods_not_evictable(self._view))
        if field in OWNER_FIELDS:
            return Column(owner_pods(field, self._pod, self._view))
        if field == CREATED:
            times = self._created()
            absent = times == NO_TIME
            return Column(times.view(MOMENTS), absent if absent.any() else None)
        if not rest:
            return Column(self._flags(field))
        values, absent = self._amounts(field, rest[0])
        return Column(values, either(self._without_usage(field), absent))

    def _presence(self, path: Path) -> Column:
        _, field, *rest = path
        if field == CREATED:
            return Column(self._created() != NO_TIME)
        if not rest:
            absent = self._without_usage(field)
            return Column(np.array(True)) if absent is None else Column(~absent)  # noqa: FBT003
        if field in AMOUNT_FIELDS:
            _, absent = self._amounts(field, rest[0])
            present = np.array(True) if absent is None else ~absent  # noqa: FBT003 (numpy has it so)
            return Column(present, self._without_usage(field))
        return Column(self._texts(field, rest[0]).present)

    def _dictionary(self, path: Path) -> DictColumn | None:
        _, field, key = (*path, "", "")[:3]
        if field == "taints":
            taints = taint_column(self._view)
            return DictColumn(taints.codes, [taints_value(value or ()) for value in taints.values])
        most = max(_MOST_CODES, len(self) // 4)
        if field in TEXT_FIELDS and key:
            texts = self._texts(field, key)
            return DictColumn(texts.codes, texts.values) if len(texts.values) <= most else None
        if field == CREATED:
            return None
        if field in SCALAR_FIELDS or (field in AMOUNT_FIELDS and key):
            values, codes = np.unique(self.numbers(path).values, return_inverse=True)
            if len(values) < most:
                return self._coded_numbers(path, values.tolist(), codes.astype(np.int32))
        return None

    def _coded_numbers(
        self, path: Path, values: list[object], codes: NDArray[np.int32]
    ) -> DictColumn:
        """Return numbers by code, given values and their positions among them."""
        codes = codes + np.int32(1)
        present = self.presence(path)
        codes[~np.broadcast_to(present.values, len(self))] = 0
        if present.faults is not None:
            codes[present.faults] = len(values) + 1
        return DictColumn(codes, [None, *values, MissingPath(0)])

    def _amounts(self, field: str, name: str) -> tuple[NDArray[np.float64], BoolColumn | None]:
        """Return an amount of each node as expressions see it, and where it is absent, if so."""
        if field in SUM_FIELDS:
            amounts = self._view.amount(self._view.sums[SUM_FIELDS[field]], name)
            if name in (CPU, MEMORY):
                return _in_units(amounts, name), None
            return _in_units(amounts, name), (amounts == 0) & ~self._offers(name)

        def compute(part: ClusterView) -> NDArray[np.float64]:
            listed = _usages(part) if field == "usage" else _allocatables(part)
            found = [amounts.get(name) for amounts in listed]
            return np.stack(
                [
                    _in_units(np.array([amount or 0 for amount in found], np.float64), name),
                    np.array([amount is None for amount in found], np.float64),
                ]
            )

        def make(view: ClusterView) -> tuple[NDArray[np.float64], BoolColumn | None]:
            values, absent = view.node_column(key, domains, compute)
            return values, absent != 0 if absent.any() else None

        key, domains = ("node", field, name), domains_of_field(field)
        return self._view.node_aggregate(key, domains, make)

    def _offers(self, name: str) -> BoolColumn:
        """Return which nodes list a resource as allocatable."""
        return self._view.node_column(
            ("node", "offers", name),
            _NODES,
            lambda part: _bools(name in amounts for amounts in _allocatables(part)),
        )

    def _created(self) -> NDArray[np.int64]:
        """Return the creation time of each node, microseconds since the epoch."""
        return self._view.node_column(
            ("node", CREATED),
            _NODES,
            lambda part: np.array(
                [
                    NO_TIME if node is None or node.created is None else node.created
                    for node in part.nodes
                ],
                np.int64,
            ),
        )

    def _flags(self, field: str) -> BoolColumn:
        if field == "unschedulable":
            return self._view.unschedulable
        return self._view.node_column(
            ("node", field),
            _NODES,
            lambda part: _bools(node is not None and node.ready for node in part.nodes),
        )

    def _text_column(self, path: Path) -> TextColumn | None:
        _, field, key = (*path, "", "")[:3]
        if field == NAME:
            rows = self._view.rows
            codes = np.arange(1, len(self) + 1, dtype=np.int32)
            return TextColumn(
                codes,
                (None, *self._view.names),
                lambda name: rows[name] + 1 if name in rows else None,
                None,
            )
        if field not in TEXT_FIELDS or not key:
            return None
        texts = self._texts(field, key)
        absent = ~texts.present
        return TextColumn(
            texts.codes, texts.values, texts.book.find, absent if absent.any() else None
        )

    def _texts(self, field: str, key: str) -> DictionaryColumn[str]:
        if field == "labels":
            return label_column(self._view, key)
        return self._view.dictionary_column(
            ("annotation", key),
            _NODES,
            lambda part: (
                None if node is None else node.annotations.get(key) for node in part.nodes
            ),
        )

    def _without_usage(self, field: str) -> BoolColumn | None:
        """Return where usage is unknown; None if nowhere, or for another field."""
        if field != "usage":
            return None
        measured = self._view.node_column(
            ("node", field),
            _METRICS,
            lambda part: _bools(
                report is not None and report.usage is not None for report in part.usages
            ),
        )
        unknown = ~measured
        unknown[self._span.silent] = True
        return unknown if unknown.any() else None


def _allocatables(view: ClusterView) -> Iterator[Amounts]:
    return ({} if node is None else node.allocatable for node in view.nodes)


def _usages(view: ClusterView) -> Iterator[Amounts]:
    return ({} if report is None else report.usage or {} for report in view.usages)


def _in_units(amounts: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Return amounts as expressions see them: cpu in cores, all else in whole units."""
    units = amounts.astype(np.float64)
    if name == CPU:
        units /= _MILLI  # in two steps: dividing integers by a number takes twice as long
    return units


def _bools(values: Iterable[bool]) -> BoolColumn:
    return np.fromiter(values, np.bool_)
