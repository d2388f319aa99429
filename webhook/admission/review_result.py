"""Result of a review: the response, and the outcome it counts as."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.pod import Pod, pod_of
from engine.model.resources import Amounts
from engine.model.shape_computation import requests_of
from webhook.admission import wire
from webhook.admission.wire import AdmissionError, AdmissionRequest, AdmissionResponse


class Outcome(StrEnum):
    """Outcome of a review; the label of its metric."""

    PLACED = "placed"  # advice was written on the pod
    SHARED = "shared"  # the same, by the decision for another pod of the same template
    HELD = "held"  # the pod is held until it is released
    KEPT = "kept"  # a binding stays as the scheduler made it
    MOVED = "moved"  # a binding goes to another node
    ABSTAINED = "abstained"  # there is no advice for the pod
    DENIED = "denied"  # a policy requires it where no node passes; a binding: its node is full
    ADMITTED = "admitted"  # fits its quotas, or has none; of a quota or policy: it is valid
    QUEUED = "queued"  # may wait for its quota
    QUOTA_DENIED = "quota_denied"
    QUOTA_AUDITED = "quota_audited"  # would be denied; quota is in Audit mode
    INVALID = "invalid"  # an ElasticQuota that contradicts itself or others, a policy with mistakes
    UNDECIDED = "undecided"  # its quotas cannot be evaluated for now
    PROBED = "probed"  # of an API server, whether it has taken up our configuration
    IGNORED = "ignored"  # an object or operation that is not reviewed
    UNREADABLE = "unreadable"  # a pod that cannot be decoded
    TOO_LARGE = "too_large"  # a pod that is larger than any that gets advice
    ERROR = "error"  # an internal error; see the log
    SHED = "shed"  # too many reviews at a time
    DEADLINE = "deadline"  # no time was left
    MALFORMED = "malformed"  # not a review at all
    FORBIDDEN = "forbidden"  # of a caller whose client certificate has none of the allowed names


class ReviewResult(msgspec.Struct, frozen=True):
    """A response, and the outcome it counts as.

    Attributes:
        rule_errors: number of rules that could not be evaluated.
        abstained: number of rules that abstained, by the domain that was too old.
    """

    outcome: Outcome
    response: AdmissionResponse
    rule_errors: int = 0
    abstained: Mapping[str, int] = {}


def ignored(request: AdmissionRequest) -> ReviewResult:
    """Result for an object that is not reviewed: it passes unmodified."""
    return ReviewResult(Outcome.IGNORED, wire.allowed(request.uid))


def admit_unmodified(request: AdmissionRequest, outcome: Outcome, reason: str) -> ReviewResult:
    """Result that fails open: the pod passes unmodified, with a warning for its creator."""
    warning = f"stowplan gave no placement advice: {reason}"
    return ReviewResult(outcome, wire.allowed(request.uid, warnings=[warning]))


def pod_in(request: AdmissionRequest) -> Pod:
    """Decode the pod of a request.

    Raises:
        AdmissionError: its object is not a pod.
    """
    return model_of(request.pod(), request)


def model_of(
    manifest: api.Pod, request: AdmissionRequest, kubernetes: KubernetesVersion = ASSUMED
) -> Pod:
    """Return the model of the pod of a request.

    Raises:
        AdmissionError: an amount is not a quantity.
    """
    try:
        return pod_of(manifest, namespace=request.namespace, kubernetes=kubernetes)
    except QuantityError as error:
        raise AdmissionError(f"the object is not a pod: {error}") from error


def requests_in(pod: api.Pod, kubernetes: KubernetesVersion) -> Amounts:
    """Return what a pod requests, as quotas count it, but for the pod itself.

    Raises:
        AdmissionError: an amount is not a quantity.
    """
    try:
        return requests_of(pod, kubernetes)
    except QuantityError as error:
        raise AdmissionError(f"the object is not a pod: {error}") from error
