"""The verdict of ElasticQuotas on pods. Fails by raising: the API server's policy decides."""

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
    """Who has been promised quota."""

    async def admit(self, namespace: str, asked: QuotaRequest) -> QuotaVerdict:
        """Say whether a pod fits the quotas of its namespace, and promise its share if so."""


class QuotaReviews:
    """Answers the reviews of the validating webhook, where pods are final.

    Args:
        ledger: who has been promised quota.
        view: the cluster as it is.
        mode: what an exceeded quota leads to, where a namespace does not say.
        excluded_namespaces: those whose pods are always admitted.
        refused: told of each request that is denied.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        view: Callable[[], ClusterView],
        mode: QuotaMode,
        excluded_namespaces: Collection[str],
        refused: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None,
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._refused = refused
        self._mode = mode
        self._excluded_namespaces = excluded_namespaces

    async def answer(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a pod fits the quotas of its namespace; if it does, it is promised.

        Raises:
            AdmissionError: the object is not a pod.
            QuotaUndecidedError: nobody can say.
        """
        mode = self._mode_of(request.namespace)
        if mode == "Off":
            return ignored(request)
        if request.creates_pod:
            reservation = _for_new(pod_in(request), request)
        elif request.changes_pod:
            reservation = _for_change(pod_in(request), old_pod_in(request), request)
        else:
            return ignored(request)
        asked = QuotaRequest(reservation, dry_run=bool(request.dry_run))
        verdict = await self._ledger.admit(request.namespace, asked)
        if verdict.allowed:
            return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid))
        audit = {"quota": verdict.message}
        if mode == "Enforce":
            if not asked.dry_run:
                self._refused(request.namespace, verdict)
            response = wire.denied(request.uid, verdict.message, audit_annotations=audit)
            return ReviewResult(Outcome.QUOTA_DENIED, response)
        warning = f"admitted for quota is in Audit mode: {verdict.message}"
        response = wire.allowed(request.uid, warnings=[warning], audit_annotations=audit)
        return ReviewResult(Outcome.QUOTA_AUDITED, response)

    def _mode_of(self, namespace: str) -> QuotaMode:
        if namespace in self._excluded_namespaces:
            return "Off"
        return mode_of(self._view(), namespace, self._mode)


def _for_new(pod: Pod, request: AdmissionRequest) -> Reservation:
    """Return what a new pod needs; its uid is final in the validating phase."""
    return Reservation(pod.uid or request.uid, pod.name, dict(counted_requests(pod.shape)))


def _for_change(new: Pod, old: Pod, request: AdmissionRequest) -> Reservation:
    """Return what a pod needs more than it has, as ResourceQuota charges an update.

    The API server stores the new object as the successor of exactly the old one, or asks again. So
    any later version of the pod, once seen, tells what came of this request.

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
