"""Usage and capacity of nodes as LoadAware compares them, from reports and sums.

Source: Koordinator, pkg/scheduler/plugins/loadaware (pod_assign_cache.go, helper.go) and
estimator/default_estimator.go, EstimateNode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import attrgetter

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.errors import QuantityError
from engine.model import api, resources
from engine.model.resources import Amounts
from engine.model.usage import NodeUsage
from engine.plugins.lib.annotations import read_annotation
from engine.plugins.load_aware.sums import LoadProfile, LoadSums
from engine.view import GREATEST_AMOUNT as _MOST
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, capped

RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
"""The allocatable of a node before amplification: a JSON resource list."""

_ANNOTATIONS_REMEMBERED = 4096
_MEASURED, _ESTIMATED, _PRODUCTION = 0, 1, 2


@dataclass(frozen=True, slots=True)
class UsageSource:
    """A kind of usage of a node; by default that of the whole node at the moment.

    Attributes:
        production: that of production pods alone, whatever the last two say.
        with_system: adds the usage outside pods to that of production pods.
        aggregation: a percentile or average instead, such as `p95`.
        duration_ns: the window of that, 0 for the longest one reported.
    """

    production: bool = False
    with_system: bool = False
    aggregation: str = ""
    duration_ns: int = 0


WHOLE_NODE = UsageSource()


def capacity(view: ClusterView, known: tuple[str, ...]) -> IntColumn:
    """Return the allocatable of the known resources before amplification, (n_known, n)."""
    key = ("LoadAware capacity", known)
    return view.node_column(key, (Domain.NODES,), lambda part: _capacity(part, known))


@dataclass(frozen=True)
class Readings:
    """The reported usage of each node, by its source.

    Attributes:
        table: (n_known + 3, n), one array so that it can be remembered: the amounts of the known
            resources in base units, the kind of sum that is `added` to them, and two flags.
    """

    table: IntColumn

    @classmethod
    def of(
        cls, view: ClusterView, known: Sequence[str], sources: Sequence[UsageSource]
    ) -> Readings:
        """Return the readings of a view, given the source to read on each row."""
        nothing = (0,) * len(known)
        rows = [
            _row(report, source, known, nothing)
            for report, source in zip(view.usages, sources, strict=True)
        ]
        width = len(known) + 3
        flat = np.fromiter(chain.from_iterable(rows), np.int64, width * len(rows))
        return cls(np.ascontiguousarray(flat.reshape(len(rows), width).T))

    def take(self, rows: NDArray[np.intp]) -> Readings:
        """Return those of some rows."""
        return Readings(self.table.take(rows, axis=1))

    @property
    def is_reported(self) -> BoolColumn:
        """Nodes with a report, (n,)."""
        flags: BoolColumn = self.table[-2] != 0
        return flags

    @property
    def is_measured(self) -> BoolColumn:
        """Nodes with a report that has the usage of the node, (n,)."""
        flags: BoolColumn = self.table[-1] != 0
        return flags

    @cached_property
    def _kind(self) -> IntColumn | None:
        """The kind of sum added on each row, None if it is _MEASURED on all."""
        kind = self.table[-3]
        return kind if kind.any() else None

    @property
    def amounts(self) -> IntColumn:
        """The reported amounts, (n_known, n)."""
        return self.table[:-3]

    def added(self, view: ClusterView, profile: LoadProfile) -> IntColumn:
        """Return the estimates or sums over pods to add to `amounts`, (n_known, n).

        Args:
            view: the rows that were read; it keeps the sums of `profile`.
            profile: for the estimates.
        """
        sums, kind = LoadSums.of(view, profile), self._kind
        if kind is None:
            return sums.node_delta
        added = np.where(kind == _ESTIMATED, sums.node_estimated, sums.node_delta)
        return np.where(kind == _PRODUCTION, sums.prod_usage + sums.prod_delta, added)


def readings_of(view: ClusterView, known: tuple[str, ...], source: UsageSource) -> Readings:
    """Return the readings of one source on every node, remembered: filter and score share them."""
    table = view.node_column(
        ("LoadAware readings", known, source),
        (Domain.METRICS,),
        lambda part: Readings.of(part, known, [source] * len(part)).table,
    )
    return Readings(table)


_duration = attrgetter("duration_ns")


def _capacity(view: ClusterView, known: Sequence[str]) -> IntColumn:
    def read(text: str | None) -> list[int]:
        raw = _raw_allocatable(text)
        return [name in raw for name in known] + [capped(raw.get(name, 0)) for name in known]

    is_raw, raw = np.split(read_annotation(view, RAW_ALLOCATABLE, 2 * len(known), read), 2)
    allocatable = np.stack([view.amount(view.allocatable, name) for name in known])
    return np.where(is_raw, raw, allocatable)


@lru_cache(maxsize=_ANNOTATIONS_REMEMBERED)
def _raw_allocatable(text: str | None) -> Amounts:
    """Return the amounts in an annotation, none if it is absent or malformed."""
    if text is None:
        return {}
    try:
        return resources.amounts(msgspec.json.decode(text, type=api.ResourceList | None))
    except (msgspec.DecodeError, QuantityError, RecursionError):
        return {}


def _row(
    report: NodeUsage | None, source: UsageSource, known: Sequence[str], nothing: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the column of `Readings.table` of one node; `nothing` is of each known resource."""
    if report is None:
        return (*nothing, _MEASURED, False, False)
    is_measured = report.usage is not None
    if source.production:
        system = _capped(report.system_usage, known) if source.with_system else nothing
        return (*system, _PRODUCTION, True, is_measured)
    amounts = _reading(report, source)
    if amounts is None:
        return (*nothing, _ESTIMATED, True, is_measured)
    return (*_capped(amounts, known), _MEASURED, True, is_measured)


def _capped(amounts: Amounts, known: Sequence[str]) -> Iterable[int]:
    found = map(amounts.get, known, repeat(0))
    return [amount if -_MOST <= amount <= _MOST else capped(amount) for amount in found]


def _reading(report: NodeUsage, source: UsageSource) -> Amounts | None:
    """Return the reading of a source, None where the report has no window of its duration.

    Without a duration it is that of the longest window, or the usage at the moment without one.
    """
    momentary = report.usage or {}
    if not source.aggregation:
        return momentary
    windows = [window for window in report.aggregated if source.aggregation in window.by_type]
    if source.duration_ns:
        windows = [window for window in windows if window.duration_ns == source.duration_ns]
        return windows[-1].by_type[source.aggregation] if windows else None
    if not windows:
        return momentary
    return max(reversed(windows), key=_duration).by_type[source.aggregation]
