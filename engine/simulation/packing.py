"""Which pods fit on nodes at best, exactly in integers: the model of a constraint solver.

Pods that are alike are counted, not told apart. The solver is CP-SAT of OR-Tools, an extra of the
package: `stowplan[solver]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.report import RepackAim
from engine.view import BoolColumn, IntColumn

_WORKERS: Final = 4  # strategies, by turns in one thread: a seed gives the same search again
_SHARE: Final = 0.5  # of the time that is left, for each step but the last
_PART: Final = 5  # nodes that are looked at together at first
_MOST_VARIABLES: Final = 20_000  # for all nodes at once: more take seconds to write down
_ROUNDS: Final = 8  # of parts of other nodes each
_EFFORT: Final = 0.05  # for a goal of a part, in the solver's own measure of some seconds

Counts: TypeAlias = NDArray[np.int64]
"""Pods of each group on each node, (groups, n)."""

SolverVariable: TypeAlias = Any


def can_solve() -> bool:
    """Return whether the solver is installed."""
    return find_spec("ortools") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pods that are alike."""

    requests: tuple[int, ...]  # of one pod, in the order of the packing's resources
    allowed: BoolColumn  # (n,), nodes that may take more of them
    running: IntColumn  # (n,), those that run now, and may leave their node
    waiting: int = 0
    priority: int = 0
    preempts: bool = True  # whether running pods of lower priority give way to the waiting ones
    budgets: tuple[int, ...] = ()  # indices of those that bound how many leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Nodes, and the pods that are to be packed on them."""

    room: NDArray[np.int64]  # (resources, n), were all pods of the groups gone
    groups: Sequence[Group]
    budgets: Sequence[int]  # how many pods may leave
    can_be_free: BoolColumn  # (n,), nodes that nothing keeps but pods of the groups
    free_nodes: int = 0  # that are wanted

    def running(self) -> Counts:
        """Return the pods as they are."""
        running = np.array([group.running for group in self.groups], np.int64)
        return running.reshape(len(self.groups), self.room.shape[1])


@dataclass(frozen=True, slots=True)
class Goal:
    """One of several goals, reached in order."""

    aim: RepackAim
    priority: int = 0
    groups: tuple[int, ...] = ()


class Reached(NamedTuple):
    """How far a goal was reached, given how far those before it were."""

    goal: Goal
    found: int
    bound: int  # nothing is better than this


class Packed(NamedTuple):
    """A solution."""

    counts: Counts
    reached: tuple[Reached, ...]
    seconds: float  # that the solver took


def pack(packing: Packing, *, seconds: float, seed: int) -> Packed:
    """Return the best packing that is found in some time; at worst all pods stay where they are.

    By falling priority, running pods keep a node, and waiting ones get one. Then so many nodes are
    free as are wanted, and then as few pods as possible leave their node.
    """
    # 1. Look at a few nodes at a time: quick, and few pods leave their node for it.
    is_large = len(packing.groups) * packing.room.shape[1] > _MOST_VARIABLES
    goals = list(_goals(packing))
    counts, spent = _packed_in_parts(packing, seconds if is_large else _SHARE * seconds, seed)
    if is_large:
        reached = [
            Reached(goal, _value(goal, packing, counts), _ideal(goal, packing)) for goal in goals
        ]
        return Packed(counts, tuple(reached), spent)
    # 2. Look at all nodes at once for something better, and for how good it could be.
    model = Model(packing, seed, counts)
    model.seconds, reached = spent, []
    for goal in goals:
        left = max(seconds - model.seconds, 0)
        reached.append(model.reach(goal, left if goal is goals[-1] else _SHARE * left))
    return Packed(model.counts, tuple(reached), model.seconds)


def _packed_in_parts(packing: Packing, seconds: float, seed: int) -> tuple[Counts, float]:
    """Return a packing in which pods change places with those of a few other nodes alone.

    And the seconds that it took.
    """
    random, spent = np.random.default_rng(seed), 0.0
    counts, nodes = packing.running(), packing.room.shape[1]
    if nodes <= _PART:
        return counts, spent
    for _ in range(_ROUNDS):
        for part in np.array_split(random.permutation(nodes), -(-nodes // _PART)):
            if spent >= seconds or _is_done(packing, counts):
                return counts, spent
            part.sort()
            of, inside = _part(packing, counts, part)
            model = Model(inside, seed, inside.running())
            for goal in _goals(inside):
                model.reach(goal, seconds - spent - model.seconds, effort=_EFFORT)
            spent += model.seconds
            counts[np.array(of)[:, None], part] = model.counts
    return counts, spent


def _is_done(packing: Packing, counts: Counts) -> bool:
    """Return whether no pod waits, and so many nodes are free as are wanted."""
    goals = (Goal(RepackAim.PLACED, 0, tuple(range(len(packing.groups)))), Goal(RepackAim.FREE))
    return all(_value(goal, packing, counts) == _ideal(goal, packing) for goal in goals)


def _part(packing: Packing, counts: Counts, part: NDArray[np.int64]) -> tuple[list[int], Packing]:
    """Return the packing of a few nodes as they are now, and the indices of its groups."""
    running = packing.running()
    leaving = np.maximum(running - counts, 0).sum(axis=1)
    budgets = [
        allowed - sum(leaving[at] for at, it in enumerate(packing.groups) if number in it.budgets)
        for number, allowed in enumerate(packing.budgets)
    ]
    waiting = (running - counts).sum(axis=1) + [group.waiting for group in packing.groups]
    of, groups = [], []
    for at, group in enumerate(packing.groups):
        on, allowed = counts[at, part], group.allowed[part]
        if on.any() or (waiting[at] and allowed.any()):
            of.append(at)
            groups.append(replace(group, running=on, waiting=int(waiting[at]), allowed=allowed))
    is_free = packing.can_be_free & ~counts.any(axis=0)
    is_free[part] = False
    return of, Packing(
        room=packing.room[:, part],
        groups=groups,
        budgets=budgets,
        can_be_free=packing.can_be_free[part],
        free_nodes=max(packing.free_nodes - int(is_free.sum()), 0),
    )


def _goals(packing: Packing) -> Iterator[Goal]:
    highest = _highest(packing.groups)
    patient = []
    for priority in sorted({group.priority for group in packing.groups}, reverse=True):
        of = [at for at, group in enumerate(packing.groups) if group.priority == priority]
        if highest is not None and priority < highest:
            yield Goal(RepackAim.KEPT, priority, tuple(of))
        for preempts in (True, False):
            groups = tuple(at for at in of if packing.groups[at].preempts is preempts)
            goal = Goal(RepackAim.PLACED, priority, groups)
            if not any(packing.groups[at].waiting for at in groups):
                continue
            if preempts:
                yield goal
            else:
                patient.append(goal)
    yield from patient
    if packing.free_nodes:
        yield Goal(RepackAim.FREE)
    yield Goal(RepackAim.LEAVING)


def _highest(groups: Iterable[Group]) -> int | None:
    """Return the highest priority of waiting pods for which others give way."""
    return max((it.priority for it in groups if it.waiting and it.preempts), default=None)


class Model:
    """The model of a packing, with the best solution so far."""

    def __init__(self, packing: Packing, seed: int, counts: Counts) -> None:
        self._cp: Any = import_module("ortools.sat.python.cp_model")
        self._model = self._cp.CpModel()
        self._seed = seed
        self._packing = packing
        self.counts: Counts = counts.copy()
        self.seconds = 0.0
        # By group: the pods on each node; those that leave it; the running ones that have a node.
        self._on: list[dict[int, SolverVariable]] = []
        self._leaving: list[dict[int, SolverVariable]] = []
        self._kept: list[SolverVariable] = []
        self._free: dict[int, SolverVariable] = {}  # by node: whether it is free
        highest = _highest(packing.groups)
        for group in packing.groups:
            self._add(group, may_give_way=highest is not None and group.priority < highest)
        self._bound_by_room(packing.room)
        self._bound_by_budgets(packing.budgets)
        if packing.free_nodes:
            self._add_free_nodes(packing.can_be_free)

    def reach(self, goal: Goal, seconds: float, *, effort: float = math.inf) -> Reached:
        """Find the best value of a goal in some time; it is no worse from then on."""
        found, bound = _value(goal, self._packing, self.counts), _ideal(goal, self._packing)
        expression, is_least = self._expression(goal), goal.aim is RepackAim.LEAVING
        if found != bound and seconds > 0:
            (self._model.minimize if is_least else self._model.maximize)(expression)
            counts, bound = self._solve(seconds, effort, bound)
            self._model.clear_objective()
            value = _value(goal, self._packing, counts)
            # Of two that are as good, the solver's moves pods for nothing.
            if value < found if is_least else value > found:
                self.counts, found = counts, value
        self._model.add(expression <= found if is_least else expression >= found)
        return Reached(goal, found, bound)

    def _add(self, group: Group, *, may_give_way: bool) -> None:
        model, running = self._model, int(group.running.sum())
        on, leaving = {}, {}
        for node in np.flatnonzero(group.allowed | (group.running > 0)).tolist():
            here = int(group.running[node])
            most = running + group.waiting if group.allowed[node] else here
            on[node] = model.new_int_var(0, most, "")
            if here:
                leaving[node] = model.new_int_var(0, here, "")
                model.add(leaving[node] >= here - on[node])
        kept = model.new_int_var(0 if may_give_way else running, running, "")
        model.add_linear_constraint(self._sum([*on.values()]) - kept, 0, group.waiting)
        self._on.append(on)
        self._leaving.append(leaving)
        self._kept.append(kept)

    def _bound_by_room(self, room: NDArray[np.int64]) -> None:
        all_running = self._packing.running()
        for resource, free in enumerate(room):
            requests = [group.requests[resource] for group in self._packing.groups]
            unit = math.gcd(*requests) or 1
            for node, amount in enumerate(free.tolist()):
                asking = [
                    (request // unit, int(running[node]), on[node])
                    for request, running, on in zip(requests, all_running, self._on, strict=True)
                    if request and node in on
                ]
                # What runs on a node that is overcommitted may stay.
                most = max(amount // unit, sum(request * here for request, here, _ in asking))
                used = self._sum(
                    [pods for _, _, pods in asking], [request for request, _, _ in asking]
                )
                self._model.add(used <= most)

    def _bound_by_budgets(self, budgets: Sequence[int]) -> None:
        for number, allowed in enumerate(budgets):
            leaving = [
                pods
                for group, nodes in zip(self._packing.groups, self._leaving, strict=True)
                if number in group.budgets
                for pods in nodes.values()
            ]
            self._model.add(self._sum(leaving) <= allowed)

    def _add_free_nodes(self, can_be_free: BoolColumn) -> None:
        for node in np.flatnonzero(can_be_free).tolist():
            self._free[node] = free = self._model.new_bool_var("")
            for on in self._on:
                if node in on:
                    self._model.add(on[node] == 0).only_enforce_if(free)
        self._model.add(self._sum([*self._free.values()]) <= self._packing.free_nodes)

    def _sum(
        self, variables: Sequence[SolverVariable], factors: Sequence[int] = ()
    ) -> SolverVariable:
        if factors:
            return self._cp.LinearExpr.weighted_sum(variables, factors)
        return self._cp.LinearExpr.sum(variables)

    def _solve(self, seconds: float, effort: float, ideal: int) -> tuple[Counts, int]:
        """Return the best solution that is found, and the bound."""
        solver = self._cp.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.max_deterministic_time = effort
        solver.parameters.random_seed = self._seed
        if effort == math.inf:
            solver.parameters.num_workers = _WORKERS
            solver.parameters.interleave_search = True
        else:
            solver.parameters.num_workers = 1
        self._hint()
        status = solver.solve(self._model)
        self.seconds += solver.wall_time
        if status not in {self._cp.OPTIMAL, self._cp.FEASIBLE}:
            return self.counts, ideal
        counts = self.counts.copy()
        for group, on in enumerate(self._on):
            for node, pods in on.items():
                counts[group, node] = solver.value(pods)
        return counts, round(solver.best_objective_bound)

    def _hint(self) -> None:
        """Let the search begin with the best solution so far."""
        self._model.clear_hints()
        packing, counts = self._packing, self.counts
        leaving, kept = _leaving(packing, counts), _kept(packing, counts)
        for group, on in enumerate(self._on):
            for node, pods in on.items():
                self._model.add_hint(pods, int(counts[group, node]))
            for node, pods in self._leaving[group].items():
                self._model.add_hint(pods, int(leaving[group, node]))
            self._model.add_hint(self._kept[group], int(kept[group]))

    def _expression(self, goal: Goal) -> SolverVariable:
        if goal.aim is RepackAim.LEAVING:
            return self._sum([pods for nodes in self._leaving for pods in nodes.values()])
        if goal.aim is RepackAim.FREE:
            return self._sum([*self._free.values()])
        kept = self._sum([self._kept[at] for at in goal.groups])
        if goal.aim is RepackAim.KEPT:
            return kept
        return self._sum([pods for at in goal.groups for pods in self._on[at].values()]) - kept


def _leaving(packing: Packing, counts: Counts) -> Counts:
    """Return how many pods leave each node."""
    leaving: Counts = np.maximum(packing.running() - counts, 0)
    return leaving


def _kept(packing: Packing, counts: Counts) -> IntColumn:
    """Return how many running pods of each group have a node, (groups,)."""
    kept: IntColumn = np.minimum(counts.sum(axis=1), packing.running().sum(axis=1))
    return kept


def _value(goal: Goal, packing: Packing, counts: Counts) -> int:
    """Return how far a goal is reached."""
    if goal.aim is RepackAim.LEAVING:
        return int(_leaving(packing, counts).sum())
    if goal.aim is RepackAim.FREE:
        free = int((packing.can_be_free & ~counts.any(axis=0)).sum())
        return min(free, packing.free_nodes)
    kept = _kept(packing, counts)
    pods = kept if goal.aim is RepackAim.KEPT else counts.sum(axis=1) - kept
    return int(pods[[*goal.groups]].sum())


def _ideal(goal: Goal, packing: Packing) -> int:
    """Return the value that would be best, whether it can be or not."""
    if goal.aim is RepackAim.LEAVING:
        return 0
    if goal.aim is RepackAim.FREE:
        return min(int(packing.can_be_free.sum()), packing.free_nodes)
    if goal.aim is RepackAim.KEPT:
        return int(packing.running()[[*goal.groups]].sum())
    return sum(packing.groups[at].waiting for at in goal.groups)
