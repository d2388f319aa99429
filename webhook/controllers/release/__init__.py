"""The release of held pods, in an order, as quotas, gangs and preemption let them go.

What belongs here: the controller of the leader, its writes, and what it learns from refusals and
bindings. What never does: which node is better, and who is held.
"""

from webhook.controllers.release.conditions import QueuedConditions, Wait
from webhook.controllers.release.controller import ReleaseController
from webhook.controllers.release.decided_pods import DecidedPods, WriteParts
from webhook.controllers.release.gang_decider import GangDecider, GangDecision, GangPart
from webhook.controllers.release.gangs import Gangs, QueueTurns
from webhook.controllers.release.metrics import ReleaseCollector, ReleaseMetrics
from webhook.controllers.release.parts import ReleaseParts
from webhook.controllers.release.pod_writer import PodWriter
from webhook.controllers.release.preemptors import Preemptors
from webhook.controllers.release.quota_pace import QuotaPace
from webhook.controllers.release.quota_queue import QuotaQueue
from webhook.controllers.release.reclaims import BlockedPod, Reclaims
from webhook.controllers.release.refusals import Refusals
from webhook.controllers.release.releasing import ReleasingStatus
from webhook.controllers.release.scheduler_lease import SchedulerLease
from webhook.controllers.release.states import DecidedPod, ReleaseDecision
from webhook.controllers.release.surging_pods import SurgingPods
from webhook.controllers.release.unbound_releases import UnboundReleases
from webhook.controllers.release.write_error import WriteError, WriteFailure

__all__ = [
    "BlockedPod",
    "DecidedPod",
    "DecidedPods",
    "GangDecider",
    "GangDecision",
    "GangPart",
    "Gangs",
    "PodWriter",
    "Preemptors",
    "QueueTurns",
    "QueuedConditions",
    "QuotaPace",
    "QuotaQueue",
    "Reclaims",
    "Refusals",
    "ReleaseCollector",
    "ReleaseController",
    "ReleaseDecision",
    "ReleaseMetrics",
    "ReleaseParts",
    "ReleasingStatus",
    "SchedulerLease",
    "SurgingPods",
    "UnboundReleases",
    "Wait",
    "WriteError",
    "WriteFailure",
    "WriteParts",
]
