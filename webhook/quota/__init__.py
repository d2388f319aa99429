"""ElasticQuota at admission, live: reservations that all replicas share.

Belongs here: how requests wait, are judged together and written by compare-and-swap, what this
replica's watch has observed of them, and the Events about denials. Never: the arithmetic of a quota
(`engine.quota`), and the form of a review (`webhook.admission`).

`webhook.quota.api_store` is not imported here: it is for live clusters alone, and slow to import.
"""

from webhook.quota.config import MonotonicClock, QuotaConfig
from webhook.quota.deployment_pods import DeploymentPods
from webhook.quota.events import QuotaEventRecorder
from webhook.quota.ledger import QuotaLedger
from webhook.quota.metrics import QuotaCollector
from webhook.quota.observed import ObservedCluster, ObservedPods, observe_cluster
from webhook.quota.store import MemoryStore

__all__ = [
    "DeploymentPods",
    "MemoryStore",
    "MonotonicClock",
    "ObservedCluster",
    "ObservedPods",
    "QuotaCollector",
    "QuotaConfig",
    "QuotaEventRecorder",
    "QuotaLedger",
    "observe_cluster",
]
