"""Reviews of new quotas where pods are asked about in namespaces with a quota alone."""

from __future__ import annotations

from typing import Final, Protocol

from engine.errors import StowplanError
from engine.quota import Reach, reach_of
from webhook.admission import wire
from webhook.admission.quota_objects import is_of_quota
from webhook.admission.review_result import Outcome, ReviewResult, ignored
from webhook.admission.wire import AdmissionRequest

_PROBED: Final = "this API server has taken up the configuration"


class Coverage(Protocol):
    """What makes API servers ask about the pods of a namespace."""

    async def cover(self, reach: Reach) -> None:
        """Return once they do; raises a `StowplanError` if they do not."""


class QuotaRolloutReviews:
    """Has a quota put in force before it is stored.

    Args:
        coverage: what makes API servers ask about its namespace.
    """

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    async def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a quota is in force from now on; a probe of an API server is refused."""
        if request.resource.resource == "leases":
            return ReviewResult(Outcome.PROBED, wire.denied(request.uid, _PROBED))
        if not is_of_quota(request) or request.operation != "CREATE" or request.dry_run:
            return ignored(request)
        reach = reach_of([(request.namespace, request.resource.group, request.name)])
        if reach != frozenset():
            try:
                await self._coverage.cover(reach)
            except StowplanError as error:
                message = f"the quota would not be in force: {error}; try again"
                return ReviewResult(Outcome.UNDECIDED, wire.denied(request.uid, message))
        return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid))
