"""The ledger of a live cluster, joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.quota import RESOURCE_QUOTA_RULES, QuotaRules
from engine.view import ClusterState
from webhook.cluster.client.connection import Connection
from webhook.cluster.watch.source_status import SourceStatus
from webhook.quota.api_store import ApiStore
from webhook.quota.ledger import QuotaLedger
from webhook.quota.observed_cluster import ObservedCluster, QuotaTiming, all_synced
from webhook.quota.observed_pods import ObservedPods


def live_ledger(
    connection: Connection,
    state: ClusterState,
    sources: Mapping[str, SourceStatus],
    seen: ObservedPods,
    timing: QuotaTiming | None = None,
    *,
    rules: QuotaRules = RESOURCE_QUOTA_RULES,
    count_write: Callable[[str], None] = lambda _: None,
) -> QuotaLedger:
    """Return the ledger of a live cluster.

    Args:
        connection: to its API server.
        state: what the sources tell.
        sources: of pods and of ElasticQuotas among others, by name.
        seen: an observer of the pods of the same cluster.
        timing: what time is.
        rules: what is compared.
        count_write: told what came of each write.
    """
    pods = sources["pods"]
    quotas = [one for name, one in sources.items() if name.startswith("elasticquotas.")]

    def quotas_known() -> bool:
        return all_synced(quotas)

    # Until quotas are known, any pod may have a reservation.
    seen.matters = lambda namespace: state.has_quota(namespace) or not quotas_known()
    sight = ObservedCluster(
        view=state.view,
        seen=seen,
        observed_version=lambda: pods.version,
        quotas_synced=quotas_known,
    )
    return QuotaLedger(sight, ApiStore(connection), timing, rules=rules, count_write=count_write)
