"""Reviews of pods against ElasticQuotas. Errors are raised: the failure policy decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from engine.model import api
from engine.model.elastic_quota import NAME_LABEL
from engine.model.hold import is_queued
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.pod import DeploymentPod, Pod, deployment_pod_of
from engine.model.quantity import PODS
from engine.model.resources import Amounts
from engine.quota import (
    DEFAULT_RESERVATION_SECONDS,
    RESOURCE_QUOTA_RULES,
    QuotaMode,
    QuotaRequest,
    QuotaRules,
    QuotaVerdict,
    Reservation,
    judge_queued,
    mode_of,
    quotas_of,
)
from engine.quota.tree import QuotaPaths
from engine.view import ClusterView
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult, ignored, pod_in, requests_in
from webhook.admission.wire import AdmissionError, AdmissionRequest, LargePods, LargePodsError
from webhook.quota import QuotaLedger


@dataclass(frozen=True, slots=True)
class Demand:
    reservation: Reservation  # to be made
    is_queued: bool = False  # whether it is not to be made yet: the pod waits for quota
    quota_name: str = ""  # the quota of Koordinator that the pod's label names, "" for none
    # the Deployment of a pod that is charged as a whole, None for none
    of: DeploymentPod | None = None


def demand_of(
    request: AdmissionRequest, *, queues: bool, kubernetes: KubernetesVersion = ASSUMED
) -> Demand | None:
    """Return what a new pod, or a change of one, asks for; None for nothing.

    Args:
        request: to create or to change a pod.
        queues: whether pods that wait for quota hold nothing until they wait no longer.
        kubernetes: the version by which pods are counted. INVARIANT: that of the view, by which
            they are counted as used.
    """
    new = request.pod()
    waits, label = _is_queued(new), (new.metadata.labels or {}).get(NAME_LABEL, "")
    if request.creates_pod:
        # The uid is final in the validating phase.
        amounts = {**requests_in(new, kubernetes), PODS: 1}
        whole = Reservation(new.metadata.uid or request.uid, new.metadata.name, amounts)
        return Demand(whole, waits and queues, label, _deployment_of(new))
    old = request.old_pod()
    if _is_queued(old) and not waits:
        release = _release(new, old, request.uid, kubernetes)
        return Demand(release, quota_name=label, of=_deployment_of(new))
    if waits and queues:
        return None  # all that it requests by then is judged when it waits no longer
    # The kubelet writes what it has allocated: a report, not a request.
    if request.sub_resource == "status":
        return None
    return Demand(_change(new, old, request.uid, kubernetes), quota_name=label)


def _is_queued(pod: api.Pod) -> bool:
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    return is_queued(gates, pod.metadata.annotations or {})


def _deployment_of(pod: api.Pod) -> DeploymentPod | None:
    meta = pod.metadata
    kinds = [owner.kind for owner in meta.owner_references or ()]
    return deployment_pod_of(meta.generate_name, meta.labels or {}, kinds)


def _release(
    new: api.Pod, old: api.Pod, request: str, kubernetes: KubernetesVersion
) -> Reservation:
    """Return the reservation of a pod that waits no longer: all that it requests.

    Where queued pods are counted as used, it is charged what that does not cover.
    """
    amounts, version = {**requests_in(new, kubernetes), PODS: 1}, _version(old)
    return Reservation(new.metadata.uid, new.metadata.name, amounts, version, request, whole=True)


def _change(new: api.Pod, old: api.Pod, request: str, kubernetes: KubernetesVersion) -> Reservation:
    """Return the reservation of what a pod requests in addition, as ResourceQuota charges it.

    The API server stores the new object as the successor of exactly the old one, or sends another
    review. So any later version of the pod, once observed, shows the outcome of this request.
    """
    amounts = _more(requests_in(new, kubernetes), requests_in(old, kubernetes))
    version = _version(old) if amounts else old.metadata.version
    return Reservation(new.metadata.uid, new.metadata.name, amounts, version, request)


def _version(stored: api.Pod) -> int:
    if not stored.metadata.version:
        raise AdmissionError("the old object has no resourceVersion")
    return stored.metadata.version


def _more(after: Amounts, before: Amounts) -> dict[str, int]:
    """Return what was added to some amounts."""
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount > 0}


_MOST_RESOURCES: Final = 1_000
"""Resources that a pod may name; they are compared on the event loop. No node offers as many."""


@dataclass(kw_only=True, eq=False)
class QuotaReviews:
    """Answers the reviews of the validating webhook, where pods are final."""

    ledger: QuotaLedger  # the reservations of quota
    view: Callable[[], ClusterView]  # the cluster
    mode: QuotaMode  # effect of an exceeded quota in namespaces that name none
    excluded_namespaces: Collection[str]  # those whose pods are always admitted
    rules: QuotaRules = RESOURCE_QUOTA_RULES  # what is compared
    # whether pods that wait for quota hold nothing of it; as the view counts them
    queues: bool = True
    # where large pods are decoded, in a thread of their own
    large_pods: LargePods = field(default_factory=LargePods)
    # called with each denied request, but for dry runs
    record_denial: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None
    # called with each new pod that is denied, but for dry runs: it counts no longer on the node it
    # was advised to take
    withdraw: Callable[[Pod], object] = lambda _pod: None
    # the newest version at which the view had a pod, by its uid; 0 for none
    version_of: Callable[[str], int] = lambda _uid: 0
    # how long an admitted pod counts in the tree that the view never had
    unseen_seconds: float = DEFAULT_RESERVATION_SECONDS
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward

    def __post_init__(self) -> None:
        self._paths = QuotaPaths(
            self.rules, version_of=self.version_of, unseen_seconds=self.unseen_seconds
        )

    async def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a pod fits the quotas of its namespace; if so, its share is reserved.

        A new pod that waits for quota is reserved nothing: the change by which it waits no longer
        is judged as its creation, whoever makes it.

        A pod that cannot be judged, for it is too large or unreadable, is denied where it is
        limited: were it an error, the failure policy could admit it.
        """
        mode = self._mode_of(request.namespace)
        if mode == "Off" or not (request.creates_pod or request.changes_pod):
            return ignored(request)
        try:
            demand = await self._demand(request)
        except (AdmissionError, LargePodsError) as error:
            return self._unchecked(request, error, mode)
        if demand is None:
            return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid))
        verdict = await self._verdict(request, demand)
        if verdict.allowed:
            outcome = Outcome.QUEUED if demand.is_queued else Outcome.ADMITTED
            return ReviewResult(outcome, wire.allowed(request.uid))
        if mode != "Audit" and request.creates_pod and not (request.dry_run or request.is_large):
            self.withdraw(pod_in(request))
        return self._over_quota(request, verdict, mode)

    async def _verdict(self, request: AdmissionRequest, demand: Demand) -> QuotaVerdict:
        """Return the verdict on what a request asks for, which is reserved unless it waits."""
        namespace, reservation = request.namespace, demand.reservation
        judge_above = self._paths.judge_queued if demand.is_queued else self._paths.judge
        above = judge_above(
            self.view(),
            namespace,
            demand.quota_name,
            reservation,
            self.clock(),
            dry_run=bool(request.dry_run),
        )
        if not above.allowed:
            return above
        if not demand.is_queued:
            quota_request = QuotaRequest(
                reservation,
                bool(request.dry_run),
                demand.of,
                has_no_turn=self._has_no_turn(namespace, reservation),
            )
            verdict = await self.ledger.admit(namespace, quota_request)
            if not verdict.allowed:
                self._paths.withdraw(reservation.key)
            return verdict
        if not self.ledger.has_quota(namespace):
            return QuotaVerdict()
        view = self.view()
        waiting = view.namespaces.queued.get(namespace, {}).get(PODS, 0)
        quotas = quotas_of(view, namespace)
        return judge_queued(reservation.amounts, waiting, quotas, self.rules)

    def _has_no_turn(self, namespace: str, reservation: Reservation) -> bool:
        """Return whether other pods of a namespace wait for their turn, and this one asks without.

        Whoever ends a wait has had one: the guard of the gate says who may.
        """
        is_without = bool(reservation.amounts) and not reservation.whole
        return is_without and self.queues and self._mode_of(namespace) == "Queue"

    def _over_quota(
        self, request: AdmissionRequest, verdict: QuotaVerdict, mode: QuotaMode
    ) -> ReviewResult:
        audit = {"quota": verdict.message}
        if mode != "Audit":
            # A pod that is not released yet is no loss: it waits on.
            is_release = request.changes_pod and request.sub_resource != "resize"
            if not (request.dry_run or is_release):
                self.record_denial(request.namespace, verdict)
            response = wire.denied(request.uid, verdict.message, audit_annotations=audit)
            return ReviewResult(Outcome.QUOTA_DENIED, response)
        warning = f"admitted for quota is in Audit mode: {verdict.message}"
        response = wire.allowed(request.uid, warnings=[warning], audit_annotations=audit)
        return ReviewResult(Outcome.QUOTA_AUDITED, response)

    def _mode_of(self, namespace: str) -> QuotaMode:
        if namespace in self.excluded_namespaces:
            return "Off"
        return mode_of(self.view(), namespace, self.mode)

    def _unchecked(
        self, request: AdmissionRequest, error: AdmissionError | LargePodsError, mode: QuotaMode
    ) -> ReviewResult:
        """Result for a pod that the API server can store, and that cannot be judged."""
        if not self.ledger.has_quota(request.namespace):
            return ReviewResult(Outcome.UNREADABLE, wire.allowed(request.uid))
        names = tuple(quota.name for quota in quotas_of(self.view(), request.namespace))
        message = f"pod not checked against quota {', '.join(names)}: {error}"
        return self._over_quota(request, QuotaVerdict(exceeded=names, message=message), mode)

    async def _demand(self, request: AdmissionRequest) -> Demand | None:
        """Return what a request asks for, None for nothing."""
        view = self.view()
        is_limited = bool(quotas_of(view, request.namespace)) or self._paths.may_have(view)
        judge = partial(demand_of, request, queues=self.queues, kubernetes=view.kubernetes)
        if not (request.is_large or request.is_too_large):
            demand = judge()
        elif not is_limited:
            return Demand(Reservation(request.uid, request.name, {}))
        elif request.is_too_large:
            raise LargePodsError("the pod is too large")
        else:
            demand = await self.large_pods.run(request.namespace, judge)
        names = () if demand is None else demand.reservation.amounts
        if is_limited and len(names) > _MOST_RESOURCES:
            raise LargePodsError(f"the pod names more than {_MOST_RESOURCES} resources")
        return demand
