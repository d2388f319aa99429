"""Gangs that wait for room, as sources of plans see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from engine.batch import StartingGang
from engine.gang import GangKey
from engine.model.pod_shape import PodShape
from engine.preemption import NeedyGang
from engine.reclaim import NoPlan, NoPlanReason, Plan, Situation, Steps
from webhook.controllers.reclaim.plan_maker import Planner, Quotas
from webhook.controllers.release import GangPart
from webhook.controllers.release.reclaims import BlockedPod
from webhook.placement.held_pods import HeldPod

GangPlanner: TypeAlias = Callable[[Sequence[NeedyGang], Quotas, Situation], Steps[Plan | NoPlan]]


class WaitingGangs(Protocol):
    """The gangs that wait for room."""

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the first members of gangs that have no room as a whole, in queue order."""

    def waits(self, held: HeldPod) -> bool:
        """Return whether a pod is to be released with its gang, or never."""

    def parts_of(self, held: HeldPod) -> Sequence[GangPart]:
        """Return the gangs that start together with a member; none if they are not complete."""

    def running(self, gang: GangKey) -> Sequence[tuple[str, PodShape]]:
        """Return the nodes and shapes of the members of a gang that run."""


def together_with(held: HeldPod, gangs: WaitingGangs) -> Sequence[HeldPod]:
    """Return the members of a gang that get room together; of other pods the pod."""
    if not gangs.waits(held):
        return [held]
    return [each for part in gangs.parts_of(held) for each in part.members if each.raw]


def planner_for(pods: Sequence[HeldPod], gangs: WaitingGangs, planner: GangPlanner) -> Planner:
    """Return what makes plans for the members of a gang that get room together.

    Args:
        pods: the members, as they were when the plan was begun: nominations of ours change nothing.
        gangs: those that wait.
        planner: makes a plan for gangs.
    """
    needy, known = list[NeedyGang](), {held.pod.uid: held for held in pods}
    parts = gangs.parts_of(pods[0])
    if {each.pod.uid for part in parts for each in part.members if each.raw} != known.keys():
        return _changed
    for part in parts:
        members = [known[each.pod.uid] for each in part.members if each.raw]
        if members:
            starting = StartingGang(
                requests=[held.placement_request for held in members],
                topology=part.gang.topology,
                beside=part.beside,
            )
            running = gangs.running(part.gang.key)
            needy.append(NeedyGang(gang=part.gang, members=starting, running=running))
    return partial(planner, needy)


def _changed(_quotas: Quotas, _situation: Situation) -> Steps[Plan | NoPlan]:
    """Return that there is no plan for a gang that is another by now."""
    yield from ()
    return NoPlan(reason=NoPlanReason.STALE, message="members of the gang came or went")
