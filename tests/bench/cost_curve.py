"""How decisions, memory and start-up grow with nodes, pods and rules.

Run as `python -m tests.bench.cost_curve`, which takes half an hour and writes `docs/cost.md`
and its plots; `--quick` takes about a minute and writes nothing unless `--output` says where. Each
point is measured in processes of its own, several times with all others in between, and the least
of each figure counts: whatever else a machine does can only add to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.bench.cost_page import Curve, page
from tests.bench.cost_plots import plot
from tests.bench.cost_point import Cost, Point, measured

_DOCS: Final = Path(__file__).parents[2] / "docs"
_PODS_PER_NODE: Final = 30
_NODES: Final = 5_000
_RULES: Final = 10  # those of policy.yaml


@dataclass(frozen=True, slots=True)
class _Size:
    """How much is measured."""

    nodes: Sequence[int]
    pods: Sequence[int]
    rules: Sequence[int]
    clusters: Sequence[int]
    fixed: int
    decisions: int
    rounds: int


_FULL: Final = _Size(
    nodes=(100, 300, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000),
    pods=(1_000, 10_000, 50_000, 150_000, 300_000),
    rules=(1, 2, 5, 10, 20, 50),
    clusters=(1_000, 5_000),
    fixed=5_000,
    decisions=1_000,
    rounds=2,
)
_QUICK: Final = _Size(
    nodes=(100, 500, 1_000, 2_000),
    pods=(1_000, 10_000, 30_000),
    rules=(1, 10, 50),
    clusters=(100, 1_000),
    fixed=1_000,
    decisions=200,
    rounds=1,
)


def main() -> None:
    """Measure all points, and write or print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look in about a minute")
    parser.add_argument("--rounds", type=int, help="how often each point is measured")
    parser.add_argument("--output", type=Path, help="the folder of the page and its plots")
    asked = parser.parse_args()
    size = _QUICK if asked.quick else _FULL
    curves = _curves(size)
    points = sorted({point for curve in curves for point in curve.points})
    rounds = asked.rounds or size.rounds
    costs = _measured(points, size.decisions, rounds)

    command = "python -m tests.bench.cost_curve" + (" --quick" if asked.quick else "")
    text = page(curves, costs, command=command, rounds=rounds, decisions=size.decisions)
    folder = asked.output or (None if asked.quick else _DOCS)
    if folder is None:
        print(text)
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cost.md").write_text(text, encoding="utf-8")
    for curve in curves:
        plot(curve, costs, folder / curve.file)


def _curves(size: _Size) -> list[Curve]:
    """Return what is plotted; all curves meet where the targets are set."""
    by_nodes = [Point(nodes, nodes * _PODS_PER_NODE, _RULES) for nodes in size.nodes]
    by_pods = [Point(size.fixed, count, _RULES) for count in size.pods]
    by_rules = {
        f"{nodes:,} nodes": [Point(nodes, nodes * _PODS_PER_NODE, rules) for rules in size.rules]
        for nodes in size.clusters
    }
    return [
        Curve("nodes", f"{_PODS_PER_NODE} pods on each node, {_RULES} rules", {"": by_nodes}),
        Curve("pods", f"{size.fixed:,} nodes, {_RULES} rules", {"": by_pods}),
        Curve("rules", f"{_PODS_PER_NODE} pods on each node", by_rules),
    ]


def _measured(points: Iterable[Point], decisions: int, rounds: int) -> dict[Point, list[Cost]]:
    """Return the costs of each point, one of each round."""
    costs: dict[Point, list[Cost]] = {point: [] for point in points}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=rounds * sum(map(_work, costs)))
        for number in range(1, rounds + 1):
            for point, found in costs.items():
                told = f"{point.nodes:,} nodes, {point.pods:,} pods, {point.rules} rules"
                begun = progress.tasks[0].completed
                progress.update(task, description=f"round {number} of {rounds}: {told}")
                found.append(measured(point, decisions, lambda n: progress.advance(task, n)))
                progress.update(task, completed=begun + _work(point))
    return costs


def _work(point: Point) -> int:
    """Return how long a point takes, in units of one listed object."""
    start_and_decisions = 60_000
    return point.objects + start_and_decisions


if __name__ == "__main__":
    main()
