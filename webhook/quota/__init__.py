"""ElasticQuota at admission, live: reservations that all replicas share.

Belongs here: how requests wait, are judged together and written by compare-and-swap, what this
replica's watch has observed of them, and the Events about denials. Never: the arithmetic of a quota
(`engine.quota`), and the form of a review (`webhook.admission`).

`webhook.quota.store` is not imported here: it is for live clusters alone, and slow to import.
"""

from webhook.quota.cache import (
    DeploymentPods,
    ObservedCluster,
    ObservedPods,
    QuotaConfig,
    observe_cluster,
)
from webhook.quota.ledger import QuotaLedger
from webhook.quota.metrics import QuotaCollector, QuotaEventRecorder
from webhook.quota.store import MemoryStore

__all__ = [
    "DeploymentPods",
    "MemoryStore",
    "ObservedCluster",
    "ObservedPods",
    "QuotaCollector",
    "QuotaConfig",
    "QuotaEventRecorder",
    "QuotaLedger",
    "observe_cluster",
]
