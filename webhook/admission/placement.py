"""Reviews of the mutating webhook: placement of new pods. Fails open, whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from engine.model import api
from engine.model.decision import Verdict
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.request import PlacementRequest
from engine.policy import PolicySet
from webhook.admission import wire
from webhook.admission.concurrency_limiter import ConcurrencyLimiter
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

_R = TypeVar("_R")

_log = logging.getLogger(__name__)


class ReviewQueue(Protocol):
    """Reviews that wait for each other."""

    @property
    def is_crowded(self) -> bool:
        """Whether some do."""

    @property
    def is_overloaded(self) -> bool:
        """Whether there is no time for a decision: a pod that shares none passes unmodified."""

    @property
    def has_room(self) -> bool:
        """Whether a pod may wait for its decision."""


class PlacementReviews:
    """Translates reviews of new pods for a placer, and its placements into responses.

    Args:
        placer: decides.
        policies: the policies in force.
        clock: monotonic seconds.
        counts: where placements are counted, except those of dry runs.
        holder: holds pods; None where none is held.
        queue: of the reviews; None where they do not wait for each other.
    """

    def __init__(
        self,
        placer: Placer,
        policies: Callable[[], PolicySet],
        clock: Callable[[], float],
        counts: PolicyCounts,
        holder: PodHolder | None = None,
        queue: ReviewQueue | None = None,
    ) -> None:
        self._placer = placer
        self._policies = policies
        self._clock = clock
        self._counts = counts
        self._holder = holder
        self._queue = ConcurrencyLimiter(1, clock) if queue is None else queue
        self._cache = DecisionCache(clock, lambda: self._queue.is_crowded)

    def review(self, request: AdmissionRequest) -> ReviewResult:
        """Advise a pod, or hold it; where there can be no advice, the pod passes unmodified."""
        if not request.creates_pod:
            return ignored(request)
        if request.is_too_large or len(request.object) > MOST_BYTES:
            return _not_advised(request, f"more than {MOST_BYTES} bytes")
        return _failing_open(request, self._reviewed)

    def without_waiting(self, request: AdmissionRequest) -> ReviewResult | None:
        """Hold a pod, or advise it by the decision for another of its template; None for a review.

        A hold that takes no decision waits for none, and shared advice takes less than to read the
        review. Where there is no room for pods that wait, one that can share no decision passes
        unmodified, unless it may be held.
        """
        if not request.creates_pod:
            return None
        return _failing_open(request, self._without_waiting)

    def undecided(self, request: AdmissionRequest, outcome: Outcome, reason: str) -> ReviewResult:
        """Hold a pod that there is no time to decide on, if it may be held; else it is unmodified.

        Args:
            request: the review.
            outcome: of a pod that is not held.
            reason: why there is no time.
        """
        held = _failing_open(request, self._held_in_haste) if request.creates_pod else None
        return held or admit_unmodified(request, outcome, reason)

    def _reviewed(self, request: AdmissionRequest) -> ReviewResult:
        """Hold a pod, or advise it by a decision: its own, or that for another of its template.

        Raises:
            AdmissionError: the object is not a pod.
            PatchError: the operations do not apply to the pod.
        """
        policies, holder, warning = self._policies(), self._holder, ""
        may_hold = holder is not None and holder.may_hold(request, policies)
        if not may_hold:
            result = self._without_decision(request, policies)
            if result is not None:
                return result
        began, manifest = self._clock(), request.pod()
        excess = beyond_limits(manifest)
        if excess:
            return _not_advised(request, excess)
        pod = _placement_request(manifest, request, self._placer.kubernetes)
        if holder is not None and may_hold:
            # Whether this pod is held comes first: the advice of another does not say it.
            result = holder.held(request, pod, policies, in_haste=self._queue.is_overloaded)
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

    def _without_waiting(self, request: AdmissionRequest) -> ReviewResult | None:
        policies, holder = self._policies(), self._holder
        if holder is not None and holder.may_hold(request, policies):
            pod = self._readable(request)
            return None if pod is None else holder.held_at_once(request, pod, policies)
        has_room = self._queue.has_room
        if has_room and not self._cache.may_have(request):
            return None
        result = self._shared(request, policies, is_last_resort=not has_room)
        return result if result is not None or has_room else _shed(request)

    def _held_in_haste(self, request: AdmissionRequest) -> ReviewResult | None:
        policies, holder = self._policies(), self._holder
        if holder is None or not holder.may_hold(request, policies):
            return None
        pod = self._readable(request)
        return None if pod is None else holder.held(request, pod, policies, in_haste=True)

    def _readable(self, request: AdmissionRequest) -> PlacementRequest | None:
        """Return the pod of a request, None where it is too large.

        Raises:
            AdmissionError: the object is not a pod.
        """
        if request.is_too_large or len(request.object) > MOST_BYTES:
            return None
        manifest = request.pod()
        if beyond_limits(manifest):
            return None
        return _placement_request(manifest, request, self._placer.kubernetes)

    def _without_decision(
        self, request: AdmissionRequest, policies: PolicySet, warning: str = ""
    ) -> ReviewResult | None:
        """Advise a pod by the decision for another of its template, if there is one.

        If there is none, the pod is to be decided, but when there is no time for it.
        """
        is_overloaded = self._queue.is_overloaded
        result = self._shared(request, policies, warning, is_last_resort=is_overloaded)
        return result if result is not None or not is_overloaded else _shed(request)

    def _shared(
        self,
        request: AdmissionRequest,
        policies: PolicySet,
        warning: str = "",
        *,
        is_last_resort: bool,
    ) -> ReviewResult | None:
        found = self._cache.get(request, policies, is_last_resort=is_last_resort)
        if found is None:
            return None
        placement, patch = found
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


def _failing_open(
    request: AdmissionRequest, advise: Callable[[AdmissionRequest], _R]
) -> _R | ReviewResult:
    """Return what became of a pod, which passes unmodified where it cannot be advised."""
    try:
        return advise(request)
    except AdmissionError as error:
        _log.warning("no advice for a pod: %s", error, extra={"uid": request.uid})
        return admit_unmodified(request, Outcome.UNREADABLE, str(error))
    except Exception:  # noqa: BLE001 - advice is never worth a pod
        _log.exception("no advice for a pod", extra={"uid": request.uid})
        return admit_unmodified(request, Outcome.ERROR, "an internal error, see its log")


def _shed(request: AdmissionRequest) -> ReviewResult:
    return admit_unmodified(request, Outcome.SHED, "too many pods at a time")


def _not_advised(request: AdmissionRequest, excess: str) -> ReviewResult:
    return admit_unmodified(request, Outcome.TOO_LARGE, f"the pod has {excess}")


def _placement_request(
    manifest: api.Pod, request: AdmissionRequest, kubernetes: KubernetesVersion
) -> PlacementRequest:
    pod, raw = model_of(manifest, request, kubernetes), bytes(request.object)
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
