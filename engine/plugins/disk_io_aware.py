"""DiskIOAware: put pods that declare their disk throughput where a disk has that much left.

Source: kubernetes-sigs/scheduler-plugins, kep/624-disk-io-aware-scheduling; a proposal that was
never implemented. Pods request by annotation, and a driver reports what each disk has left.

The proposal leaves two things open. Scores are in percent here, truncated. One disk must have the
whole request left, and the disk with the most left counts. The proposal's strategy names are
swapped (its MostAllocated prefers the disk with the most left) and kept as written.

Differences from upstream:

- **Coefficients** are args, where the proposal leaves the conversion of requests to a function of
  the vendor.
- **Pods that are not bound yet** are subtracted from each disk of the node where they are expected.
  A driver knows a pod once it runs, and the disk that it will use is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs, Unit
from engine.model.scheduler_plugins import Disk, NodeDisks, Throughput
from engine.model.usage import NodeUsage
from engine.plugins.base import (
    MAX_SCORE,
    PASS,
    Args,
    Cycle,
    Filter,
    Plugin,
    Score,
    Scores,
    result_of,
)
from engine.plugins.lib.arithmetic import trunc_div
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, PodEntry, capped

_UNKNOWN, _NOT_ENOUGH = 1, 2
_REASONS: Final = {
    _UNKNOWN: "node(s) without known disk IO capacity",
    _NOT_ENOUGH: "node(s) had insufficient disk IO bandwidth",
}

_Coefficient = Annotated[float, Field(strict=True, ge=0, le=1000)]
_Policy = Literal["LeastAllocated", "MostAllocated"]


class DiskIOAwareArgs(Args):
    """The ranking of nodes, and the throughput that a pod takes of a disk.

    Attributes:
        score_strategy: the proposal's policy, by its name there.
        read_coefficient: the factor of the bytes that a pod reads.
        write_coefficient: the factor of the bytes that it writes.
    """

    score_strategy: _Policy = "MostAllocated"
    read_coefficient: _Coefficient = 1
    write_coefficient: _Coefficient = 1

    @property
    def needs(self) -> DiskNeeds:
        """The throughput of pods by these arguments."""
        return DiskNeeds(self.read_coefficient, self.write_coefficient)


@dataclass(frozen=True, slots=True)
class DiskNeeds:
    """The disk throughput of pods, summed per node over those that no driver knows yet."""

    read_coefficient: float
    write_coefficient: float
    width: ClassVar[int] = 2
    reads_reports: ClassVar[bool] = False

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, int]:
        """Return the throughput that a pod will take, nothing for a bound pod."""
        need = self.of(pod.shape) if pod.assumed else None
        return need or (0, 0)

    def of(self, shape: PodShape) -> Throughput | None:
        """Return the normalised throughput of a pod; None if it declares none."""
        throughput = shape.throughput
        if throughput is None:
            return None
        read, write = throughput
        return Throughput(
            capped(int(read * self.read_coefficient)), capped(int(write * self.write_coefficient))
        )


class DiskIOAwareFilter(Filter):
    """Rejects nodes on which no disk has the requested throughput left."""

    def __init__(self, args: DiskIOAwareArgs) -> None:
        self._needs = args.needs

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, _UNKNOWN or _NOT_ENOUGH."""
        need = self._needs.of(cycle.pod.shape)
        if need is None:
            return FilterResult.passing(len(cycle.view))
        table, is_known = _left(cycle.view, self._needs)
        fits = _holds(table, need).any(axis=0)
        return result_of(np.where(fits, PASS, np.where(is_known, _NOT_ENOUGH, _UNKNOWN)))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        return (_REASONS[code],)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return _inputs(cycle.pod, cycle.view, row, self._needs)


class DiskIOAwareScore(Score):
    """Ranks nodes by how much of their disk the pod would take."""

    def __init__(self, args: DiskIOAwareArgs) -> None:
        self._needs = args.needs
        self._strategy: _Policy = args.score_strategy

    def score(self, cycle: Cycle) -> Scores:
        """Return a share of the disk with the most left, in percent; 0 where none holds the pod."""
        need = self._needs.of(cycle.pod.shape)
        if need is None:
            return Scores(np.zeros(len(cycle.view), np.int64))
        table, _ = _left(cycle.view, self._needs)
        available = np.where(_holds(table, need), table[0], 0).max(axis=0)
        part = scored_part(self._strategy, available, need.read + need.write)
        percent = trunc_div(part * MAX_SCORE, np.maximum(available, 1))
        return Scores(np.where(available > 0, percent, 0))

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return _inputs(cycle.pod, cycle.view, row, self._needs)


def holds(available: IntColumn, required: int) -> BoolColumn:
    """Return where enough is left."""
    enough: BoolColumn = available >= required
    return enough


def scored_part(strategy: _Policy, available: IntColumn, required: int) -> IntColumn:
    """Return the bandwidth that counts for a node: the rest, or the request."""
    return (
        available - required if strategy == "MostAllocated" else np.full_like(available, required)
    )


def _holds(table: IntColumn, need: Throughput) -> BoolColumn:
    """Return which disks hold a pod, (n_disks, n)."""
    total, read, write = table
    return holds(total, need.read + need.write) & holds(read, need.read) & holds(write, need.write)


def _left(view: ClusterView, needs: DiskNeeds) -> tuple[IntColumn, BoolColumn]:
    """Return the fields of `Disk` for each disk, (3, n_disks, n), and which nodes have any, (n,).

    There are as many rows as the node with the most disks needs, at least one; a disk that is none
    has -1 left, which holds nothing.
    """
    counts = view.dictionary_column("disks", (Domain.TOPOLOGY,), _counts)
    most = max(1, *(count or 0 for count in counts.values))
    table = view.node_column(
        ("disks", most), (Domain.TOPOLOGY,), lambda part: _disk_table(part, most)
    )
    read, write = view.pod_sums[needs]
    expected = np.stack([read + write, read, write])[:, np.newaxis]
    return table - expected, counts.present


def _inputs(pod: Pod, view: ClusterView, row: int, needs: DiskNeeds) -> RuleInputs:
    need = needs.of(pod.shape)
    if need is None:
        return ()
    table, is_known = _left(view, needs)
    request = _throughput("asked for", need.read + need.write, need.read, need.write)
    disks = table[:, :, row].T.tolist() if is_known[row] else []
    left = [_throughput(f"disk {i}", *disk) for i, disk in enumerate(disks) if disk[0] >= 0]
    return (request, *(left or [RuleInput("disks", text="not known")]))


def _throughput(name: str, total: int, read: int, write: int) -> RuleInput:
    amounts = (("total", total), ("read", read), ("write", write))
    parts = [RuleInput(part, amount, Unit.BYTES_PER_SECOND) for part, amount in amounts]
    return RuleInput(name, parts=tuple(parts))


def _counts(view: ClusterView) -> list[int | None]:
    known = (view.lookup(NodeDisks, name) for name in view.names)
    return [len(node.disks) if node and node.disks else None for node in known]


def _disk_table(view: ClusterView, most: int) -> IntColumn:
    table = np.full((len(Disk._fields), most, len(view)), -1, np.int64)
    for row, name in enumerate(view.names):
        known = view.lookup(NodeDisks, name)
        for number, disk in enumerate(known.disks if known else ()):
            table[:, number, row] = disk
    return table


PLUGIN = Plugin(
    args=DiskIOAwareArgs,
    filter=DiskIOAwareFilter,
    score=DiskIOAwareScore,
    sum_profiles=lambda args: (args.needs,),
    reads=(Domain.NODES, Domain.PODS, Domain.TOPOLOGY),
)
