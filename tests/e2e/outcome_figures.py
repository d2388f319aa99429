"""Figures of where pods ended up and what that cost, and how they are shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, pstdev
from typing import TypeVar

import numpy as np

from engine.simulation.bounds import least_hot_nodes, least_nodes
from engine.simulation.figures import Levels, least_spread
from tests.e2e.outcome_workload import EXPECTED_PERCENT, SMALL, Ask, Load, Machine

_Bound = TypeVar("_Bound", int, float)

STOCK, IDEAL = "stock", "ideal"
"""The arms that others are compared with."""

THRESHOLD = 0.65
"""The load above which nodes are kept off by the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the pods of one load ended up.

    Attributes:
        spread: standard deviation of the nodes' loads.
        least_spread: the least that it could be, were pods divisible and fitted anywhere.
        over: nodes above the threshold.
        least_over: the fewest that could be, likewise.
        used: nodes that run any of the pods.
        least_used: the fewest that have room for their requests, likewise.
        on_hot: pods on hot nodes.
        overfilled: nodes whose pods ask for more than there is.
        crowd: pods of one Deployment on one node, at most.
        nodes_of_small: nodes that the Deployment of small replicas uses.
        wrong_zone: pods outside the zone that they prefer.
        tainted: pods on nodes with a soft taint.
        unbound: pods without a node.
    """

    spread: float
    least_spread: float
    over: int
    least_over: int
    used: int
    least_used: int
    on_hot: int
    overfilled: int
    crowd: int
    nodes_of_small: int
    wrong_zone: int
    tainted: int
    unbound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What became of the pods of one load.

    Attributes:
        nodes: how many there are.
        seed: of the loads and pods.
        arm: who placed the pods.
        load: how they came, whatever for the ideal.
        places: where they are.
        counts: of what was done to pods, by name: nominated, landed, moved, kept, denied, escaped.
        p50: milliseconds from creation to binding.
        p99: the same.
        seconds: from the first creation to the last binding.
        cpu_ms: CPU time of each process for each pod, by name.
        scheduler_kb: kilobytes that the scheduler allocates for each pod.
    """

    nodes: int
    seed: int
    arm: str
    load: str
    places: Places
    counts: Mapping[str, int] = field(default_factory=dict)
    p50: float = 0.0
    p99: float = 0.0
    seconds: float = 0.0
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    scheduler_kb: float = 0.0

    @property
    def cpu(self) -> float:
        """CPU time of all processes together for each pod, in milliseconds."""
        return sum(self.cpu_ms.values())


def places_of(
    machines: Sequence[Machine],
    loads: Mapping[str, Load],
    asks: Sequence[Ask],
    nodes: Iterable[str],
) -> Places:
    """Return where pods are.

    Args:
        machines: all nodes.
        loads: of each before any of the pods.
        asks: the pods.
        nodes: of each pod, "" for none.
    """
    pairs = list(zip(asks, nodes, strict=True))
    placed: defaultdict[str, list[Ask]] = defaultdict(list)
    for ask, node in pairs:
        if node:
            placed[node].append(ask)
    asked = {node: sum(ask.millicores for ask in there) for node, there in placed.items()}
    requests = np.array([ask.millicores for ask, node in pairs if node], float)
    # A node without room for what it runs is as large as that.
    rooms = np.array(
        [
            max(one.millicores - loads[one.name].requested, asked.get(one.name, 0))
            for one in machines
        ],
        float,
    )
    after = [
        (loads[one.name].used + asked.get(one.name, 0) * EXPECTED_PERCENT / 100) / one.millicores
        for one in machines
    ]
    return Places(
        spread=pstdev(after),
        least_spread=_least_spread(machines, loads, after),
        over=sum(load > THRESHOLD for load in after),
        least_over=_least_over(machines, loads, rooms, requests),
        used=len(placed),
        least_used=_known(least_nodes(requests.sum(keepdims=True), rooms[None])),
        on_hot=sum(len(there) for node, there in placed.items() if loads[node].hot),
        overfilled=sum(
            loads[one.name].requested + asked.get(one.name, 0) > one.millicores for one in machines
        ),
        crowd=max(Counter((ask.app, node) for ask, node in pairs if node).values(), default=0),
        nodes_of_small=len({node for ask, node in pairs if node and ask.app == SMALL}),
        wrong_zone=sum(
            ask.zone not in {"", one.zone} for one in machines for ask in placed.get(one.name, ())
        ),
        tainted=sum(len(placed.get(one.name, ())) for one in machines if one.tainted),
        unbound=sum(not node for _, node in pairs),
    )


def _least_spread(
    machines: Sequence[Machine], loads: Mapping[str, Load], after: Sequence[float]
) -> float:
    sizes = np.array([one.millicores for one in machines], float)
    fixed = np.array([loads[one.name].used for one in machines]) / sizes
    return _known(least_spread(np.array(after), fixed, sizes))


def _least_over(
    machines: Sequence[Machine], loads: Mapping[str, Load], rooms: Levels, requests: Levels
) -> int:
    cold = np.array([THRESHOLD * one.millicores - loads[one.name].used for one in machines])
    expected = requests * EXPECTED_PERCENT / 100
    return _known(least_hot_nodes(expected, requests[None], rooms[None], cold))


def _known(bound: _Bound | None) -> _Bound:
    """Return a bound; what was placed had room, so there is one."""
    assert bound is not None
    return bound


def show(one: Figures) -> None:
    """Print the figures of one load."""
    there = one.places
    counts = "".join(f", {name} {count}" for name, count in one.counts.items())
    processes = ", ".join(f"{name} {used:.1f}" for name, used in one.cpu_ms.items())
    cost = (
        f"; p50 {one.p50:.0f} p99 {one.p99:.0f} ms, all after {one.seconds:.1f} s;"
        f" CPU ms a pod {one.cpu:.1f}: {processes}"
    )
    print(
        f"  seed {one.seed} {one.load:6} {one.arm}: spread {there.spread:.4f}"
        f" (>= {there.least_spread:.4f}), {there.over} (>= {there.least_over}) nodes over,"
        f" {there.used} (>= {there.least_used}) nodes used,"
        f" {there.on_hot} pods on hot nodes, unbound {there.unbound}{counts}"
        f"{cost if one.cpu_ms else ''}",
        flush=True,
    )


def tables_of(figures: Sequence[Figures]) -> str:
    """Return tables with a row for each arm and load: medians over seeds, every gap."""
    rows: defaultdict[tuple[str, str], list[Figures]] = defaultdict(list)
    for one in figures:
        rows[one.load, one.arm].append(one)
    found = _Pairs(figures)
    measured = [of_arm for (_, arm), of_arm in rows.items() if arm != IDEAL]
    return "\n\n".join(
        [
            _table(
                {
                    "load": lambda of_arm: of_arm[0].load,
                    "arm": lambda of_arm: of_arm[0].arm,
                    "std": lambda of_arm: (
                        f"{_median(one.places.spread for one in of_arm):.4f}"
                        f" (>= {_median(one.places.least_spread for one in of_arm):.4f})"
                    ),
                    "gap closed": lambda of_arm: " / ".join(filter(None, map(found.gap, of_arm))),
                    "nodes over": lambda of_arm: (
                        f"{_median(one.places.over for one in of_arm):g}"
                        f" (>= {_median(one.places.least_over for one in of_arm):g})"
                    ),
                    "nodes used": lambda of_arm: (
                        f"{_median(one.places.used for one in of_arm):g}"
                        f" (>= {_median(one.places.least_used for one in of_arm):g})"
                    ),
                    **{title: _place(name) for title, name in _PLACES.items()},
                    "pods": _counts,
                },
                rows.values(),
            ),
            _table(
                {
                    "load": lambda of_arm: of_arm[0].load,
                    "arm": lambda of_arm: of_arm[0].arm,
                    "p50 / p99 ms": lambda of_arm: (
                        f"{_median(one.p50 for one in of_arm):.0f} /"
                        f" {_median(one.p99 for one in of_arm):.0f}"
                    ),
                    "all bound after s": found.compared(lambda one: one.seconds),
                    "CPU ms a pod": found.compared(lambda one: one.cpu),
                    "of it": _processes,
                    "scheduler kB a pod": lambda of_arm: (
                        f"{_median(one.scheduler_kb for one in of_arm):.0f}"
                    ),
                },
                measured,
            ),
        ]
    )


_Row = Callable[[Sequence[Figures]], str]

_PLACES = {
    "pods on hot nodes": "on_hot",
    "nodes over allocatable": "overfilled",
    "one Deployment on one node": "crowd",
    "nodes of 12 small": "nodes_of_small",
    "in the wrong zone": "wrong_zone",
    "on tainted nodes": "tainted",
    "unbound": "unbound",
}


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Figures, each beside those of stock and ideal of the same pods."""

    figures: Sequence[Figures]

    def gap(self, one: Figures) -> str:
        """Return which share of the way from the stock scheduler to the ideal an arm went."""
        stock, ideal = self._of(STOCK, one), self._of(IDEAL, one)
        if stock is None or ideal is None or stock.places.spread <= ideal.places.spread:
            return ""
        way = stock.places.spread - ideal.places.spread
        return f"{(stock.places.spread - one.places.spread) / way:.3f}"

    def compared(self, value: Callable[[Figures], float]) -> _Row:
        """Return a column of a value, and how many times that of stock it is."""

        def column(of_arm: Sequence[Figures]) -> str:
            stocks = [self._of(STOCK, one) for one in of_arm]
            ratios = [
                value(one) / value(stock)
                for one, stock in zip(of_arm, stocks, strict=True)
                if stock is not None and value(stock)
            ]
            times = f" ({median(ratios):.2f})" if ratios else ""
            return f"{_median(value(one) for one in of_arm):.1f}{times}"

        return column

    def _of(self, arm: str, one: Figures) -> Figures | None:
        """Return the figures of an arm for the same pods; the ideal has them for any load."""
        found = (each for each in self.figures if (each.arm, each.seed) == (arm, one.seed))
        return next((each for each in found if arm == IDEAL or each.load == one.load), None)


def _table(columns: Mapping[str, _Row], rows: Iterable[Sequence[Figures]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(cell(row) for cell in columns.values())} |" for row in rows]
    return "\n".join(lines)


def _place(name: str) -> _Row:
    return lambda of_arm: f"{_median(getattr(one.places, name) for one in of_arm):g}"


def _counts(of_arm: Sequence[Figures]) -> str:
    """Return what was done to pods, over all seeds."""
    total: Counter[str] = Counter()
    for one in of_arm:
        total.update(one.counts)
    return ", ".join(f"{count} {name}" for name, count in total.items())


def _processes(of_arm: Sequence[Figures]) -> str:
    names = dict.fromkeys(name for one in of_arm for name in one.cpu_ms)
    return ", ".join(
        f"{name} {_median(one.cpu_ms.get(name, 0.0) for one in of_arm):.1f}" for name in names
    )


def _median(values: Iterable[float]) -> float:
    return median(values)
