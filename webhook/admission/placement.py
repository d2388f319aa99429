"""Reviews of the mutating webhook: placement of new pods. Fails open, whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.model import api
from engine.model.decision import Verdict
from engine.model.request import PlacementRequest
from engine.policy import PolicySet
from webhook.admission import wire
from webhook.admission.decision_cache import DecisionCache
from webhook.admission.hold import PodHolder
from webhook.admission.review_result import (
    Outcome,
    ReviewResult,
    admit_unmodified,
    ignored,
    model_of,
)
from webhook.admission.wire import AdmissionError, AdmissionRequest
from webhook.placement.advice_limits import MOST_BYTES, beyond_limits
from webhook.placement.placer import Placement, Placer
from webhook.placement.policy_counts import PolicyCounts

_log = logging.getLogger(__name__)


class PlacementReviews:
    """Translates reviews of new pods for a placer, and its placements into responses.

    Args:
        placer: decides.
        policies: the policies in force.
        clock: monotonic seconds.
        counts: where placements are counted, except those of dry runs.
        holder: holds the pods that are decided at their release; None where none is held.
        is_crowded: whether reviews wait for each other.
        is_overloaded: whether there is no time for a decision: a pod that can share none passes
            unmodified.
    """

    def __init__(
        self,
        placer: Placer,
        policies: Callable[[], PolicySet],
        clock: Callable[[], float],
        counts: PolicyCounts,
        holder: PodHolder | None = None,
        is_crowded: Callable[[], bool] = lambda: False,
        is_overloaded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._placer = placer
        self._policies = policies
        self._clock = clock
        self._counts = counts
        self._holder = holder
        self._is_overloaded = is_overloaded
        self._cache = DecisionCache(clock, is_crowded)

    def review(self, request: AdmissionRequest) -> ReviewResult:
        """Advise a pod, or hold it; where there can be no advice, the pod passes unmodified."""
        if not request.creates_pod:
            return ignored(request)
        if request.is_too_large or len(request.object) > MOST_BYTES:
            return _not_advised(request, f"more than {MOST_BYTES} bytes")
        try:
            policies, holder = self._policies(), self._holder
            if holder is not None and holder.may_hold(request, policies):
                return self._held_or_advised(request, policies, holder)
            result = self._without_decision(request, policies)
            return result or self._held_or_advised(request, policies, None)
        except AdmissionError as error:
            _log.warning("no advice for a pod: %s", error, extra={"uid": request.uid})
            return admit_unmodified(request, Outcome.UNREADABLE, str(error))
        except Exception:  # noqa: BLE001 - advice is never worth a pod
            _log.exception("no advice for a pod", extra={"uid": request.uid})
            return admit_unmodified(request, Outcome.ERROR, "an internal error, see its log")

    def _held_or_advised(
        self, request: AdmissionRequest, policies: PolicySet, holder: PodHolder | None
    ) -> ReviewResult:
        """Hold a pod where there is a holder for it, else advise it by a decision of its own.

        Raises:
            AdmissionError: the object is not a pod.
            PatchError: the operations do not apply to the pod.
        """
        began, manifest = self._clock(), request.pod()
        excess = beyond_limits(manifest)
        if excess:
            return _not_advised(request, excess)
        pod = _placement_request(manifest, request)
        warning = ""
        if holder is not None:
            # Whether this pod is held comes first: the advice of another does not say it.
            result = holder.held(request, pod, policies)
            if result is not None:
                return result
            warning = holder.warning(pod.pod)
            result = self._without_decision(request, policies, warning)
            if result is not None:
                return result
        placement = self._placer.place(pod, policies, dry_run=bool(request.dry_run))
        if not request.dry_run:
            self._count(placement, policies)
        self._cache.put(request, policies, placement, began)
        patch = wire.json_patch(placement.patch.operations)
        return _result(request, placement, patch, _OUTCOMES[placement.verdict], warning)

    def _without_decision(
        self, request: AdmissionRequest, policies: PolicySet, warning: str = ""
    ) -> ReviewResult | None:
        """Advise a pod by the decision for another of its template, if there is one.

        If there is none, the pod is to be decided, but when there is no time for it.
        """
        shared = self._cache.get(request, policies)
        if shared is None and self._is_overloaded():
            return admit_unmodified(request, Outcome.SHED, "too many pods at a time")
        if shared is None:
            return None
        placement, patch = shared
        self._placer.assume(placement.pod, patch.advice)
        self._count(placement, policies)
        return _result(request, placement, patch.document, Outcome.SHARED, warning)

    def _count(self, placement: Placement, policies: PolicySet) -> None:
        self._counts.count(placement, policies)
        if self._holder is not None:
            self._holder.count_advised(placement, policies)


_OUTCOMES = {
    Verdict.PLACE: Outcome.PLACED,
    Verdict.ABSTAIN: Outcome.ABSTAINED,
    Verdict.DENY: Outcome.DENIED,
}


def _not_advised(request: AdmissionRequest, excess: str) -> ReviewResult:
    return admit_unmodified(request, Outcome.TOO_LARGE, f"the pod has {excess}")


def _placement_request(manifest: api.Pod, request: AdmissionRequest) -> PlacementRequest:
    pod, raw = model_of(manifest, request), bytes(request.object)
    return PlacementRequest(pod=pod, raw=raw, request=request.variables())


def _result(
    request: AdmissionRequest, placement: Placement, patch: bytes, outcome: Outcome, warning: str
) -> ReviewResult:
    audit = _audit_annotations(placement)
    if outcome is Outcome.DENIED:
        response = wire.denied(request.uid, placement.message, audit_annotations=audit)
    else:
        of_patch, of_pod = placement.patch.warnings, (warning,) if warning else ()
        response = wire.allowed(
            request.uid,
            patch=patch,
            warnings=(*_no_candidate(placement), *of_patch, *of_pod),
            audit_annotations=audit,
        )
    errors = len(placement.errors)
    return ReviewResult(outcome, response, rule_errors=errors, abstained=placement.abstained)


def _no_candidate(placement: Placement) -> tuple[str, ...]:
    """Warning for the creator of a pod that policies find no node for."""
    if placement.policies and not placement.candidates:
        return (f"stowplan: {placement.message}",)
    return ()


def _audit_annotations(placement: Placement) -> dict[str, str]:
    """Annotations of the review in the audit log of the API server."""
    annotations = {"decision": placement.message}
    if placement.policies:
        annotations["policies"] = ",".join(placement.policies)
    if placement.errors:
        annotations["errors"] = "; ".join(placement.errors)
    if placement.audit is not None:
        annotations["audited-policies"] = ",".join(placement.audit.policies)
        annotations["audited-decision"] = placement.audit.message
    return annotations
