"""Reviews of ElasticQuotas themselves, when one is created, changed or deleted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from engine.quota import RESOURCE_QUOTA_RULES, QuotaRules, check_deletion, check_quota
from engine.view import ClusterView
from webhook.admission import wire
from webhook.admission.handler import Decide
from webhook.admission.review_result import Outcome, ReviewResult, ignored
from webhook.admission.wire import AdmissionError, AdmissionRequest
from webhook.cluster.decode_errors import UNREADABLE

_GROUPS = frozenset({UPSTREAM_GROUP, KOORDINATOR_GROUP})

_decode = msgspec.json.Decoder(api.ElasticQuota).decode


def by_resource(*, pods: Decide, quotas: Decide) -> Decide:
    """Return the handler of reviews of pods and of quotas under one path."""
    return lambda request: (quotas if is_of_quota(request) else pods)(request)


def is_of_quota(request: AdmissionRequest) -> bool:
    """Whether a request is about an ElasticQuota, and not one of its subresources."""
    resource = request.resource
    return (
        resource.resource == "elasticquotas"
        and resource.group in _GROUPS
        and not request.sub_resource
    )


class QuotaObjectReviews:
    """Answers reviews of ElasticQuotas; quick, because it reads nothing but the view.

    Args:
        view: the cluster. Two quotas created at the same moment for one namespace may both pass:
            then both are enforced.
        rules: meaning of the bounds of a quota.
    """

    def __init__(
        self, *, view: Callable[[], ClusterView], rules: QuotaRules = RESOURCE_QUOTA_RULES
    ) -> None:
        self._view = view
        self._rules = rules

    def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a quota may be created, changed or deleted.

        Raises:
            AdmissionError: the object is not a quota.
        """
        if not is_of_quota(request):
            return ignored(request)
        if request.operation == "DELETE":
            findings = check_deletion(request.resource.group, request.name)
        elif request.operation in {"CREATE", "UPDATE"}:
            is_update = request.operation == "UPDATE"
            old = _quota_in(request, request.old_object) if is_update else None
            quota = _quota_in(request, request.object)
            findings = check_quota(quota, old, self._view(), self._rules)
        else:
            return ignored(request)
        if findings.problems:
            message = "; ".join(findings.problems)
            return ReviewResult(Outcome.INVALID, wire.denied(request.uid, message))
        return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid, warnings=findings.warnings))


def _quota_in(request: AdmissionRequest, raw: msgspec.Raw) -> api.ElasticQuota:
    try:
        quota = _decode(raw)
    except UNREADABLE as error:
        raise AdmissionError(f"the object is not an ElasticQuota: {error}") from error
    metadata = msgspec.structs.replace(quota.metadata, namespace=request.namespace)
    group = f"{request.resource.group}/{request.resource.version}"
    return msgspec.structs.replace(quota, metadata=metadata, api_version=group)
