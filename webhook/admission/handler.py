"""HTTP side of a review: read it within limits, respond in time, count the outcome.

A review that can be decided gets an AdmissionReview with status 200, whatever the verdict. Any
other gets another status and a line of text, and the API server applies its failure policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from engine.errors import QuantityError, QuotaUndecidedError
from engine.model import api
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.pod import Pod, pod_of
from engine.model.pod_shape import requests_of
from engine.model.resources import Amounts
from engine.model.time import DurationError, parse_duration
from webhook.admission import wire
from webhook.admission.wire import (
    AdmissionError,
    AdmissionRequest,
    AdmissionResponse,
    UndecidedError,
)
from webhook.fairness import FairTurns
from webhook.metrics import NOTHING, Metrics

_MOST_UNFINISHED_BYTES = 64 * 1024 * 1024


class Body(NamedTuple):
    data: bytes  # its bytes; at least its beginning if it is too large
    is_whole: bool  # whether these are all


@dataclass(eq=False)
class BodyReader:
    """Reads bodies; those that come slowly or fill memory are given up, the oldest first.

    Callers are not trusted: bodies that never end must neither outlast nor outgrow those that do. A
    body that arrives at once, as from an API server, is read before it can be given up.
    """

    seconds: float  # longest time from the headers of a request to the end of its body
    _: KW_ONLY
    # bytes that all unfinished bodies may hold together
    most_unfinished_bytes: int = _MOST_UNFINISHED_BYTES

    def __post_init__(self) -> None:
        self._unfinished: dict[asyncio.Timeout, int] = {}  # bytes read, by the limit of each body
        self._unfinished_bytes = 0  # INVARIANT: the sum of those

    async def read(self, request: web.Request) -> Body:
        """Return a body, at most as much of it as the application accepts."""
        content, most_bytes = request.content, request.client_max_size
        if content.is_eof():  # nearly always: no time limit is needed
            return _body(content.read_nowait(), most_bytes)
        data = bytearray()
        async with asyncio.timeout(self.seconds) as limit:
            self._unfinished[limit] = 0
            try:
                while len(data) <= most_bytes and not content.at_eof():
                    if request.transport is None:
                        raise ConnectionResetError
                    chunk = await content.readany()
                    data += chunk
                    self._add(limit, len(chunk))
            finally:
                self._unfinished_bytes -= self._unfinished.pop(limit, 0)
        return _body(bytes(data), most_bytes)

    def _add(self, limit: asyncio.Timeout, size: int) -> None:
        """Count bytes of a body; those of the oldest bodies are given up for them."""
        if limit not in self._unfinished:
            return  # given up: its task will be told
        self._unfinished[limit] += size
        self._unfinished_bytes += size
        while self._unfinished_bytes > self.most_unfinished_bytes:
            oldest = next(iter(self._unfinished))
            self._unfinished_bytes -= self._unfinished.pop(oldest)
            oldest.reschedule(0.0)


def _body(data: bytes, most_bytes: int) -> Body:
    return Body(data, is_whole=len(data) <= most_bytes)


_CROWD: Final = 16
"""Reviews in flight: a caller waits for some milliseconds before its own is decided."""

_LATE_SECONDS: Final = 0.02
"""Wait of a review in a standing queue after which it gets no more than takes no time."""

_LONG_SECONDS: Final = 0.002
_PASSES: Final = 8
"""Of the event loop between two decisions that take long: as many as a quota review takes, which
must not wait for one at each step."""

_MOST_PASSES: Final = 100
"""The same while reviews wait that come first: for the turns of fifty, which take some 15 ms."""

_OVERLOAD_SECONDS: Final = 1.0
_SHORTER: Final = 16  # the queue in an overload than it may be otherwise

_ALL_SHARES: Final = 4
"""All reviews in flight, as a multiple of the limit: one who makes up namespaces, each with a share
of its own, must not fill memory."""


@dataclass(slots=True)
class _Load:
    in_flight: int = 0
    decided: int = 0  # since none was in flight
    overloaded_until: float = -inf


@dataclass(eq=False)
class ConcurrencyLimiter:
    """Counts the reviews in flight, and lets one at a time decide, of each namespace in turn.

    Deciding never waits, so without turns all reviews of one burst would be decided in a single
    step of the event loop, the last of them long after its deadline, and nothing would be counted
    in between. With turns the loop accepts new arrivals (and probes) between any two decisions, and
    goes on with the reviews of other paths.

    A burst may wait, for it ends. Where more arrives than can be decided, a longer queue makes
    every decision later and none possible, so what waits in a standing queue is kept short: on the
    principle of CoDel (RFC 8289), that queues are there for bursts, and that a queue is as long as
    the time spent in it. A queue is standing when it has not been empty while as many reviews left
    as may be in flight: so a burst of `limit` reviews waits as a whole, whatever the speed of the
    machine. Half of them are no overload: so many clients may each wait for the answer to one.

    An overload lasts until the queue is empty, and for a second at most after it was seen last: the
    clients may be as few by then as would have been none.

    Namespaces do not wait for each other's queues, as flows do not in FQ-CoDel (RFC 8290): while
    they wait, their decisions take equal time. Each has an equal share of the places in any case,
    and an overload is that of the ones with more.
    """

    # reviews that may be in flight; four times as many with those that are within the share of
    # their namespace
    limit: int
    clock: Callable[[], float]  # monotonic seconds
    _: KW_ONLY
    # of reviews that come first: while some wait for their turn, there is none here
    yields_to: ConcurrencyLimiter | None = None

    def __post_init__(self) -> None:
        self._in_flight = 0
        self._decided = 0  # since none was in flight
        self._loads: dict[str, _Load] = {}  # of the namespaces with reviews in flight
        # whether the review whose turn it is has waited for long in a standing queue
        self.is_overloaded = False
        self.waiting = 0  # reviews that wait for their turn, or have it
        self.taken = 0  # turns that have ended, or were not needed
        self._turns = FairTurns()
        self._passes = 1  # of the event loop before the next decision

    @property
    def in_flight(self) -> int:
        """Number of reviews that have arrived as a whole and have no response yet."""
        return self._in_flight

    @property
    def is_crowded(self) -> bool:
        return self._in_flight > _CROWD

    @property
    def _share(self) -> int:
        return max(1, self.limit // max(1, len(self._loads)))

    def has_room(self, namespace: str) -> bool:
        """Whether a review that has just entered may wait: in an overload only few may."""
        load = self._loads.get(namespace) or _Load()
        if self.clock() < load.overloaded_until:
            return load.in_flight <= max(1, self._share // _SHORTER)
        return self._has_place(load)

    def enter(self, namespace: str) -> bool:
        """Count a review until `leave`; return whether there is a place for it."""
        load = self._loads.setdefault(namespace, _Load())
        load.in_flight += 1
        self._in_flight += 1
        return self._has_place(load)

    def leave(self, namespace: str) -> None:
        """Count a review no longer: it has a response."""
        load = self._loads[namespace]
        load.in_flight -= 1
        if not load.in_flight:
            del self._loads[namespace]
        self._in_flight -= 1
        if not self._in_flight:
            self._decided = 0

    def spare_turn(self) -> None:
        """Count the turn of a review that needs none: others are paced by turns."""
        self.taken += 1

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Wait for the turn of a review that has entered, which decides without waiting in it."""
        load, late_at = self._loads[namespace], self.clock() + _LATE_SECONDS
        self.waiting += 1
        try:
            await self._turns.take(namespace)
            try:
                await self._pass_on()
                began = self.clock()
                self.is_overloaded = began > late_at and self._is_standing(load)
                if self.is_overloaded:
                    load.overloaded_until = began + _OVERLOAD_SECONDS
                try:
                    yield
                finally:
                    spent = self.clock() - began
                    self._turns.spend(spent)
                    self._passes = _PASSES if spent > _LONG_SECONDS else 1
            finally:
                self._turns.end()
        finally:
            load.decided += 1
            self._decided += 1
            self.waiting -= 1
            self.taken += 1

    async def _pass_on(self) -> None:
        """Let the event loop go on; reviews of the same burst are counted before a decision."""
        for number in range(_MOST_PASSES):
            others_wait = self.yields_to is not None and self.yields_to.waiting
            if number >= self._passes and not others_wait:
                return
            await asyncio.sleep(0)

    def _has_place(self, load: _Load) -> bool:
        if self._in_flight <= self.limit:
            return True
        return load.in_flight <= self._share and self._in_flight <= _ALL_SHARES * self.limit

    def _is_standing(self, load: _Load) -> bool:
        """Whether the queue is standing, and a namespace has more than its share in it."""
        share = self._share
        is_standing = self._decided >= self.limit and self._in_flight > self.limit // 2
        return is_standing and load.decided >= share and load.in_flight > share // 2


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
    outcome: Outcome
    response: AdmissionResponse
    rule_errors: int = 0  # number of rules that could not be evaluated
    # number of rules that abstained, by the domain that was too old
    abstained: Mapping[str, int] = {}


def ignored(request: AdmissionRequest) -> ReviewResult:
    """Result for an object that is not reviewed: it passes unmodified."""
    return ReviewResult(Outcome.IGNORED, wire.allowed(request.uid))


def admit_unmodified(request: AdmissionRequest, outcome: Outcome, reason: str) -> ReviewResult:
    """Result that fails open: the pod passes unmodified, with a warning for its creator."""
    warning = f"stowplan gave no placement advice: {reason}"
    return ReviewResult(outcome, wire.allowed(request.uid, warnings=[warning]))


def pod_in(request: AdmissionRequest) -> Pod:
    return model_of(request.pod(), request)


def model_of(
    manifest: api.Pod, request: AdmissionRequest, kubernetes: KubernetesVersion = ASSUMED
) -> Pod:
    try:
        return pod_of(manifest, namespace=request.namespace, kubernetes=kubernetes)
    except QuantityError as error:
        raise AdmissionError(f"the object is not a pod: {error}") from error


def requests_in(pod: api.Pod, kubernetes: KubernetesVersion) -> Amounts:
    """Return what a pod requests, as quotas count it, but for the pod itself."""
    try:
        return requests_of(pod, kubernetes)
    except QuantityError as error:
        raise AdmissionError(f"the object is not a pod: {error}") from error


Decide: TypeAlias = Callable[[AdmissionRequest], ReviewResult | Awaitable[ReviewResult]]
"""Decides a review, at once or after waiting for others."""

Shortcut: TypeAlias = Callable[[AdmissionRequest], ReviewResult | None]
"""Result of a review that need not wait for others; None where it is to be decided."""

Undecided: TypeAlias = Callable[[AdmissionRequest, Outcome, str], ReviewResult]
"""Result of a review that there is no decision for; called with its outcome, and why."""


class Answered(Protocol):
    def __call__(self, result: ReviewResult, *, is_lost: bool) -> None:
        """Handle an answer; a lost one cannot reach its caller, who has given up, or is gone."""


_NANOS = 1e9
_BODY_SECONDS = 1.0  # an API server sends a body at once
_DEFAULT_TIMEOUT_SECONDS = 10.0  # as in a webhook configuration that sets none
_DEADLINE_FRACTION = 0.6  # of the timeout; the rest is for connections and a busy API server
_MAX_TIMEOUT_SECONDS = 30.0  # the longest that a webhook configuration may set
_CACHED_QUERIES = 16  # of at most a line each, 8 KiB; an API server sends one for each webhook
_JSON = "application/json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLimits:
    # of a caller that sends none; an API server always does
    default_timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS
    body_seconds: float = _BODY_SECONDS  # longest time for the body of a review to arrive

    def seconds(self, request: web.Request) -> float:
        """Time from the arrival of a review to its deadline."""
        return self.timeout(request) * _DEADLINE_FRACTION

    def timeout(self, request: web.Request) -> float:
        """Time from the arrival of a review after which its caller waits no longer."""
        sent = _timeout_in(request.rel_url.raw_query_string)
        return min(sent, _MAX_TIMEOUT_SECONDS) if sent > 0 else self.default_timeout_seconds


@lru_cache(maxsize=_CACHED_QUERIES)
def _timeout_in(query: str) -> float:
    """Timeout of the caller in seconds, 0 if it sends none or a malformed one."""
    values = (
        value for name, value in parse_qsl(query, keep_blank_values=True) if name == "timeout"
    )
    try:
        return parse_duration(next(values, "")) / _NANOS
    except DurationError:
        return 0.0


class _ReviewFailedError(Exception):
    """A review that gets no AdmissionReview back."""

    def __init__(self, status: int, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.outcome = outcome


@dataclass(eq=False)
class ReviewHandler:
    path: str  # in the URL and in the metrics
    decide: Decide  # decides each review
    _: KW_ONLY
    # whether a review that is late or beyond the limit gets a result all the same, see `undecided`;
    # otherwise it fails, and the API server applies its failure policy
    fails_open: bool
    limits: ReviewLimits  # bounds on the cost of a review
    limiter: ConcurrencyLimiter  # of the reviews of this path
    metrics: Metrics  # where reviews are counted
    clock: Callable[[], float]  # monotonic seconds
    # asked before a review waits for its turn, or is beyond the limit
    shortcut: Shortcut = lambda _: None
    # what that result is; by default it is admitted unmodified
    undecided: Undecided = admit_unmodified
    answered: Answered | None = None  # called with each result right before it is written
    # decides the reviews of ElasticQuotas that have the path of pods; None where they have another
    decide_quota: Decide | None = None

    def __post_init__(self) -> None:
        self._bodies = BodyReader(self.limits.body_seconds)
        self.metrics.show_in_flight(self.path, lambda: self.limiter.in_flight)

    async def handle(self, request: web.Request) -> web.Response:
        arrived = self.clock()
        rule_errors, abstained = 0, NOTHING
        try:
            # INVARIANT: a review is in flight once its body is here, and not before: bodies that
            # never end must not keep others out.
            body = await self._read(request)
            result = await self._review(body, arrived + self.limits.seconds(request))
        except _ReviewFailedError as failure:
            outcome = failure.outcome
            response = web.Response(status=failure.status, text=f"{failure}\n")
        else:
            outcome, rule_errors, abstained = result.outcome, result.rule_errors, result.abstained
            response = web.Response(body=wire.encode(result.response), content_type=_JSON)
            if self.answered is not None:
                self.answered(result, is_lost=self._is_lost(request, arrived))
        seconds = self.clock() - arrived
        self.metrics.reviewed(
            self.path, outcome, seconds, rule_errors=rule_errors, abstained=abstained
        )
        return response

    def _is_lost(self, request: web.Request, arrived: float) -> bool:
        """Return whether the caller cannot get an answer any more."""
        is_gone = request.transport is None or request.transport.is_closing()
        return is_gone or self.clock() >= arrived + self.limits.timeout(request)

    async def _review(self, body: Body, deadline: float) -> ReviewResult:
        review = self._decoded(body)
        decide = self.decide_quota if self.decide_quota and review.is_of_quota else self.decide
        has_place = self.limiter.enter(review.namespace)
        try:
            result = self.shortcut(review)
            if result is not None:
                self.limiter.spare_turn()
                return result
            if not has_place:
                what = "pods" if self.fails_open else "reviews"
                return self._without_decision(review, Outcome.SHED, f"too many {what} at a time")
            async with self.limiter.turn(review.namespace):
                decided = decide(review) if self.clock() < deadline else self._late(review)
            if isinstance(decided, ReviewResult):
                return decided
            try:
                async with asyncio.timeout(deadline - self.clock()) as limit:
                    return await decided
            except TimeoutError:
                if not limit.expired():
                    raise
                return self._late(review)
        except _ReviewFailedError:
            raise
        except Exception as error:
            raise self._failure(review, error) from error
        finally:
            self.limiter.leave(review.namespace)

    def _failure(self, review: AdmissionRequest, error: Exception) -> _ReviewFailedError:
        """Failure to respond with; an internal error also goes into the log."""
        if isinstance(error, QuotaUndecidedError | UndecidedError):
            return _ReviewFailedError(503, Outcome.UNDECIDED, str(error))
        if isinstance(error, AdmissionError):
            return _ReviewFailedError(400, Outcome.MALFORMED, str(error))
        extra = {"uid": review.uid, "path": self.path}
        _log.error("a review failed", exc_info=error, extra=extra)
        return _ReviewFailedError(500, Outcome.ERROR, "internal error, see the log")

    def _late(self, review: AdmissionRequest) -> ReviewResult:
        return self._without_decision(review, Outcome.DEADLINE, "no time was left")

    def _without_decision(
        self, review: AdmissionRequest, outcome: Outcome, reason: str
    ) -> ReviewResult:
        if self.fails_open:
            return self.undecided(review, outcome, reason)
        raise _ReviewFailedError(503, outcome, reason)

    async def _read(self, request: web.Request) -> Body:
        # The usual text is compared first: parsing a content type takes a while.
        if request.headers.get("Content-Type") != _JSON and request.content_type != _JSON:
            raise _ReviewFailedError(
                415, Outcome.MALFORMED, "a review has the content type `application/json`"
            )
        if "Content-Encoding" in request.headers:
            # A small body can become a large one, and no API server compresses reviews.
            raise _ReviewFailedError(
                415, Outcome.MALFORMED, "a review has no content encoding: send it uncompressed"
            )
        try:
            return await self._bodies.read(request)
        except TimeoutError as error:
            text = "the review did not arrive in time"
            raise _ReviewFailedError(408, Outcome.DEADLINE, text) from error
        except (ConnectionError, web.RequestPayloadError) as error:
            text = "the review broke off"
            raise _ReviewFailedError(400, Outcome.MALFORMED, text) from error

    def _decoded(self, body: Body) -> AdmissionRequest:
        """Decode a review, or at least the beginning of one that is too large."""
        try:
            return wire.decode(body.data) if body.is_whole else wire.decode_beginning(body.data)
        except AdmissionError as error:
            status = 400 if body.is_whole else 413
            raise _ReviewFailedError(status, Outcome.MALFORMED, str(error)) from error
