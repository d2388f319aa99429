"""Sources of plans: for whom others may be evicted, and whom.

The steps of an eviction, and the guards, are the same for all: `Reclaim` carries out plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from engine.model.elastic_quota import ReclaimMode
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.reclaim import NoPlan, Plan
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.release.reclaims import BlockedPod
from webhook.placement.held_pods import HeldPod


class EventReasons(NamedTuple):
    """The reasons of Events, such as `WouldReclaim`, `Reclaiming` and `Reclaimed`.

    Attributes:
        would_evict: on the pod that waits, in mode DryRun.
        evicting: on the pod that waits.
        evicted: on each victim.
    """

    would_evict: str
    evicting: str
    evicted: str


class PlanSource(Protocol):
    """Who gets room by evictions, and by whose.

    Where a pod waits in several sources the first that has a plan evicts for it, those in mode On
    before those in mode DryRun.
    """

    @property
    def name(self) -> str:
        """The value of the label `source` in metrics."""

    @property
    def wait_reason(self) -> QueuedReason:
        """The reason of the condition of a pod while its victims end."""

    @property
    def after(self) -> Micros:
        """Time for which a pod waits before others are evicted for it."""

    @property
    def event_reasons(self) -> EventReasons:
        """How its Events are named."""

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the held pods that may get room by evictions, in queue order."""

    def mode_of(self, held: HeldPod) -> ReclaimMode:
        """Return what is to be done for a pod; nobody is evicted for one that is not On."""

    def together(self, held: HeldPod) -> Sequence[HeldPod]:
        """Return the held pods that get room with one, itself among them, in a fixed order.

        None where it gets none now. The first of them stands for all where one must.
        """

    async def plan(self, pods: Sequence[HeldPod], guards: Guards) -> Plan | NoPlan:
        """Return which pods are to be evicted for held pods, wherever they are nominated to.

        Events come in between; a plan is right for the moment at which it is returned.

        Args:
            pods: those of `together`; within the limits of a decision, so that their objects are
                known.
            guards: what evictions there were so far.
        """
