"""What the release controller works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.model.elastic_quota import ReclaimMode
from engine.queue import QueueOrder
from webhook.controllers.release.decided_pods import DecidedPods, WriteParts
from webhook.controllers.release.gangs import Gangs
from webhook.controllers.release.preemptors import Preemptors
from webhook.controllers.release.quota_pace import QuotaPace
from webhook.controllers.release.reclaims import Reclaims
from webhook.controllers.release.scheduler_lease import SchedulerLease
from webhook.placement.held_pods import HeldPod


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseParts:
    """What the release controller works with.

    Attributes:
        writes: what writes work with.
        decided: writes pods that are to be released.
        gangs: the gangs whose members are held.
        order: of the held pods.
        pace: how long they wait for their quotas.
        scheduler_lease: tells when the scheduler was restarted.
        reclaims: the pods that others are evicted for.
        node_for: a node that would take a held pod that counts on none, "" for none.
        preemption_of: what the policy of a held pod says of preemption.
        preemptors: the pods that no node takes, and that others may be evicted for.
    """

    writes: WriteParts
    decided: DecidedPods
    gangs: Gangs
    order: QueueOrder
    pace: QuotaPace
    scheduler_lease: SchedulerLease
    reclaims: Reclaims = field(default_factory=Reclaims)
    node_for: Callable[[HeldPod], str] = lambda _held: ""
    preemption_of: Callable[[HeldPod], ReclaimMode] = lambda _held: ReclaimMode.OFF
    preemptors: Preemptors = field(default_factory=Preemptors)
