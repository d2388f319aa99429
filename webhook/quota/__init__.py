"""ElasticQuota at admission, live: reviews of pods, and reservations that all replicas share.

What belongs here: how requests wait, are judged together and written by compare-and-swap, and what
this replica's watch has seen of them. What never does: the arithmetic of a quota (`engine.quota`).

`webhook.quota.api_store` is not imported here: it is for live clusters alone, and slow to import.
"""

from webhook.admission.quota import QuotaReviews
from webhook.quota.ledger import QuotaLedger
from webhook.quota.observed_cluster import ObservedCluster, QuotaTiming, all_synced
from webhook.quota.observed_pods import ObservedPods
from webhook.quota.store import MemoryStore

__all__ = [
    "MemoryStore",
    "ObservedCluster",
    "ObservedPods",
    "QuotaLedger",
    "QuotaReviews",
    "QuotaTiming",
    "all_synced",
]
