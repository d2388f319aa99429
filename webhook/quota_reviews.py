"""The verdict of ElasticQuotas on new pods. Fails by raising: the API server's policy decides."""

from __future__ import annotations

from collections.abc import Callable, Collection

from engine.model.time import Micros
from engine.quota import QuotaLedger
from engine.view import ClusterView
from webhook import review
from webhook.answers import Answer, Outcome, ignored, pod_in
from webhook.review import AdmissionRequest
from webhook.settings import QuotaMode


class QuotaReviews:
    """Answers the reviews of the validating webhook, where pods are final.

    Args:
        view: the cluster as it is known.
        now: the time of day.
        ledger: who has been promised quota.
        mode: what an exceeded quota leads to.
        excluded_namespaces: those whose pods are always admitted.
    """

    def __init__(
        self,
        *,
        view: Callable[[], ClusterView],
        now: Callable[[], Micros],
        ledger: QuotaLedger,
        mode: QuotaMode,
        excluded_namespaces: Collection[str],
    ) -> None:
        self._view = view
        self._now = now
        self._ledger = ledger
        self._mode = mode
        self._excluded_namespaces = excluded_namespaces

    def answer(self, request: AdmissionRequest) -> Answer:
        """Return whether a new pod fits the quotas of its namespace; if it does, it is promised.

        Raises:
            AdmissionError: the object is not a pod.
            QuotaLedgerFullError: too many promised pods have not been seen yet.
        """
        if not request.creates_pod or not self._judges(request.namespace):
            return ignored(request)
        pod = pod_in(request)
        verdict = self._ledger.admit(
            pod,
            self._view(),
            self._now(),
            uid=pod.uid or request.uid,
            dry_run=bool(request.dry_run),
        )
        if verdict.allowed:
            return Answer(Outcome.ADMITTED, review.allowed(request.uid))
        audit = {"quota": verdict.message}
        if self._mode == "Enforce":
            response = review.denied(request.uid, verdict.message, audit_annotations=audit)
            return Answer(Outcome.QUOTA_DENIED, response)
        warning = f"admitted for quota is in Audit mode: {verdict.message}"
        response = review.allowed(request.uid, warnings=[warning], audit_annotations=audit)
        return Answer(Outcome.QUOTA_AUDITED, response)

    def _judges(self, namespace: str) -> bool:
        return self._mode != "Off" and namespace not in self._excluded_namespaces
