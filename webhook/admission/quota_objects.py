"""Reviews of ElasticQuotas themselves, when one is created, changed or deleted."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import jsonpointer
import msgspec

from engine.errors import StowplanError
from engine.model import api
from engine.model.elastic_quota import (
    HARD_RECLAIM,
    KOORDINATOR_GROUP,
    RECLAIM_ANNOTATION,
)
from engine.quota import (
    RESOURCE_QUOTA_RULES,
    QuotaRules,
    Reach,
    check_deletion,
    check_quota,
    quota_defaults,
    reach_of,
)
from engine.view import ClusterView
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult, ignored
from webhook.admission.wire import AdmissionError, AdmissionRequest
from webhook.cluster.objects import UNREADABLE
from webhook.cluster.timing import MonotonicClock

_LAG_SECONDS = 1.0  # of a watch behind the store; a quota is written seldom
_VIEWS = 10  # in that time

_decode = msgspec.json.Decoder(api.ElasticQuota).decode


@dataclass(kw_only=True, eq=False)
class QuotaObjectReviews:
    """Answers reviews of ElasticQuotas; reads nothing but the view.

    Quotas of a tree are written one after the other, each as soon as the one above it is stored. So
    where one of Koordinator's is refused, the view is read again for a second: the refusal may rest
    on what a watch has not delivered yet.
    """

    view: Callable[[], ClusterView]
    rules: QuotaRules = RESOURCE_QUOTA_RULES
    hard_namespaces: Container[str] = ()
    clock: MonotonicClock = field(default_factory=MonotonicClock)

    async def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a quota may be created, changed or deleted."""
        return await self._settled(request, self._judged)

    async def fill(self, request: AdmissionRequest) -> ReviewResult:
        """Return the labels and annotations that a new quota of Koordinator lacks, as a patch."""
        return await self._settled(request, self._filled)

    async def _settled(
        self, request: AdmissionRequest, judge: Callable[[AdmissionRequest], ReviewResult]
    ) -> ReviewResult:
        """Return a verdict; a refusal that depends on other quotas only once it has lasted."""
        result = judge(request)
        if request.resource.group == KOORDINATOR_GROUP:
            for _ in range(_VIEWS):
                if result.outcome is not Outcome.INVALID:
                    break
                await self.clock.sleep(_LAG_SECONDS / _VIEWS)
                result = judge(request)
        return result

    def _judged(self, request: AdmissionRequest) -> ReviewResult:
        if not request.is_of_quota:
            return ignored(request)
        if request.operation == "DELETE":
            resource = request.resource
            findings = check_deletion(resource.group, request.namespace, request.name, self.view())
        elif request.operation in {"CREATE", "UPDATE"}:
            is_update = request.operation == "UPDATE"
            old = _quota_in(request, request.old_object) if is_update else None
            quota = _quota_in(request, request.object)
            findings = check_quota(quota, old, self.view(), self.rules)
            warnings = (*findings.warnings, *self._not_hard(quota, old))
            findings = replace(findings, warnings=warnings)
        else:
            return ignored(request)
        if findings.problems:
            return _refused(request, "; ".join(findings.problems))
        return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid, warnings=findings.warnings))

    def _not_hard(self, quota: api.ElasticQuota, old: api.ElasticQuota | None) -> Iterator[str]:
        """Yield that a quota asks for Hard reclaim from now on, and may not."""
        asks = (quota.metadata.annotations or {}).get(RECLAIM_ANNOTATION) == HARD_RECLAIM
        before = None if old is None else (old.metadata.annotations or {}).get(RECLAIM_ANNOTATION)
        namespace = quota.metadata.namespace
        if asks and before != HARD_RECLAIM and namespace not in self.hard_namespaces:
            yield (
                f"annotation `{RECLAIM_ANNOTATION}`: `{HARD_RECLAIM}` counts as `On` in namespace"
                f" `{namespace}`, which is not among `quota.hardReclaimNamespaces`"
            )

    def _filled(self, request: AdmissionRequest) -> ReviewResult:
        if not request.is_of_quota or request.operation != "CREATE":
            return ignored(request)
        quota = _quota_in(request, request.object)
        defaults = quota_defaults(quota, self.view())
        if defaults.problem:
            return _refused(request, defaults.problem)
        metadata = quota.metadata
        operations = [
            *_additions("/metadata/labels", metadata.labels, defaults.labels),
            *_additions("/metadata/annotations", metadata.annotations, defaults.annotations),
        ]
        return ReviewResult(
            Outcome.ADMITTED, wire.allowed(request.uid, patch=wire.json_patch(operations))
        )


def _refused(request: AdmissionRequest, message: str) -> ReviewResult:
    return ReviewResult(Outcome.INVALID, wire.denied(request.uid, message))


def _additions(
    path: str, written: Mapping[str, str] | None, added: Mapping[str, str]
) -> Iterator[Mapping[str, object]]:
    """Yield the JSON patch operations that add entries to a mapping, which may not be there."""
    if added and written is None:
        yield {"op": "add", "path": path, "value": {}}
    for key, value in sorted(added.items()):
        yield {"op": "add", "path": f"{path}/{jsonpointer.escape(key)}", "value": value}


def _quota_in(request: AdmissionRequest, raw: msgspec.Raw) -> api.ElasticQuota:
    try:
        quota = _decode(raw)
    except UNREADABLE as error:
        raise AdmissionError(f"the object is not an ElasticQuota: {error}") from error
    metadata = msgspec.structs.replace(quota.metadata, namespace=request.namespace)
    group = f"{request.resource.group}/{request.resource.version}"
    return msgspec.structs.replace(quota, metadata=metadata, api_version=group)


_PROBED: Final = "this API server has taken up the configuration"


class Coverage(Protocol):
    """What makes API servers ask about the pods of a namespace."""

    async def cover(self, reach: Reach) -> None:
        """Return once they do; raises a `StowplanError` if they do not."""


class QuotaRolloutReviews:
    """Has a quota put in force before it is stored."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    async def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a quota is in force from now on; a probe of an API server is refused."""
        if request.resource.resource == "leases":
            return ReviewResult(Outcome.PROBED, wire.denied(request.uid, _PROBED))
        if not request.is_of_quota or request.operation != "CREATE" or request.dry_run:
            return ignored(request)
        reach = reach_of([(request.namespace, request.resource.group, request.name)])
        if reach != frozenset():
            try:
                await self._coverage.cover(reach)
            except StowplanError as error:
                message = f"the quota would not be in force: {error}; try again"
                return ReviewResult(Outcome.UNDECIDED, wire.denied(request.uid, message))
        return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid))
