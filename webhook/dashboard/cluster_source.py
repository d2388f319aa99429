"""The reports of a cluster, live or recorded, by the policies in force."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass

import msgspec

from engine.quota.queueing import QueueRules
from engine.report import (
    BindingStatus,
    Crowd,
    NodeReport,
    NodesReport,
    OutcomeReport,
    PodReport,
    PodsReport,
    PoliciesReport,
    QueueReport,
    QuotasReport,
    RefusedPolicy,
    node_report,
    nodes_report,
    pods_report,
    policies_report,
    thresholds_of,
)
from webhook.cluster import Cluster
from webhook.dashboard.pod_decisions import PodDecisions
from webhook.dashboard.pods import ReadPod
from webhook.dashboard.quotas import quotas_report
from webhook.placement.live_policies import LivePolicies
from webhook.placement.policy_counts import PolicyCounts
from webhook.placement.policy_resources import Acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """A cluster as this process knows it: a `DashboardSource`.

    Attributes:
        name: of the cluster, for people.
        cluster: the cluster.
        policies: those in force.
        counts: of what they decided; None where nothing is decided here.
        rules: by which pods count in quotas and wait for them.
        decisions: for pods.
        read_pod: where pods are read from.
        outcome: where pods of the policies were bound; None where nobody knows.
        waits_for_cluster: whether nothing is shown before the whole cluster is read.
        held: the held pods in order, of a namespace or ("") of all; None where none is held.
        bindings: what became of bindings; None where nobody decides them.
        crowd: the most replicas of one owner on one node; None where nobody counts.
    """

    name: str
    cluster: Cluster
    policies: LivePolicies
    counts: PolicyCounts | None
    rules: QueueRules
    decisions: PodDecisions
    read_pod: ReadPod
    outcome: Callable[[], Awaitable[OutcomeReport]] | None
    held: Callable[[str], QueueReport] | None
    waits_for_cluster: bool = False
    bindings: Callable[[], BindingStatus] | None = None
    crowd: Callable[[], Crowd] | None = None

    @property
    def is_live(self) -> bool:
        """Whether anything of it may change."""
        return self.cluster.is_live

    @property
    def has_queue(self) -> bool:
        """Whether pods may be held."""
        return self.held is not None

    @property
    def missing(self) -> tuple[str, ...]:
        """What is not read yet since the start, and pages wait for."""
        if not self.waits_for_cluster:
            return ()
        sources = self.cluster.sources.values()
        return tuple(source.name for source in sources if not source.sync_settled)

    def version(self) -> int:
        """Return a number that grows with every event."""
        return self.cluster.state.version

    def nodes(self) -> NodesReport:
        """Return the nodes."""
        return nodes_report(
            self.cluster.view(),
            self.cluster.now(),
            thresholds=thresholds_of(self.policies.current),
            stale=tuple(self.cluster.freshness().stale.values()),
            crowd=None if self.crowd is None else self.crowd(),
        )

    def node(self, name: str) -> NodeReport | None:
        """Return a node with its pods, None where there is none."""
        return node_report(self.cluster.state, self.nodes(), name)

    def pods(self, namespace: str, text: str) -> PodsReport:
        """Return the pods of a namespace, "" for all, whose name contains a text."""
        return pods_report(self.cluster.state, namespace, text)

    async def pod(self, namespace: str, name: str, node: str) -> PodReport | None:
        """Return a pod with its decisions, None where there is none.

        Args:
            namespace: of the pod.
            name: of the pod.
            node: to be told of in any case; "" for none.

        Raises:
            UnavailableError: it cannot be read now.
        """
        raw = await self.read_pod(namespace, name)
        return None if raw is None else self.decisions.report(raw, node)

    def quotas(self, namespace: str, groups: Container[str]) -> QuotasReport:
        """Return the quotas of a namespace, "" for all, and of some API groups."""
        return quotas_report(self.cluster.state, self.rules, namespace=namespace, groups=groups)

    def queue(self, namespace: str) -> QueueReport:
        """Return the held pods of a namespace, "" for all, in the order of their release."""
        if self.held is None:
            return QueueReport(queue_sort="", held=0, overdue=0, releaser=None, pods=())
        return self.held(namespace)

    async def policies_in_force(self) -> PoliciesReport:
        """Return the policies in force."""
        outcome = None if self.outcome is None else await self.outcome()
        policies, counts = self.policies, self.counts
        current = policies.current
        report = policies_report(
            current,
            decisions=None if counts is None else counts.decisions(current),
            rejections=None if counts is None else counts.rejections(current),
            outcome=outcome,
            digest=policies.digest,
            loaded_at=policies.loaded_at.isoformat(timespec="seconds"),
            last_reload_error=policies.last_error,
        )
        refused = tuple(
            RefusedPolicy(
                name=each.resource.policy_name,
                reason=each.acceptance.value,
                message="\n".join(map(str, each.problems)),
            )
            for each in policies.standings
            if each.acceptance is not Acceptance.ACCEPTED
        )
        bindings = None if self.bindings is None else self.bindings()
        return msgspec.structs.replace(report, refused=refused, bindings=bindings)
