"""Where the dashboard's pages get their reports from."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec

from engine.binding import BINDING_REASON_ANNOTATION, SCHEDULER_NODE_ANNOTATION, BindingAction
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import Pod, pod_of
from engine.pipeline import Scope
from engine.placement import REASON_ANNOTATION, as_submitted
from engine.policy import PolicySet
from engine.quota.queueing import QueueRules
from engine.release import creation_of
from engine.report import (
    BindingReport,
    BindingStatus,
    Crowd,
    DecisionReport,
    NodeReport,
    NodesReport,
    OutcomeReport,
    PodName,
    PodReport,
    PodsReport,
    PoliciesReport,
    QueueReport,
    QuotasReport,
    RefusedPolicy,
    decision_report,
    node_report,
    nodes_report,
    pods_report,
    policies_report,
    quotas_report,
    thresholds_of,
)
from engine.view import NO_ROW, ClusterView, WhatIf
from webhook.cluster import Cluster
from webhook.cluster.client.connection import ApiError, Connection
from webhook.dashboard.readers import UnavailableError
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import LivePolicies, PolicyCounts
from webhook.placement.placer import MOST_BYTES, Placer, beyond_limits
from webhook.placement.policy_files import Acceptance

ReadPod: TypeAlias = Callable[[str, str], Awaitable[bytes | None]]
"""Returns a pod as JSON by namespace and name, None where there is none.

Raises `UnavailableError` where nobody knows.
"""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Of objects, as the API server has them: with others a path would be of something else."""

_log = logging.getLogger(__name__)


def stored_pods(connection: Connection) -> ReadPod:
    """Return what reads pods from an API server."""

    async def read(namespace: str, name: str) -> bytes | None:
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            return None
        try:
            return await connection.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            _log.warning("pod %s/%s cannot be read: %s", namespace, name, error)
            text = f"the API server does not answer with the pod: {error}"
            raise UnavailableError(HTTPStatus.SERVICE_UNAVAILABLE, text) from error

    return read


_NODES_EXPLAINED: Final = 20
_INPUTS_EXPLAINED: Final = 3
_MOST_RECORDED: Final = 20  # whose keys contain that of the pod
_decode: Final = msgspec.json.Decoder(api.Pod).decode
_decode_report: Final = msgspec.json.Decoder(DecisionReport).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDecisions:
    """Decides for pods of a cluster again, without a trace.

    Attributes:
        cluster: the cluster.
        policies: those in force.
        scope: the pods that they place.
        explanations: of the latest decisions.
        clock: monotonic seconds that limit the evaluation of expressions.
    """

    cluster: Cluster
    policies: Callable[[], PolicySet]
    scope: Scope
    explanations: Explanations
    clock: Callable[[], float]

    def report(self, raw: bytes, node: str = "") -> PodReport:
        """Return the report on a pod."""
        pod = pod_of(_decode(raw))
        problem, recorded = self._problem(raw), self._recorded(pod)
        return PodReport(
            pod=PodName(pod.namespace, pod.name),
            node=pod.node_name,
            expected_node=self.cluster.state.assumed_node(pod.key),
            is_held=pod.is_held,
            binding=(recorded and recorded.binding) or _noted_binding(pod),
            noted=pod.annotations.get(REASON_ANNOTATION, ""),
            recorded=recorded,
            now=None if problem else self._decided_now(raw, node or pod.node_name),
            problem=problem,
        )

    def _problem(self, raw: bytes) -> str:
        if len(raw) > MOST_BYTES:
            return f"it is larger than {MOST_BYTES // 1024} KiB"
        too_much = beyond_limits(_decode(raw))
        return f"it has {too_much}" if too_much else ""

    def _recorded(self, pod: Pod) -> DecisionReport | None:
        """Return the newest decision for a pod that was created by this name."""
        for text in self.explanations.latest(pod=pod.key, limit=_MOST_RECORDED):
            report = _decode_report(text)
            if str(report.pod) == pod.key:
                return report
        return None

    def _decided_now(self, raw: bytes, node: str) -> DecisionReport:
        """Return the decision for a pod as if it was created now, and counted nowhere yet."""
        submitted = as_submitted(raw)
        pod = pod_of(_decode(submitted), kubernetes=self.cluster.state.kubernetes)
        request = PlacementRequest(pod=pod, raw=submitted, request=creation_of(pod))
        view = self._without(pod.key)
        placer = Placer(
            view=lambda: view,
            now=self.cluster.now,
            scope=self.scope,
            clock=self.clock,
            freshness=self.cluster.freshness,
        )
        decision, _ = placer.decide(request, self.policies())
        return decision_report(
            decision, most_nodes=_NODES_EXPLAINED, most_inputs=_INPUTS_EXPLAINED, node=node
        )

    def _without(self, key: str) -> ClusterView:
        """Return the cluster without a pod: it competes with others, not with itself."""
        view, entry = self.cluster.view(), self.cluster.state.entry(key)
        if entry is None or entry.row == NO_ROW:
            return view
        what_if = WhatIf(view)
        what_if.remove([(key, entry)])
        return what_if.view


def _noted_binding(pod: Pod) -> BindingReport | None:
    """Return what became of a pod at its binding, as it is noted on the pod by whoever decided."""
    scheduler_node = pod.annotations.get(SCHEDULER_NODE_ANNOTATION, "")
    if not (scheduler_node and pod.node_name):
        return None
    is_moved = pod.node_name != scheduler_node
    return BindingReport(
        action=str(BindingAction.MOVE if is_moved else BindingAction.KEEP),
        reason=pod.annotations.get(BINDING_REASON_ANNOTATION, ""),
        scheduler_node=scheduler_node,
        node=pod.node_name,
        message=pod.annotations.get(REASON_ANNOTATION, ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """A cluster as the dashboard shows it.

    A report is made on the event loop, in milliseconds, and holds no view; a page is made of it in
    a thread.

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
        """Return a pod with its decisions, None where there is none."""
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
