"""Reviews of pods against ElasticQuotas. Errors are raised: the failure policy decides."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from engine.model.pod import Pod
from engine.quota import QuotaMode, QuotaRequest, QuotaVerdict, Reservation, mode_of
from engine.view import ClusterView, counted_requests
from webhook.admission import wire
from webhook.admission.review_result import Outcome, ReviewResult, ignored, old_pod_in, pod_in
from webhook.admission.wire import AdmissionError, AdmissionRequest


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
        record_denial: called with each denied request, but for dry runs.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        view: Callable[[], ClusterView],
        mode: QuotaMode,
        excluded_namespaces: Collection[str],
        record_denial: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None,
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._record_denial = record_denial
        self._mode = mode
        self._excluded_namespaces = excluded_namespaces

    async def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a pod fits the quotas of its namespace; if so, its share is reserved.

        A pod that cannot be read does not fit any quota: an error would let it pass where the
        failure policy says so.

        Raises:
            QuotaUndecidedError: there is no verdict.
        """
        mode = self._mode_of(request.namespace)
        if mode == "Off" or not (request.creates_pod or request.changes_pod):
            return ignored(request)
        try:
            reservation = _reservation_for(request)
        except AdmissionError as error:
            return self._unreadable(request, mode, error)
        is_dry_run = bool(request.dry_run)
        quota_request = QuotaRequest(reservation, is_dry_run)
        verdict = await self._ledger.admit(request.namespace, quota_request)
        if verdict.allowed:
            return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid))
        if mode == "Enforce":
            if not is_dry_run:
                self._record_denial(request.namespace, verdict)
            return ReviewResult(Outcome.QUOTA_DENIED, _denied(request, mode, verdict.message))
        return ReviewResult(Outcome.QUOTA_AUDITED, _denied(request, mode, verdict.message))

    def _unreadable(
        self, request: AdmissionRequest, mode: QuotaMode, error: AdmissionError
    ) -> ReviewResult:
        """Result for a pod that the API server can store, and we cannot count."""
        if not self._ledger.has_quota(request.namespace):
            return ReviewResult(Outcome.UNREADABLE, wire.allowed(request.uid))
        message = f"quota cannot be judged: {error}"
        return ReviewResult(Outcome.UNREADABLE, _denied(request, mode, message))

    def _mode_of(self, namespace: str) -> QuotaMode:
        if namespace in self._excluded_namespaces:
            return "Off"
        return mode_of(self._view(), namespace, self._mode)


def _denied(request: AdmissionRequest, mode: QuotaMode, message: str) -> wire.AdmissionResponse:
    """Response that denies a request, or warns where quota is audited."""
    audit = {"quota": message}
    if mode == "Enforce":
        return wire.denied(request.uid, message, audit_annotations=audit)
    warning = f"admitted for quota is in Audit mode: {message}"
    return wire.allowed(request.uid, warnings=[warning], audit_annotations=audit)


def _reservation_for(request: AdmissionRequest) -> Reservation:
    """Return the reservation that a request needs.

    Raises:
        AdmissionError: the pod cannot be read.
    """
    if request.creates_pod:
        return _for_new(pod_in(request), request)
    return _for_change(pod_in(request), old_pod_in(request), request)


def _for_new(pod: Pod, request: AdmissionRequest) -> Reservation:
    """Return the reservation of a new pod; its uid is final in the validating phase."""
    return Reservation(pod.uid or request.uid, pod.name, dict(counted_requests(pod.shape)))


def _for_change(new: Pod, old: Pod, request: AdmissionRequest) -> Reservation:
    """Return the reservation of what a pod requests in addition, as ResourceQuota charges it.

    The API server stores the new object as the successor of exactly the old one, or sends another
    review. So any later version of the pod, once observed, shows the outcome of this request.

    Raises:
        AdmissionError: the old object is not a stored one.
    """
    before, after = counted_requests(old.shape), counted_requests(new.shape)
    more = {name: max(0, amount - before.get(name, 0)) for name, amount in after.items()}
    amounts = {name: amount for name, amount in more.items() if amount}
    version = request.old_pod().metadata.version
    if amounts and not version:
        raise AdmissionError("the old object has no resourceVersion")
    return Reservation(new.uid, new.name, amounts, version, request.uid)
