"""The release of held pods, in an order, as quotas, gangs and preemption let them go.

What belongs here: the controller of the leader, its writes, and what it learns from refusals and
bindings. What never does: which node is better, who is held, and the state of a held pod
(`engine.release`).
"""

from webhook.controllers.release.conditions import Wait
from webhook.controllers.release.context import (
    ReleaseCollector,
    ReleaseContext,
    ReleaseMetrics,
    ReleaseRules,
)
from webhook.controllers.release.controller import ReleaseController
from webhook.controllers.release.gangs import (
    GangDecider,
    GangDecision,
    GangPart,
    Gangs,
    QueueTurns,
)
from webhook.controllers.release.nominations import Nominations, ReleasedPods
from webhook.controllers.release.pod_writer import PodWriter, WriteError
from webhook.controllers.release.quota_queue import QuotaPace, QuotaQueue, SurgingPods
from webhook.controllers.release.releases import Releases

__all__ = [
    "GangDecider",
    "GangDecision",
    "GangPart",
    "Gangs",
    "Nominations",
    "PodWriter",
    "QueueTurns",
    "QuotaPace",
    "QuotaQueue",
    "ReleaseCollector",
    "ReleaseContext",
    "ReleaseController",
    "ReleaseMetrics",
    "ReleaseRules",
    "ReleasedPods",
    "Releases",
    "SurgingPods",
    "Wait",
    "WriteError",
]
