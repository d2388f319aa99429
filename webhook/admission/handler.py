"""HTTP side of a review: read it within limits, respond in time, count the outcome.

A review that can be decided gets an AdmissionReview with status 200, whatever the verdict. Any
other gets another status and a line of text, and the API server applies its failure policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol, TypeAlias
from urllib.parse import parse_qsl

from aiohttp import web

from engine.errors import QuotaUndecidedError
from engine.model.duration import DurationError, parse_duration
from webhook.admission import wire
from webhook.admission.body import Body, BodyReader
from webhook.admission.concurrency_limiter import Admission, ConcurrencyLimiter
from webhook.admission.review_result import Outcome, ReviewResult, admit_unmodified
from webhook.admission.wire import AdmissionError, AdmissionRequest, UndecidedError
from webhook.metrics import NOTHING, Metrics

Decide: TypeAlias = Callable[[AdmissionRequest], ReviewResult | Awaitable[ReviewResult]]
"""Decides a review, at once or after waiting for others."""

Shortcut: TypeAlias = Callable[[AdmissionRequest], ReviewResult | None]
"""Result of a review that need not wait for others; None where it is to be decided."""

Undecided: TypeAlias = Callable[[AdmissionRequest, Outcome, str], ReviewResult]
"""Result of a review that there is no decision for; called with its outcome, and why."""


class Answered(Protocol):
    """Is told what a review was answered with."""

    def __call__(self, result: ReviewResult, *, is_lost: bool) -> None:
        """Handle an answer; a lost one cannot reach its caller, who has given up, or is gone."""


_NANOS = 1e9
_BODY_SECONDS = 1.0  # an API server sends a body at once
_MAX_TIMEOUT_SECONDS = 30.0  # the longest that a webhook configuration may set
_CACHED_QUERIES = 16  # of at most a line each, 8 KiB; an API server sends one for each webhook
_JSON = "application/json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLimits:
    """Bounds on the cost of a review.

    Attributes:
        default_timeout_seconds: timeout of a caller that sends none.
        deadline_fraction: the part of the timeout that may be used.
        body_seconds: longest time for the body of a review to arrive.
    """

    default_timeout_seconds: float
    deadline_fraction: float
    body_seconds: float = _BODY_SECONDS

    def seconds(self, request: web.Request) -> float:
        """Time from the arrival of a review to its deadline."""
        return self.timeout(request) * self.deadline_fraction

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


class ReviewHandler:
    """Handles the reviews of one path.

    Args:
        path: in the URL and in the metrics.
        decide: decides each review.
        fails_open: whether a review that is late or beyond the limit gets a result all the same,
            see `undecided`; otherwise it fails, and the API server applies its failure policy.
        limits: bounds on the cost of a review.
        limiter: of the reviews of this path.
        metrics: where reviews are counted.
        clock: monotonic seconds.
        shortcut: asked before a review waits for its turn, or is beyond the limit.
        undecided: what that result is; by default it is admitted unmodified.
        answered: called with each result right before it is written.

    Attributes:
        path: in the URL and in the metrics.
        limiter: of the reviews of this path.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        path: str,
        decide: Decide,
        *,
        fails_open: bool,
        limits: ReviewLimits,
        limiter: ConcurrencyLimiter,
        metrics: Metrics,
        clock: Callable[[], float],
        shortcut: Shortcut = lambda _: None,
        undecided: Undecided = admit_unmodified,
        answered: Answered | None = None,
    ) -> None:
        self.path = path
        self._decide = decide
        self._shortcut = shortcut
        self._fails_open = fails_open
        self._undecided = undecided
        self._answered = answered
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self.limiter = limiter
        self._bodies = BodyReader(limits.body_seconds)
        metrics.show_in_flight(path, lambda: self.limiter.in_flight)

    async def handle(self, request: web.Request) -> web.Response:
        """Respond to one review."""
        arrived = self._clock()
        rule_errors, abstained = 0, NOTHING
        try:
            # INVARIANT: a review is in flight once its body is here, and not before: bodies that
            # never end must not keep others out.
            body = await self._read(request)
            result = await self._review(body, arrived + self._limits.seconds(request))
        except _ReviewFailedError as failure:
            outcome = failure.outcome
            response = web.Response(status=failure.status, text=f"{failure}\n")
        else:
            outcome, rule_errors, abstained = result.outcome, result.rule_errors, result.abstained
            response = web.Response(body=wire.encode(result.response), content_type=_JSON)
            if self._answered is not None:
                self._answered(result, is_lost=self._is_lost(request, arrived))
        seconds = self._clock() - arrived
        self._metrics.reviewed(
            self.path, outcome, seconds, rule_errors=rule_errors, abstained=abstained
        )
        return response

    def _is_lost(self, request: web.Request, arrived: float) -> bool:
        """Return whether the caller cannot get an answer any more."""
        is_gone = request.transport is None or request.transport.is_closing()
        return is_gone or self._clock() >= arrived + self._limits.timeout(request)

    async def _review(self, body: Body, deadline: float) -> ReviewResult:
        admission = self.limiter.enter()
        is_full = admission is Admission.FULL
        try:
            if admission is Admission.CROWDED or (is_full and not self._fails_open):
                raise _ReviewFailedError(503, Outcome.SHED, "too many reviews at a time")
            review = self._decoded(body)
            result = self._shortcut(review)
            if result is not None:
                self.limiter.spare_turn()
                return result
            if is_full:
                return self._without_decision(review, Outcome.SHED, "too many pods at a time")
            decided = await self.limiter.run_serialized(partial(self._started, review, deadline))
            if isinstance(decided, ReviewResult):
                return decided
            try:
                async with asyncio.timeout(deadline - self._clock()):
                    return await self._finished(review, decided)
            except TimeoutError:
                return self._late(review)
        finally:
            self.limiter.leave()

    def _started(
        self, review: AdmissionRequest, deadline: float
    ) -> ReviewResult | Awaitable[ReviewResult]:
        if self._clock() >= deadline:
            return self._late(review)
        try:
            return self._decide(review)
        except Exception as error:
            raise self._failure(review, error) from error

    async def _finished(
        self, review: AdmissionRequest, result: Awaitable[ReviewResult]
    ) -> ReviewResult:
        try:
            return await result
        except Exception as error:
            raise self._failure(review, error) from error

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
        if self._fails_open:
            return self._without_decision(review, Outcome.DEADLINE, "no time was left")
        raise _ReviewFailedError(503, Outcome.DEADLINE, "no time was left")

    def _without_decision(
        self, review: AdmissionRequest, outcome: Outcome, reason: str
    ) -> ReviewResult:
        try:
            return self._undecided(review, outcome, reason)
        except Exception as error:
            raise self._failure(review, error) from error

    async def _read(self, request: web.Request) -> Body:
        """Read the body of a review.

        Raises:
            _ReviewFailedError: it is not JSON, is malformed, or did not arrive in time.
        """
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
        """Decode a review, or at least the beginning of one that is too large.

        Raises:
            _ReviewFailedError: it is malformed.
        """
        try:
            return wire.decode(body.data) if body.is_whole else wire.decode_beginning(body.data)
        except AdmissionError as error:
            status = 400 if body.is_whole else 413
            raise _ReviewFailedError(status, Outcome.MALFORMED, str(error)) from error
