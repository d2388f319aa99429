"""What comes of a review: an answer, and what it is counted as."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.pod import Pod, pod_of
from webhook.admission import wire
from webhook.admission.wire import AdmissionError, AdmissionRequest, AdmissionResponse


class Outcome(StrEnum):
    """What came of a review; the label of its metric."""

    PLACED = "placed"  # advice was written on the pod
    SHARED = "shared"  # the same, from the decision for a pod of the same template
    ABSTAINED = "abstained"  # a pod we have nothing to say about
    DENIED = "denied"  # a policy asks for denial where no node passes
    ADMITTED = "admitted"  # fits its quotas, or has none
    QUOTA_DENIED = "quota_denied"
    QUOTA_AUDITED = "quota_audited"  # would be denied; quota is in Audit mode
    INVALID = "invalid"  # an ElasticQuota that makes no sense
    UNDECIDED = "undecided"  # nobody can say for now whether it fits its quotas
    IGNORED = "ignored"  # nothing that we judge
    UNREADABLE = "unreadable"  # a pod that makes no sense to us
    ERROR = "error"  # our own mistake; see the log
    SHED = "shed"  # too many reviews at a time
    DEADLINE = "deadline"  # too late to be of use
    MALFORMED = "malformed"  # not a review at all


class ReviewResult(msgspec.Struct, frozen=True):
    """A response, and what to count it as.

    Attributes:
        rule_errors: how many rules could not be evaluated.
        abstained: how many rules abstained, by what they found too old.
    """

    outcome: Outcome
    response: AdmissionResponse
    rule_errors: int = 0
    abstained: Mapping[str, int] = {}


def ignored(request: AdmissionRequest) -> ReviewResult:
    """Return the answer to what is none of our business: it passes as it is."""
    return ReviewResult(Outcome.IGNORED, wire.allowed(request.uid))


def admit_unmodified(request: AdmissionRequest, outcome: Outcome, reason: str) -> ReviewResult:
    """Return the answer that fails open: the pod passes as it is, and its author learns why."""
    warning = f"stowplan gave no placement advice: {reason}"
    return ReviewResult(outcome, wire.allowed(request.uid, warnings=[warning]))


def pod_in(request: AdmissionRequest) -> Pod:
    """Return the pod that a request is about.

    Raises:
        AdmissionError: its object is not a pod.
    """
    return _pod_of(request.pod(), request)


def old_pod_in(request: AdmissionRequest) -> Pod:
    """Return the pod that a request is about, as it is stored.

    Raises:
        AdmissionError: its old object is not a pod.
    """
    return _pod_of(request.old_pod(), request)


def _pod_of(wire: api.Pod, request: AdmissionRequest) -> Pod:
    try:
        return pod_of(wire, namespace=request.namespace)
    except QuantityError as error:
        raise AdmissionError(f"the object is not a pod: {error}") from error
