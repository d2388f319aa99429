"""Reviews of pods against ElasticQuotas. Errors are raised: the failure policy decides."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, Protocol

from engine.model.pod import Pod
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota import QuotaMode, QuotaRequest, QuotaVerdict, Reservation, mode_of, quotas_of
from engine.view import ClusterView
from webhook.admission import wire
from webhook.admission.large_pods import LargePods, LargePodsError
from webhook.admission.review_result import Outcome, ReviewResult, ignored, pod_in, requests_in
from webhook.admission.wire import AdmissionError, AdmissionRequest

_MOST_RESOURCES: Final = 1_000
"""Resources that a pod may name; they are compared on the event loop. No node offers as many."""


class Ledger(Protocol):
    """The reservations of quota."""

    def has_quota(self, namespace: str) -> bool:
        """Return whether the pods of a namespace are limited."""

    async def admit(self, namespace: str, request: QuotaRequest) -> QuotaVerdict:
        """Return whether a pod fits the quotas of its namespace; if so, its share is reserved."""


class QuotaReviews:
    """Answers the reviews of the validating webhook, where pods are final.

    Args:
        ledger: the reservations of quota.
        view: the cluster.
        mode: effect of an exceeded quota in namespaces that name none.
        excluded_namespaces: those whose pods are always admitted.
        large_pods: where large pods are decoded; a thread of their own if not given.
        record_denial: called with each denied request, but for dry runs.
        withdraw: called with each new pod that is denied, but for dry runs: it counts no longer on
            the node it was advised to take.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        view: Callable[[], ClusterView],
        mode: QuotaMode,
        excluded_namespaces: Collection[str],
        large_pods: LargePods | None = None,
        record_denial: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None,
        withdraw: Callable[[Pod], object] = lambda _pod: None,
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._large_pods = large_pods or LargePods()
        self._record_denial = record_denial
        self._withdraw = withdraw
        self._mode = mode
        self._excluded_namespaces = excluded_namespaces

    async def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a pod fits the quotas of its namespace; if so, its share is reserved.

        A pod that cannot be judged, for it is too large or unreadable, is denied where it is
        limited: were it an error, the failure policy could admit it.

        Raises:
            QuotaUndecidedError: there is no verdict.
        """
        mode = self._mode_of(request.namespace)
        if mode == "Off" or not (request.creates_pod or request.changes_pod):
            return ignored(request)
        try:
            reservation = await self._reservation(request)
        except (AdmissionError, LargePodsError) as error:
            return self._unchecked(request, error, mode)
        quota_request = QuotaRequest(reservation, bool(request.dry_run))
        verdict = await self._ledger.admit(request.namespace, quota_request)
        if verdict.allowed:
            return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid))
        if mode != "Audit" and request.creates_pod and not (request.dry_run or request.is_large):
            self._withdraw(pod_in(request))
        return self._over_quota(request, verdict, mode)

    def _over_quota(
        self, request: AdmissionRequest, verdict: QuotaVerdict, mode: QuotaMode
    ) -> ReviewResult:
        audit = {"quota": verdict.message}
        if mode != "Audit":
            if not request.dry_run:
                self._record_denial(request.namespace, verdict)
            response = wire.denied(request.uid, verdict.message, audit_annotations=audit)
            return ReviewResult(Outcome.QUOTA_DENIED, response)
        warning = f"admitted for quota is in Audit mode: {verdict.message}"
        response = wire.allowed(request.uid, warnings=[warning], audit_annotations=audit)
        return ReviewResult(Outcome.QUOTA_AUDITED, response)

    def _mode_of(self, namespace: str) -> QuotaMode:
        if namespace in self._excluded_namespaces:
            return "Off"
        return mode_of(self._view(), namespace, self._mode)

    def _unchecked(
        self, request: AdmissionRequest, error: AdmissionError | LargePodsError, mode: QuotaMode
    ) -> ReviewResult:
        """Result for a pod that the API server can store, and that cannot be judged."""
        if not self._ledger.has_quota(request.namespace):
            return ReviewResult(Outcome.UNREADABLE, wire.allowed(request.uid))
        names = tuple(quota.name for quota in quotas_of(self._view(), request.namespace))
        message = f"pod not checked against quota {', '.join(names)}: {error}"
        return self._over_quota(request, QuotaVerdict(exceeded=names, message=message), mode)

    async def _reservation(self, request: AdmissionRequest) -> Reservation:
        """Return what a request would reserve.

        Raises:
            AdmissionError: an object is not a pod.
            LargePodsError: a pod is too large, or there is no time for it.
        """
        is_limited = bool(quotas_of(self._view(), request.namespace))
        if not (request.is_large or request.is_too_large):
            reservation = _reservation(request)
        elif not is_limited:
            return Reservation(request.uid, request.name, {})
        elif request.is_too_large:
            raise LargePodsError("the pod is too large")
        else:
            reservation = await self._large_pods.run(partial(_reservation, request))
        if is_limited and len(reservation.amounts) > _MOST_RESOURCES:
            raise LargePodsError(f"the pod names more than {_MOST_RESOURCES} resources")
        return reservation


def _reservation(request: AdmissionRequest) -> Reservation:
    """Return what a new pod, or a change of one, would reserve.

    Raises:
        AdmissionError: an object is not a pod.
    """
    return _for_new(request) if request.creates_pod else _for_change(request)


def _for_new(request: AdmissionRequest) -> Reservation:
    """Return the reservation of a new pod; its uid is final in the validating phase."""
    pod = request.pod()
    amounts = {**requests_in(pod), PODS: 1}
    return Reservation(pod.metadata.uid or request.uid, pod.metadata.name, amounts)


def _for_change(request: AdmissionRequest) -> Reservation:
    """Return the reservation of what a pod requests in addition, as ResourceQuota charges it.

    The API server stores the new object as the successor of exactly the old one, or sends another
    review. So any later version of the pod, once observed, shows the outcome of this request.

    Raises:
        AdmissionError: the old object is not a stored one.
    """
    new, old = request.pod(), request.old_pod()
    amounts = _more(requests_in(new), requests_in(old))
    version = old.metadata.version
    if amounts and not version:
        raise AdmissionError("the old object has no resourceVersion")
    return Reservation(new.metadata.uid, new.metadata.name, amounts, version, request.uid)


def _more(after: Amounts, before: Amounts) -> dict[str, int]:
    """Return what was added to some amounts."""
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount > 0}
