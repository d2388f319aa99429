"""The page that tells what decisions cost, made of what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from tests.bench.bench_view import machine
from tests.bench.cost_point import Cost, Point
from tests.bench.processor import processor

Costs: TypeAlias = Mapping[Point, Sequence[Cost]]
"""What was measured of each point, once for each round."""

MOST_P50_US: Final = 500.0
MOST_P99_US: Final = 2_000.0
MOST_MIB: Final = 250.0
MOST_SECONDS: Final = 15.0

_COLUMNS: Final = (
    *("nodes", "pods", "rules"),
    *("still, p50 us", "p99 us", "with events, p50 us", "p99 us"),
    *("memory MiB", "ready s"),
)
_MOST_GROWTH: Final = 2.5  # with 2.5 times the nodes, or fewer

_HEAD = """\
# What it costs

This page shows how the CPU time of a decision, the memory of a replica and its start-up grow with
the cluster and the policies. Page and plots are written by this command; do not edit them by hand:

    {command}

Measured on: {processor}, {machine}.

- Each point is measured in a process of its own that holds what a replica holds; the cluster is
  [generated](../tests/bench/generate.py), with nodes of seven types and pods of all sizes. Each
  figure is the minimum of {rounds} such processes, with all other points in between.
- The ten rules are those of [policy.yaml](../tests/bench/policy.yaml): LimitAware and LoadAware,
  each as a filter and as a score, and six rules in CEL. More rules are the same ten with other
  numbers, fewer are the first of them.
- *Still* is a decision while nothing changes. *With events* is a decision and the view it needs
  after a pod was created, bound and another deleted, while nodes report: as in a cluster with 500
  new pods a second, and with usage reports applied four times a second, as in the webhook.
  Percentiles are of {decisions:,} decisions.
- *Ready* is the CPU time from the first byte of the lists to the first view. *Memory* is resident
  after all decisions, modules of the server included.
- The loop in plain Python that benchmarks compare with took {floor_least:.0f} to {floor_most:.0f}
  us per 1,000 nodes in these processes, as the machine was not equally fast at all times.

The dotted lines in the plots are the targets, which are set for 5,000 nodes, 150,000 pods and the
ten rules: a decision takes {p50:.1f} ms in the median and {p99:.0f} ms at the 99th percentile,
memory is {memory:.0f} MiB, and ready is {seconds:.0f} s. With ten times as many nodes and pods
they are 4 ms in the median, 2 GiB and 150 s.
"""


@dataclass(frozen=True, slots=True)
class Curve:
    """What grows, and what stays as it is.

    Attributes:
        axis: the field of a point that grows.
        fixed: what stays, in words.
        lines: the points of each line, by what is special about it.
    """

    axis: str
    fixed: str
    lines: Mapping[str, Sequence[Point]]

    @property
    def file(self) -> str:
        """The name of its plot."""
        return f"cost-{self.axis}.svg"

    @property
    def points(self) -> Iterator[Point]:
        """All points of all lines."""
        for points in self.lines.values():
            yield from points

    def at(self, point: Point) -> int:
        """Return where a point is on the axis."""
        return int(getattr(point, self.axis))


def least(costs: Sequence[Cost]) -> Cost:
    """Return the least of each figure."""
    fields = Cost.__struct_fields__
    return Cost(**{name: min(getattr(cost, name) for cost in costs) for name in fields})


def page(
    curves: Sequence[Curve], costs: Costs, *, command: str, rounds: int, decisions: int
) -> str:
    """Return the page in Markdown."""
    floors = [cost.floor for each in costs.values() for cost in each]
    head = _HEAD.format(
        command=command,
        processor=processor(),
        machine=machine().removeprefix("machine: "),
        rounds=rounds,
        decisions=decisions,
        floor_least=min(floors),
        floor_most=max(floors),
        p50=MOST_P50_US / 1e3,
        p99=MOST_P99_US / 1e3,
        memory=MOST_MIB,
        seconds=MOST_SECONDS,
    )
    return "\n".join([head, *(_section(curve, costs) for curve in curves)])


def _section(curve: Curve, costs: Costs) -> str:
    lines = [
        f"## By {curve.axis}",
        "",
        f"With {curve.fixed}. {' '.join(_growth(curve, costs))}",
        "",
        f"![Decision time, memory and start-up by {curve.axis}]({curve.file})",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|" + "---:|" * len(_COLUMNS),
    ]
    for point in curve.points:
        cost = least(costs[point])
        times = (cost.still_p50, cost.still_p99, cost.events_p50, cost.events_p99)
        cells = [
            *(f"{count:,}" for count in msgspec.structs.astuple(point)),
            *(f"{time:,.0f}" for time in times),
            f"{cost.resident:.0f}",
            f"{cost.ready:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _growth(curve: Curve, costs: Costs) -> Iterator[str]:
    """Yield what a decision takes at the last point of each line, to what it takes at others."""
    for name, points in curve.lines.items():
        last = points[-1]
        # To the next smaller point, where most of the time is the nodes', or to the first one.
        other = points[-2] if curve.axis == "nodes" else points[0]
        most, less = least(costs[last]), least(costs[other])
        limit = f" (at most {_MOST_GROWTH})" if curve.axis == "nodes" else ""
        still, events = most.still_p50 / less.still_p50, most.events_p50 / less.events_p50
        yield (
            f"{f'On {name}: ' if name else ''}With {curve.at(last):,} {curve.axis} a decision takes"
            f" {still:.2f} times as long as with {curve.at(other):,} still, and {events:.2f} times"
            f" with events{limit}."
        )
