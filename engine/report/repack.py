"""What repacking a cluster would take: which running pods move, and what fits then."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from engine.errors import counted
from engine.report.decision import PodName


class RepackAim(StrEnum):
    """What a goal is about."""

    KEPT = "kept"  # running pods of a priority that still have a node: the more, the better
    PLACED = "placed"  # waiting pods of a priority that get a node: likewise
    FREE = "free"  # nodes without pods that could be elsewhere: likewise
    LEAVING = "leaving"  # running pods that leave their node: the fewer, the better


class StayReason(StrEnum):
    """Why a running pod is not moved, unless it is of a DaemonSet or static."""

    SYSTEM = "of the system, protected or being deleted"
    MARKED = "marked as not to be evicted"
    ALONE = "no controller would create it again"
    CLAIMS = "its volumes or devices may be on its node alone"
    NEIGHBOURS = "ports, spread or affinity depend on other pods"
    GANG = "a member of a gang"
    BUDGETS = "more than one disruption budget: the API server refuses"


class RepackGoal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a goal is reached, given how far those before it are.

    Attributes:
        aim: what it is about.
        priority: of the pods; 0 where it is about all.
        found: the value of the plan.
        bound: no plan has a better value; None where it is not known.
    """

    aim: RepackAim
    priority: int
    found: int
    bound: int | None


class RepackStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that leaves a node, goes to one, or both at once.

    Attributes:
        pod: the name that it has now; what its controller creates instead has another.
        owner: `namespace/name` of what made it; "" for nothing.
        source: the node that it leaves; "" where it is on none.
        target: the node that takes it; "" where a later step has it, or none.
    """

    pod: PodName
    owner: str = ""
    priority: int = 0
    source: str = ""
    target: str = ""


class RepackReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan that moves running pods.

    Attributes:
        recorded_at: ISO 8601.
        nodes: names.
        wanted_free: nodes that are to be free.
        waiting: pods that wait for a node now.
        placed: those of them that get one.
        moved: running pods that go to another node.
        displaced: running pods that give way to waiting ones of a higher priority, and wait.
        free_nodes: nodes on which nothing runs but pods of DaemonSets and static pods.
        steps: in an order in which each pod fits.
        unplaced: pods that wait still.
        staying: how many pods of how many kinds are not moved, by reason.
        goals: in their order.
        notes: how it was done, in sentences.
    """

    recorded_at: str
    nodes: tuple[str, ...]
    wanted_free: int
    waiting: int
    placed: int
    moved: int
    displaced: int
    free_nodes: tuple[str, ...]
    steps: tuple[RepackStep, ...]
    unplaced: tuple[PodName, ...]
    staying: Mapping[StayReason, int]
    goals: tuple[RepackGoal, ...]
    notes: tuple[str, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        """What was asked about, a sentence each."""
        return (self._placing(), *self._freeing(), self._moving())

    def _placing(self) -> str:
        if not self.waiting:
            return "No pod waits for a node."
        goals = [goal for goal in self.goals if goal.aim is RepackAim.PLACED]
        text = f"{self.placed:,} of {self.waiting:,} waiting pods get a node"
        if self.placed == self.waiting:
            return f"{text}."
        if all(goal.found == goal.bound for goal in goals):
            return f"{text}; no plan places more by priority."
        return f"{text}; whether more could is not known."

    def _freeing(self) -> tuple[str, ...]:
        if not self.wanted_free:
            return ()
        found = len(self.free_nodes)
        text = f"{counted(found, 'node')} of {self.wanted_free:,} wanted can be free"
        goal = next(goal for goal in self.goals if goal.aim is RepackAim.FREE)
        if found >= self.wanted_free:
            return (f"{text}.",)
        if goal.bound is None:
            return (f"{text}; whether more could is not known.",)
        return (f"{text}; no plan frees more than {goal.bound:,}.",)

    def _moving(self) -> str:
        text = f"{counted(self.moved, 'running pod')} would move"
        if self.displaced:
            text += f", {self.displaced:,} would give way to higher priorities and wait"
        goal = self.goals[-1]
        if not goal.found:
            return f"{text}."
        if goal.bound is None:
            return f"{text}; whether fewer would do is not known."
        fewest = "fewer are not enough" if goal.bound == goal.found else f"at least {goal.bound:,}"
        return f"{text}; {fewest}."
