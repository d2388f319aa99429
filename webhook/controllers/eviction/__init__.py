"""Evictions for pods that wait, and of what quotas use above their runtime.

Belongs here: the controller of the leader that carries out plans of all sources step by
step, the evictions, and their Events, guards and metrics. Never: who is evicted for whom
(`engine.eviction`), and releases.
"""

from webhook.controllers.eviction.context import EvictionContext, QuotasOfMoment
from webhook.controllers.eviction.controller import EvictionController, build
from webhook.controllers.eviction.guards import Guards, RunningPods
from webhook.controllers.eviction.plans import PlanInputs
from webhook.controllers.eviction.sources import WaitingForQuota, quotas_without
from webhook.controllers.eviction.writer import EvictionMetrics, EvictionResult, EvictionWriter

__all__ = [
    "EvictionContext",
    "EvictionController",
    "EvictionMetrics",
    "EvictionResult",
    "EvictionWriter",
    "Guards",
    "PlanInputs",
    "QuotasOfMoment",
    "RunningPods",
    "WaitingForQuota",
    "build",
    "quotas_without",
]
