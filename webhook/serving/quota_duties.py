"""What the leader does for quotas: status, figures of those that queue, audit, and roll-out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.quota import Reach, quota_figures, quota_usages, reach_of
from webhook.cluster import Cluster
from webhook.cluster.client.connection import Connection
from webhook.cluster.client.watched_objects import Requests
from webhook.controllers.quota_audit import QuotaAudit
from webhook.controllers.quota_figures import QuotaFigureController
from webhook.controllers.quota_rollout import (
    QuotaCoverage,
    QuotaRolloutController,
    RolloutConfiguration,
    StoredQuotas,
)
from webhook.controllers.quota_status import ControllerRules, QuotaController
from webhook.controllers.release import QuotaPace
from webhook.quota import QuotaLedger
from webhook.serving.services import quota_config
from webhook.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDuties:
    """Builds the controllers of quotas.

    Attributes:
        connection: to the API server.
        watched: the same, for our configurations.
        cluster: in which quotas and pods are seen.
        settings: how quotas are judged.
        may_write: whether this replica leads.
    """

    connection: Connection
    watched: Requests
    cluster: Cluster
    settings: Settings
    may_write: Callable[[], bool]

    def status(
        self, ledger: QuotaLedger, show_drift: Callable[[str, int], None]
    ) -> QuotaController:
        """Return what keeps `status.used` right, and prunes reservations of a ledger."""
        return QuotaController(
            self.connection,
            view=self.cluster.state.view,
            prune=ledger.prune_reservations,
            config=quota_config(self.settings),
            may_write=self.may_write,
            show_drift=show_drift,
            rules=ControllerRules(counts=self.settings.quota_status_counts),
        )

    def audit(self, identity: str, show: Callable[[int], None]) -> QuotaAudit:
        """Return what reports quotas that use more than their `max`."""
        return QuotaAudit(
            self.connection,
            usages=lambda: quota_usages(self.cluster.state.view(), self.settings.quota_rules()),
            identity=identity,
            show=show,
            may_write=self.may_write,
        )

    def rollout(
        self, coverage: QuotaCoverage, show: Callable[[Reach], None]
    ) -> QuotaRolloutController:
        """Return what lets API servers ask about namespaces with a quota alone.

        Args:
            coverage: through which namespaces are added.
            show: called with the namespaces that are asked about.
        """
        view = self.cluster.state.view

        def known() -> Reach:
            quotas = chain.from_iterable(view().namespaces.quotas.values())
            return reach_of(quota.key for quota in quotas)

        return QuotaRolloutController(
            RolloutConfiguration(self.watched, self.settings.webhook_configurations[0]),
            coverage,
            known=known,
            stored=StoredQuotas(self.connection).reach,
            settle_seconds=self.settings.quota_reservation_seconds,
            may_write=self.may_write,
            show=show,
        )

    def figures(self, pace: QuotaPace) -> QuotaFigureController:
        """Return what writes the figures of quotas that queue on them.

        Args:
            pace: of their releases.
        """
        view, rules = self.cluster.state.view, self.settings.queue_rules()

        def quotas() -> Iterator[ElasticQuota]:
            return chain.from_iterable(view().namespaces.quotas.values())

        def annotations() -> dict[QuotaKey, dict[str, str]]:
            seen, firsts = view(), pace.first_waits()
            found = quota_figures(seen, rules.rules, rules.mode, capacity=rules.capacity(seen))
            return {
                key: each.annotations(firsts.get(key), pace.interval(key))
                for each in found
                for key in (each.usage.quota.key,)
            }

        return QuotaFigureController(
            self.connection, quotas=quotas, figures=annotations, may_write=self.may_write
        )
