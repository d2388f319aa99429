"""Reviews of the mutating webhook: placement of new pods. Fails open, whatever happens."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from engine.model import api
from engine.model.decision import PlacementRequest, Verdict
from engine.model.kubernetes_version import KubernetesVersion
from engine.placement import PatchTemplate, SharedPatch
from engine.policy import PolicySet
from webhook.admission import wire
from webhook.admission.handler import (
    ConcurrencyLimiter,
    Outcome,
    ReviewResult,
    admit_unmodified,
    ignored,
    model_of,
)
from webhook.admission.hold import PodHolder
from webhook.admission.wire import AdmissionError, AdmissionRequest
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import MOST_BYTES, Placement, Placer, beyond_limits

# Decisions shared by pods of one template that arrive together while time is short.
#
# A decision takes milliseconds, so of a thousand pods a second most would pass without advice if
# each had a decision of its own. Pods of one workload differ only in what the API server names
# after the webhooks, so what holds for the first of them holds for the next, but for the room that
# the first has taken. That is neglected for a few pods and a moment.


_MICROS = 1_000_000
_WINDOW_SECONDS = 0.1
_BUSY_SHARE = 0.1  # of the window: at four times that, reviews begin to wait for each other
_MAX_AGE_SECONDS = 0.25  # of a decision, when decisions take the busy share
_OLDEST_SECONDS = 1.0  # when they take four times that, or more
_MAX_SHARES = 32
_LAST_RESORT = 2  # times as old, and as many shares, where a pod gets this decision or none
_MAX_ENTRIES = 64  # of templates that arrive together, each some 10 KB
_MAX_REQUEST_BYTES = 16 * 1024

# The ServiceAccount admission plugin names the volume of a pod's token at random. The name stands
# in the volume and its mounts; anywhere else it is a text of the user's, which rules may read.
# The expression begins with plain text, which is found 25 times as fast as a lookbehind.
_TOKEN_VOLUME = re.compile(
    rb'\{"name":"kube-api-access-[a-z0-9]{5}"'
    rb'(?=,"projected":|,"readOnly":true,"mountPath":"/var/run/secrets/kubernetes\.io/serviceaccount"\})'
)

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Entry:
    placement: Placement
    policies: PolicySet
    at: float
    shares: int = 0
    template: PatchTemplate | None = None  # once a pod shares it

    def share(self, review_uid: str) -> SharedPatch:
        """Return the patch of the next pod."""
        if self.template is None:
            self.template = PatchTemplate(self.placement.patch)
        self.shares += 1
        return self.template.filled(self.shares, review_uid)


_Template: TypeAlias = tuple[bytes, bytes]


@dataclass(eq=False)
class DecisionCache:
    """The placements of the last moments, by template."""

    clock: Callable[[], float]  # monotonic seconds
    is_crowded: Callable[[], bool]  # whether reviews wait for each other

    def __post_init__(self) -> None:
        self._entries: OrderedDict[_Template, _Entry] = OrderedDict()
        self._spent: deque[tuple[float, int]] = deque()  # when, and for how many microseconds
        self._spent_in_window = 0  # INVARIANT: the sum of those

    @property
    def is_busy(self) -> bool:
        """Whether some decisions should be shared, or else reviews wait for them."""
        return self.is_crowded() or self._business() > 1

    def _business(self) -> float:
        """How much time decisions take, 1 for the busy share."""
        since = self.clock() - _WINDOW_SECONDS
        while self._spent and self._spent[0][0] < since:
            self._spent_in_window -= self._spent.popleft()[1]
        return self._spent_in_window / (_BUSY_SHARE * _WINDOW_SECONDS * _MICROS)

    def may_have(self, request: AdmissionRequest) -> bool:
        """Whether there may be a placement for a pod; takes a microsecond or two."""
        return bool(self._entries) and self._may_share(request)

    def get(
        self, request: AdmissionRequest, policies: PolicySet, *, is_last_resort: bool = False
    ) -> tuple[Placement, SharedPatch] | None:
        """Placement of another pod of a template, and the patch for this one; None for neither."""
        if not self.may_have(request):
            return None
        entry = self._entries.get(_template(request))
        if entry is None or entry.policies is not policies:
            return None
        most = _MAX_SHARES * _LAST_RESORT if is_last_resort else _MAX_SHARES
        if entry.shares >= most or self.clock() - entry.at > self._oldest(is_last_resort):
            return None
        return entry.placement, entry.share(request.uid)

    def _oldest(self, is_last_resort: bool) -> float:  # noqa: FBT001 - as in `get`
        """Return how old a decision may be that is shared, in seconds."""
        if is_last_resort:
            return _OLDEST_SECONDS * _LAST_RESORT
        return min(_MAX_AGE_SECONDS * max(1.0, self._business()), _OLDEST_SECONDS)

    def put(
        self, request: AdmissionRequest, policies: PolicySet, placement: Placement, began: float
    ) -> None:
        """Store a placement if further pods of its template can be expected."""
        now = self.clock()
        spent = round((now - began) * _MICROS)
        self._spent.append((now, spent))
        self._spent_in_window += spent
        is_first_round = bool(placement.patch.advice.id)
        if placement.verdict is not Verdict.PLACE or not is_first_round:
            return
        if not self._may_share(request):
            return
        template = _template(request)
        if sum(map(len, template)) > _MAX_REQUEST_BYTES:
            return
        self._entries[template] = _Entry(placement, policies, now)
        self._entries.move_to_end(template)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

    def _may_share(self, request: AdmissionRequest) -> bool:
        """Whether a pod may share a decision: it has no name yet, and time is short."""
        has_no_name = not request.name and not request.dry_run
        return has_no_name and len(request.object) <= _MAX_REQUEST_BYTES and self.is_busy


def _template(request: AdmissionRequest) -> _Template:
    """Everything by which a rule can tell two requests apart, except their uid."""
    context = _encode((request.namespace, request.user_info, request.options))
    return _TOKEN_VOLUME.sub(b'{"name":""', request.object), context


_log = logging.getLogger(__name__)


class ReviewQueue(Protocol):
    @property
    def is_crowded(self) -> bool:
        """Whether some do."""

    @property
    def is_overloaded(self) -> bool:
        """Whether there is no time for a decision: a pod that shares none passes unmodified."""

    def has_room(self, namespace: str) -> bool:
        """Whether a pod of a namespace may wait for its decision."""


@dataclass(eq=False)
class PlacementReviews:
    """Translates reviews of new pods for a placer, and its placements into responses."""

    placer: Placer  # decides
    policies: Callable[[], PolicySet]  # the policies in force
    clock: Callable[[], float]  # monotonic seconds
    counts: PolicyCounts  # where placements are counted, except those of dry runs
    holder: PodHolder | None = None  # holds pods; None where none is held
    queue: ReviewQueue | None = None  # of the reviews; None where they do not wait for each other

    def __post_init__(self) -> None:
        self._queue = ConcurrencyLimiter(1, self.clock) if self.queue is None else self.queue
        self._cache = DecisionCache(self.clock, lambda: self._queue.is_crowded)

    def review(self, request: AdmissionRequest) -> ReviewResult:
        """Advise a pod, or hold it; where there can be no advice, the pod passes unmodified."""
        if not request.creates_pod:
            return ignored(request)
        if request.is_too_large or len(request.object) > MOST_BYTES:
            return _not_advised(request, f"more than {MOST_BYTES} bytes")
        try:
            return self._reviewed(request)
        except Exception as error:  # noqa: BLE001 - advice is never worth a pod
            return _unadvised(request, error)

    def without_waiting(self, request: AdmissionRequest) -> ReviewResult | None:
        """Hold a pod, or advise it by the decision for another of its template; None for a review.

        A hold that takes no decision waits for none, and shared advice takes less than to read the
        review. Where there is no room for pods that wait, one that can share no decision passes
        unmodified, unless it may be held.
        """
        if not request.creates_pod:
            return None
        try:
            return self._without_waiting(request)
        except Exception as error:  # noqa: BLE001 - advice is never worth a pod
            return _unadvised(request, error)

    def undecided(self, request: AdmissionRequest, outcome: Outcome, reason: str) -> ReviewResult:
        """Hold a pod that there is no time to decide on, if it may be held; else admit it."""
        try:
            held = self._held_in_haste(request) if request.creates_pod else None
        except Exception as error:  # noqa: BLE001 - advice is never worth a pod
            return _unadvised(request, error)
        return held or admit_unmodified(request, outcome, reason)

    def _reviewed(self, request: AdmissionRequest) -> ReviewResult:
        """Hold a pod, or advise it by a decision: its own, or that for another of its template."""
        policies, holder, warning = self.policies(), self.holder, ""
        may_hold = holder is not None and holder.may_hold(request, policies)
        if not may_hold:
            result = self._without_decision(request, policies)
            if result is not None:
                return result
        began, manifest = self.clock(), request.pod()
        excess = beyond_limits(manifest)
        if excess:
            return _not_advised(request, excess)
        pod = _placement_request(manifest, request, self.placer.kubernetes)
        if holder is not None and may_hold:
            # Whether this pod is held comes first: the advice of another does not say it.
            result = holder.held(request, pod, policies, in_haste=self._queue.is_overloaded)
            if result is not None:
                return result
            warning = holder.warning(pod.pod)
            result = self._without_decision(request, policies, warning)
            if result is not None:
                return result
        placement = self.placer.place(pod, policies, dry_run=bool(request.dry_run))
        if not request.dry_run:
            self._count(placement, policies)
        self._cache.put(request, policies, placement, began)
        patch = wire.json_patch(placement.patch.operations)
        return _result(request, placement, patch, _OUTCOMES[placement.verdict], warning)

    def _without_waiting(self, request: AdmissionRequest) -> ReviewResult | None:
        policies, holder = self.policies(), self.holder
        if holder is not None and holder.may_hold(request, policies):
            pod = self._readable(request)
            return None if pod is None else holder.held_at_once(request, pod, policies)
        has_room = self._queue.has_room(request.namespace)
        if has_room and not self._cache.may_have(request):
            return None
        result = self._shared(request, policies, is_last_resort=not has_room)
        return result if result is not None or has_room else _shed(request)

    def _held_in_haste(self, request: AdmissionRequest) -> ReviewResult | None:
        policies, holder = self.policies(), self.holder
        if holder is None or not holder.may_hold(request, policies):
            return None
        pod = self._readable(request)
        return None if pod is None else holder.held(request, pod, policies, in_haste=True)

    def _readable(self, request: AdmissionRequest) -> PlacementRequest | None:
        """Return the pod of a request, None where it is too large."""
        if request.is_too_large or len(request.object) > MOST_BYTES:
            return None
        manifest = request.pod()
        if beyond_limits(manifest):
            return None
        return _placement_request(manifest, request, self.placer.kubernetes)

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
        self.placer.assume(placement.pod, patch.advice)
        self._count(placement, policies)
        return _result(request, placement, patch.document, Outcome.SHARED, warning)

    def _count(self, placement: Placement, policies: PolicySet) -> None:
        self.counts.count(placement, policies)
        if self.holder is not None:
            self.holder.count_advised(placement, policies)


_OUTCOMES = {
    Verdict.PLACE: Outcome.PLACED,
    Verdict.ABSTAIN: Outcome.ABSTAINED,
    Verdict.DENY: Outcome.DENIED,
}


def _unadvised(request: AdmissionRequest, error: Exception) -> ReviewResult:
    """Return the result for a pod that passes unmodified, as it cannot be advised."""
    extra = {"uid": request.uid}
    if isinstance(error, AdmissionError):
        _log.warning("no advice for a pod: %s", error, extra=extra)
        return admit_unmodified(request, Outcome.UNREADABLE, str(error))
    _log.error("no advice for a pod", exc_info=error, extra=extra)
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
