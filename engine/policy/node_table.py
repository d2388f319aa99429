"""Nodes as the table that expressions are planned on: `node` of `engine.policy.environment`.

INVARIANT: in a valid row a column has the value that `engine.policy.environment` gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.cel.values import BOOL, DOUBLE, INT, MAP, STRING, TIMESTAMP, CelType
from engine.cel.vector import (
    MOMENTS,
    Column,
    DictColumn,
    Elements,
    Layout,
    Leaf,
    MissingPath,
    Path,
    Table,
    TextColumn,
    either,
    packed,
    unpacked,
)
from engine.model.node import NodeCondition
from engine.model.pod import Pod
from engine.model.quantity import CPU, MEMORY
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.model.well_known import HOSTNAME_LABEL
from engine.policy.environment import (
    NODE_FIELDS,
    OWNER_FIELDS,
    USAGE_LIFETIME,
    condition_value,
    node_value,
    owner_pods,
    reads_owner_pods,
    taints_value,
)
from engine.view import (
    LOAD_DOMAINS,
    MISSING,
    BoolColumn,
    ClusterView,
    DictionaryColumn,
    Domain,
    Sum,
    annotation_column,
    label_column,
    pods_not_evictable,
    stale_reports,
    taint_column,
)
from engine.view.axis import PODS


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """A span of time in which the same reports of a view are expired."""

    silent: NDArray[np.intp]  # the rows whose last report, if any, is expired
    # those of the rows that have a report, as a part of cache keys. INVARIANT: between two views, a
    # row that is in neither or in both, and whose report did not change, has the same usage in both
    key: bytes
    # the columns computed for the view in this span
    columns: dict[Hashable, Any] = field(default_factory=dict)


def usage_span(view: ClusterView, now: Micros) -> UsageSpan:
    """Return the span around a moment; a view remembers the latest."""
    latest: tuple[Micros, UsageSpan] | None = view.scratch.get(UsageSpan)  # type: ignore[assignment]
    if latest is not None and latest[0] == now:
        return latest[1]
    silent = stale_reports(view).overdue(now - USAGE_LIFETIME)
    if latest is not None and latest[1].key == silent.timed:
        span = latest[1]
    else:
        span = UsageSpan(silent.rows, silent.timed)
    view.scratch[UsageSpan] = now, span
    return span


# Conditions of nodes as tables: one condition of each node at a time.
#
# A slot is a type of condition, and its number among the conditions of that type of a node; by
# convention a node has one of each type. So a table of a slot has few different values, and
# `node.conditions.exists(c, c.type == 'Ready' && ..)` is computed by columns.


_NODES: Final = (Domain.NODES,)
_MOST_SLOTS: Final = 64  # of a cluster; with more, conditions are looked at node by node
_FEW, _MANY = 8, 1 << 20  # different values in a large cluster
_TEXTS: Final = ("type", "status", "reason")
_TIME: Final = "lastTransitionTime"

NO_TIME: Final = -(2**63)
"""Stands for no time in columns of microseconds; no timestamp has that value."""

_Slot = tuple[str, int]


class ConditionLayout:
    """The columns of a `ConditionTable`: those of nodes, and a condition as a variable."""

    def __init__(self, nodes: Layout, variable: str) -> None:
        self._nodes = nodes
        self._variable = variable

    @property
    def variables(self) -> frozenset[str]:
        return self._nodes.variables | {self._variable}

    def leaf(self, path: Path) -> Leaf:
        if path[0] != self._variable:
            return self._nodes.leaf(path)
        if len(path) == 1:
            return Leaf(path, MAP, _MANY)
        if path[1] == _TIME:
            return Leaf(path[:2], TIMESTAMP, _MANY)
        return Leaf(path[:2], None, _FEW)

    def elements(self, path: Path, variable: str) -> Layout | None:  # noqa: ARG002 (protocol)
        """Return None: a loop within a loop over conditions has no tables."""
        return None


class ConditionTable:
    """One condition of each node, and the node; rows without that condition may hold anything."""

    def __init__(self, nodes: Table, view: ClusterView, variable: str, slot: _Slot) -> None:
        self._nodes = nodes
        self._view = view
        self._variable = variable
        self._slot = slot

    def __len__(self) -> int:
        return len(self._nodes)

    def numbers(self, path: Path) -> Column:
        if path[0] != self._variable:
            return self._nodes.numbers(path)
        times = self._times()
        absent = times == NO_TIME
        return Column(times.view(MOMENTS), absent if absent.any() else None)

    def presence(self, path: Path) -> Column:
        if path[0] != self._variable:
            return self._nodes.presence(path)
        if path[1] == _TIME:
            return Column(self._times() != NO_TIME)
        return Column(np.array(path[1] in _TEXTS))

    def dictionary(self, path: Path) -> DictColumn | None:
        if path[0] != self._variable:
            return self._nodes.dictionary(path)
        if len(path) == 1 or path[1] == _TIME:
            return None
        if path[1] not in _TEXTS:
            return DictColumn(np.zeros(len(self), np.int32), [None])
        conditions, field = self._conditions(), _TEXTS.index(path[1])
        return DictColumn(conditions.codes, [value and value[field] for value in conditions.values])

    def texts(self, path: Path) -> TextColumn | None:
        """Return texts of the node; those of a condition are few, and read by code."""
        return None if path[0] == self._variable else self._nodes.texts(path)

    def rows_at(
        self, numbers: Iterable[int], paths: Sequence[Path]
    ) -> Iterator[Mapping[str, object]]:
        numbers = list(numbers)
        of_nodes = [path for path in paths if path[0] != self._variable]
        for number, row in zip(numbers, self._nodes.rows_at(numbers, of_nodes), strict=True):
            node = self._view.nodes[number]
            condition = None if node is None else _in_slot(node.conditions, self._slot)
            value = {} if condition is None else condition_value(condition)
            yield {**row, self._variable: value}

    def elements(self, path: Path, variable: str) -> Iterable[Elements] | None:  # noqa: ARG002 (protocol)
        return None

    def remember(
        self,
        key: Hashable,  # noqa: ARG002 (protocol)
        paths: Sequence[Path],  # noqa: ARG002
        compute: Callable[[Table], Column],
        *,
        for_all_requests: bool,  # noqa: ARG002
    ) -> Column:
        """Return what `compute` gives; a loop is remembered as a whole."""
        return compute(self)

    def present(self) -> NDArray[np.bool_]:
        """Return the nodes that have the condition, shape (n,)."""
        return self._conditions().present

    def _conditions(self) -> DictionaryColumn[tuple[str, ...]]:
        """Return the texts of the condition of each node: few of them differ."""
        return self._view.dictionary_column(
            ("condition", self._slot),
            _NODES,
            lambda part: (
                None if condition is None else condition[:3]
                for condition in _of_slot(part, self._slot)
            ),
        )

    def _times(self) -> NDArray[np.int64]:
        """Return the time of the condition in microseconds, NO_TIME where there is none."""
        return self._view.node_column(
            ("condition", self._slot, _TIME),
            _NODES,
            lambda part: np.array(
                [
                    NO_TIME if condition is None or condition.since is None else condition.since
                    for condition in _of_slot(part, self._slot)
                ],
                np.int64,
            ),
        )


def condition_tables(nodes: Table, view: ClusterView, variable: str) -> Iterator[Elements] | None:
    """Return the tables that hold all conditions of the nodes, None if there are too many."""
    types = view.dictionary_column(
        "condition types",
        _NODES,
        lambda part: (
            None if node is None else tuple(condition.type for condition in node.conditions)
            for node in part.nodes
        ),
    )
    slots = sorted({slot for value in types.values[MISSING + 1 :] for slot in _slots(value or ())})
    if len(slots) > _MOST_SLOTS:
        return None
    tables = (ConditionTable(nodes, view, variable, slot) for slot in slots)
    return (Elements(table, table.present()) for table in tables)


def _slots(types: Iterable[str]) -> Iterator[_Slot]:
    seen = Counter[str]()
    for of_type in types:
        yield of_type, seen[of_type]
        seen[of_type] += 1


def _of_slot(view: ClusterView, slot: _Slot) -> Iterator[NodeCondition | None]:
    return (None if node is None else _in_slot(node.conditions, slot) for node in view.nodes)


def _in_slot(conditions: Sequence[NodeCondition], slot: _Slot) -> NodeCondition | None:
    of_type, number = slot
    for condition in conditions:
        if condition.type == of_type:
            if not number:
                return condition
            number -= 1
    return None


CONDITIONS: Final = ("node", "conditions")
"""The path of the one list that has columns."""

CREATED: Final = "creationTimestamp"
NAME: Final = "name"

SUM_FIELDS: Final = {"requested": Sum.REQUESTS, "limits": Sum.LIMITS}
"""Fields that are sums over the pods of a node."""

AMOUNT_FIELDS: Final = frozenset({"allocatable", "usage", *SUM_FIELDS})
"""Fields with an amount by resource."""

TEXT_FIELDS: Final = frozenset({"labels", "annotations"})
"""Fields with a text by key."""

SCALAR_FIELDS: Final[Mapping[str, CelType]] = {
    "podCount": INT,
    "podsNotEvictable": INT,
    **dict.fromkeys(OWNER_FIELDS, INT),
    "ready": BOOL,
    "unschedulable": BOOL,
    CREATED: TIMESTAMP,
}
"""Fields that are one value, with its type."""

_NODES_AND_PODS = (Domain.NODES, Domain.PODS)
_DOMAINS: Final = {
    "limits": _NODES_AND_PODS,
    "podCount": (Domain.PODS,),
    "podsNotEvictable": _NODES_AND_PODS,
    **dict.fromkeys(OWNER_FIELDS, _NODES_AND_PODS),
    "requested": _NODES_AND_PODS,
    "usage": (Domain.METRICS,),
}
"""The domains of a field, where they are not the node alone."""

_FEW_VALUES, _MANY_VALUES = 32, 1 << 20  # different values in a large cluster
_UNIQUE: Final = frozenset({HOSTNAME_LABEL})
"""Labels that differ on every node."""


def domains_of_field(field: str) -> tuple[Domain, ...]:
    """Return the domains of a field of a node, in order; of the whole node where it is empty."""
    return _DOMAINS.get(field, (Domain.NODES,)) if field else LOAD_DOMAINS


@lru_cache
def domains_of(paths: tuple[Path, ...]) -> tuple[Domain, ...]:
    """Return the domains of paths that begin with `node`, in order."""
    fields = {path[1] if len(path) > 1 else "" for path in paths}
    return tuple(sorted({domain for field in fields for domain in domains_of_field(field)}))


class NodeLayout:
    """The columns of a `NodeTable`."""

    @property
    def variables(self) -> frozenset[str]:
        return frozenset({"node"})

    def leaf(self, path: Path) -> Leaf:
        _, field, key = (*path, "", "")[:3]
        if field in SCALAR_FIELDS:
            return Leaf(
                path[:2], SCALAR_FIELDS[field], _MANY_VALUES if field == CREATED else _FEW_VALUES
            )
        if field in AMOUNT_FIELDS and key:
            return Leaf(path[:3], DOUBLE, _FEW_VALUES if field == "allocatable" else _MANY_VALUES)
        if field in TEXT_FIELDS and key:
            return Leaf(path[:3], STRING, _MANY_VALUES if key in _UNIQUE else _FEW_VALUES)
        if field == NAME:
            return Leaf(path[:2], STRING, _MANY_VALUES)
        if field in AMOUNT_FIELDS or field in TEXT_FIELDS or not field:
            return Leaf(path[:2], MAP, _MANY_VALUES)
        return Leaf(path[:2], None, _FEW_VALUES if field == "taints" else _MANY_VALUES)

    def elements(self, path: Path, variable: str) -> Layout | None:
        """Return the columns of the tables of conditions; no other list has such."""
        return ConditionLayout(self, variable) if path == CONDITIONS else None


_T = TypeVar("_T")
_Scalar = TypeVar("_Scalar", bound=np.generic)

_MILLI = 1000
_TABLE_NODES = (Domain.NODES,)
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
        """Return the array that `compute` gives, remembered by the view; see `remember`."""
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
            _TABLE_NODES,
            lambda part: _bools(name in amounts for amounts in _allocatables(part)),
        )

    def _created(self) -> NDArray[np.int64]:
        """Return the creation time of each node, microseconds since the epoch."""
        return self._view.node_column(
            ("node", CREATED),
            _TABLE_NODES,
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
            _TABLE_NODES,
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
        column = label_column if field == "labels" else annotation_column
        return column(self._view, key)

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
