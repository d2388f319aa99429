"""Usage of nodes over time: averages, percentiles and deviations over windows.

Replaces an agent on each node, so that rules on percentiles work where only the usage at the moment
is known. Compared with koordlet (Koordinator, pkg/koordlet/metriccache and
statesinformer/impl/states_nodemetric.go):

- a window is reported once its samples span at least half of it, as by koordlet;
- an average is rounded toward zero, as by koordlet;
- a percentile is the nearest rank: the least sample that is not exceeded by that percent of them.
  Koordlet takes rank floor(n * p) in float32, which is the same rank or the one below; on few
  samples that hides the very peak a high percentile is meant to show.

The deviation is that of the population, which Prometheus' `stddev_over_time` gives to load-watcher
and so to the Trimaran scorers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.model.quantity import CPU, MEMORY
from engine.model.resources import Amounts, AmountsTable
from engine.model.time import SECOND, Micros
from engine.model.usage import AggregatedUsage
from engine.view.axis import BoolColumn, IntColumn, capped

USAGE_WINDOW_SECONDS: Final = (300, 600, 1800)
"""Windows of averages and percentiles: koordlet's defaults."""

DEVIATION_SECONDS: Final = (900, 600, 300)
"""Windows of the deviation: the first known window counts, as in load-watcher."""

USAGE_RESOURCES: Final = (CPU, MEMORY)
"""The resources that a sample holds."""

MOST_SAMPLES: Final = 180
"""Samples per node, of 24 bytes each: half an hour at one in ten seconds."""

_PERCENTILES: Final = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
_TYPES: Final = ("avg", *_PERCENTILES)
_NANOSECONDS: Final = 10**9
_FIRST_ROWS: Final = 64
_BEYOND: Final = np.iinfo(np.int64).max
"""Above every age and amount."""


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Usage of a node over time; the fields are those of `NodeUsage`."""

    aggregated: tuple[AggregatedUsage, ...]
    average: Amounts
    deviation: Amounts


class UsageHistory:
    """The latest samples of each node, in a ring.

    One sample in 15 s takes 2.9 KB a node: 14 MiB for 5,000. The ring of a forgotten node is used
    for the next new one.

    Args:
        interval_seconds: the approximate time between samples of a node.
    """

    def __init__(self, interval_seconds: float) -> None:
        length = min(int(max(USAGE_WINDOW_SECONDS) // interval_seconds) + 1, MOST_SAMPLES)
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        # (n_rows, 1 + n_resources, n_samples): the moment in microseconds, then base units.
        self._ring = np.empty((0, 1 + len(USAGE_RESOURCES), length), np.int64)
        self._added = np.zeros(0, np.int64)  # samples ever added to a row

    def __len__(self) -> int:
        """Return the number of known nodes."""
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the known nodes."""
        return iter(self._rows)

    def latest(self, node_name: str) -> Micros | None:
        """Return the moment of a node's newest sample, None for an unknown node."""
        row = self._rows.get(node_name)
        if row is None:
            return None
        return Micros(int(self._ring[row, 0, (self._added[row] - 1) % self._ring.shape[-1]]))

    def add(self, node_name: str, at: Micros, amounts: Amounts) -> bool:
        """Add a sample if it is newer than the node's newest one; return whether it was.

        Args:
            node_name: the node, known or new.
            at: when it was measured.
            amounts: base units, with each of `USAGE_RESOURCES`.
        """
        latest = self.latest(node_name)
        if latest is not None and at <= latest:
            return False
        row = self._rows.get(node_name)
        if row is None:
            row = self._rows[node_name] = self._new_row()
        self._ring[row, :, self._added[row] % self._ring.shape[-1]] = [
            at,
            *(capped(amounts[name]) for name in USAGE_RESOURCES),
        ]
        self._added[row] += 1
        return True

    def forget(self, node_name: str) -> None:
        """Drop the samples of a node, if there are any."""
        row = self._rows.pop(node_name, None)
        if row is not None:
            self._added[row] = 0
            self._free.append(row)

    def summaries(self, node_names: Sequence[str]) -> list[UsageSummary]:
        """Return a summary of each node, over windows that end with its newest sample.

        Args:
            node_names: known nodes, ideally about a hundred at a time.
        """
        rows = np.array([self._rows[name] for name in node_names], np.intp)
        samples = _Samples.of(self._ring[rows], self._added[rows])
        windows = [_aggregated(samples.within(seconds)) for seconds in USAGE_WINDOW_SECONDS]
        return [
            UsageSummary(tuple(filter(None, aggregated)), average, deviation)
            for *aggregated, (average, deviation) in zip(*windows, _spread(samples), strict=True)
        ]

    def _new_row(self) -> int:
        """Return a free row."""
        if not self._free:
            # Rows beyond those in use are never written, so they take no memory yet.
            first = len(self._added)
            more = max(_FIRST_ROWS, first // 4)
            grown = np.empty((first + more, *self._ring.shape[1:]), np.int64)
            grown[:first] = self._ring
            self._ring = grown
            self._added = np.pad(self._added, (0, more))
            self._free = list(reversed(range(first, first + more)))
        return self._free.pop()


@dataclass(frozen=True, slots=True)
class _Window:
    """The samples of m nodes within one window."""

    seconds: int  # its length
    amounts: IntColumn  # (m, n_resources, n_samples), base units
    inside: BoolColumn  # (m, 1, n_samples), the samples within the window; at least the newest
    count: IntColumn  # (m, 1), the number of these
    is_known: BoolColumn  # (m,), whether they span half of the window

    def total(self) -> IntColumn:
        """Return the sum of the samples, (m, n_resources)."""
        total: IntColumn = np.where(self.inside, self.amounts, 0).sum(axis=-1)
        return total

    def average(self) -> IntColumn:
        """Return the mean, rounded down, (m, n_resources)."""
        return self.total() // self.count

    def percentiles(self, percents: Sequence[int]) -> IntColumn:
        """Return the nearest ranks, (m, n_resources, n_percents)."""
        ordered = np.sort(np.where(self.inside, self.amounts, _BEYOND), axis=-1)
        ranks = -(-self.count * np.array(percents) // 100)  # rounded up, from 1
        return np.take_along_axis(ordered, ranks[:, None, :] - 1, axis=-1)

    def deviation(self) -> IntColumn:
        """Return the population's standard deviation, to the nearest unit, (m, n_resources)."""
        mean = self.total() / self.count
        off = np.where(self.inside, self.amounts - mean[..., None], 0.0)
        deviation: IntColumn = np.rint(np.sqrt((off * off).sum(axis=-1) / self.count)).astype(int)
        return deviation


@dataclass(frozen=True, slots=True)
class _Samples:
    """The samples of m nodes."""

    amounts: IntColumn  # (m, n_resources, n_samples), base units
    age: IntColumn  # (m, n_samples), microseconds before the newest sample of the node

    @classmethod
    def of(cls, rings: IntColumn, added: IntColumn) -> _Samples:
        """Return the samples in rings, given the number ever added to each."""
        length = rings.shape[-1]
        moments = rings[:, 0]
        newest = np.take_along_axis(moments, (added[:, None] - 1) % length, axis=-1)
        is_used = np.arange(length) < added[:, None]
        return cls(rings[:, 1:], np.where(is_used, newest - moments, _BEYOND))

    def within(self, seconds: int) -> _Window:
        """Return the window that ends with the newest sample."""
        inside = self.age < seconds * SECOND
        span = np.where(inside, self.age, 0).max(axis=-1)
        return _Window(
            seconds=seconds,
            amounts=self.amounts,
            inside=inside[:, None, :],
            count=inside.sum(axis=-1, keepdims=True),
            is_known=2 * span >= seconds * SECOND,
        )


def _aggregated(window: _Window) -> list[AggregatedUsage | None]:
    """Return the window of each node as a report, None where it is not known."""
    average = window.average()[..., None]
    table = np.concatenate([average, window.percentiles(tuple(_PERCENTILES.values()))], axis=-1)
    return [
        AggregatedUsage(
            window.seconds * _NANOSECONDS,
            AmountsTable(dict(zip(_TYPES, map(_amounts, zip(*rows, strict=True)), strict=True))),
        )
        if is_known
        else None
        for rows, is_known in zip(table.tolist(), window.is_known.tolist(), strict=True)
    ]


def _spread(samples: _Samples) -> list[tuple[Amounts, Amounts]]:
    """Return the average and the deviation of each node, over the first known window."""
    pairs: list[tuple[Amounts, Amounts]] = [({}, {})] * len(samples.age)
    for seconds in reversed(DEVIATION_SECONDS):
        window = samples.within(seconds)
        columns = window.average().tolist(), window.deviation().tolist()
        for row, (average, deviation) in enumerate(zip(*columns, strict=True)):
            if window.is_known[row]:
                pairs[row] = _amounts(average), _amounts(deviation)
    return pairs


def _amounts(values: Iterable[int]) -> Amounts:
    return dict(zip(USAGE_RESOURCES, values, strict=True))
