"""The HTTP side of a review: read within limits, answer in time, count what came of it.

A review that can be answered gets an AdmissionReview with status 200, whatever the verdict. One
that cannot gets another status and a line of text, and the API server's failure policy decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias
from urllib.parse import parse_qsl

from aiohttp import web

from engine.errors import QuotaUndecidedError
from engine.model.duration import DurationError, parse_duration
from webhook.admission import wire
from webhook.admission.concurrency_limiter import Admission, ConcurrencyLimiter
from webhook.admission.review_result import Outcome, ReviewResult, admit_unmodified
from webhook.admission.wire import AdmissionError, AdmissionRequest
from webhook.metrics import NOTHING, Metrics

Decide: TypeAlias = Callable[[AdmissionRequest], ReviewResult | Awaitable[ReviewResult]]
"""What answers a review, at once or after waiting for others."""

_NANOS = 1e9
_LONGEST_TIMEOUT = 30.0  # the most a webhook configuration may ask for
_QUERIES_REMEMBERED = 16  # of at most a line each, 8 KiB; an API server sends one for each webhook
_JSON = "application/json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one review may cost.

    Attributes:
        max_in_flight: reviews of one path worked on at a time.
        default_timeout_seconds: the caller's patience where it does not say.
        deadline_fraction: the part of it that we use.
    """

    max_in_flight: int
    default_timeout_seconds: float
    deadline_fraction: float

    def seconds(self, request: web.Request) -> float:
        """Return how long after its arrival a review may be decided."""
        given = _timeout_in(request.rel_url.raw_query_string)
        timeout = min(given, _LONGEST_TIMEOUT) if given > 0 else self.default_timeout_seconds
        return timeout * self.deadline_fraction


@lru_cache(maxsize=_QUERIES_REMEMBERED)
def _timeout_in(query: str) -> float:
    """Return the seconds that a caller says it will wait, 0 where it says nothing of use."""
    asked = (value for name, value in parse_qsl(query, keep_blank_values=True) if name == "timeout")
    try:
        return parse_duration(next(asked, "")) / _NANOS
    except DurationError:
        return 0.0


class _NoAnswerError(Exception):
    """The review gets no AdmissionReview back."""

    def __init__(self, status: int, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.outcome = outcome


class ReviewHandler:
    """Answers the reviews of one path.

    Args:
        path: as in the URL and in the metrics.
        answer: what decides.
        fails_open: whether a review that comes too late or finds no room is answered "allowed,
            unmodified"; otherwise it is left to the API server's failure policy.
        limits: what one review may cost.
        metrics: where it is counted.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        path: str,
        answer: Decide,
        *,
        fails_open: bool,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self._decide = answer
        self._fails_open = fails_open
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._turnstile = ConcurrencyLimiter(limits.max_in_flight)
        metrics.show_in_flight(path, lambda: self._turnstile.in_flight)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one review."""
        arrived = self._clock()
        rule_errors, abstained = 0, NOTHING
        room = self._turnstile.enter()
        try:
            answer = await self._answer(request, room, arrived + self._limits.seconds(request))
        except _NoAnswerError as failure:
            outcome = failure.outcome
            response = web.Response(status=failure.status, text=f"{failure}\n")
        else:
            outcome, rule_errors, abstained = answer.outcome, answer.rule_errors, answer.abstained
            response = web.Response(body=wire.encode(answer.response), content_type=_JSON)
        finally:
            self._turnstile.leave()
        seconds = self._clock() - arrived
        self._metrics.reviewed(
            self.path, outcome, seconds, rule_errors=rule_errors, abstained=abstained
        )
        return response

    async def _answer(self, request: web.Request, room: Admission, deadline: float) -> ReviewResult:
        if room is Admission.CROWDED or (room is Admission.FULL and not self._fails_open):
            raise _NoAnswerError(503, Outcome.SHED, "too many reviews at a time")
        asked = await self._read(request, deadline)
        if room is Admission.FULL:
            return admit_unmodified(asked, Outcome.SHED, "too many pods at a time")
        answer = await self._turnstile.run_serialized(partial(self._begun, asked, deadline))
        if isinstance(answer, ReviewResult):
            return answer
        try:
            async with asyncio.timeout(deadline - self._clock()):
                return await self._ended(asked, answer)
        except TimeoutError:
            return self._too_late(asked)

    def _begun(
        self, asked: AdmissionRequest, deadline: float
    ) -> ReviewResult | Awaitable[ReviewResult]:
        if self._clock() >= deadline:
            return self._too_late(asked)
        try:
            return self._decide(asked)
        except Exception as error:
            raise self._failure(asked, error) from error

    async def _ended(
        self, asked: AdmissionRequest, answer: Awaitable[ReviewResult]
    ) -> ReviewResult:
        try:
            return await answer
        except Exception as error:
            raise self._failure(asked, error) from error

    def _failure(self, asked: AdmissionRequest, error: Exception) -> _NoAnswerError:
        """Return what to tell of a failure to decide; our own mistakes go into the log."""
        if isinstance(error, QuotaUndecidedError):
            return _NoAnswerError(503, Outcome.UNDECIDED, str(error))
        if isinstance(error, AdmissionError):
            return _NoAnswerError(400, Outcome.MALFORMED, str(error))
        told = {"uid": asked.uid, "path": self.path}
        _log.error("no answer to a review", exc_info=error, extra=told)
        return _NoAnswerError(500, Outcome.ERROR, "internal error, see the log")

    def _too_late(self, asked: AdmissionRequest) -> ReviewResult:
        if self._fails_open:
            return admit_unmodified(asked, Outcome.DEADLINE, "no time was left")
        raise _NoAnswerError(503, Outcome.DEADLINE, "no time was left")

    async def _read(self, request: web.Request, deadline: float) -> AdmissionRequest:
        """Return the request of a review.

        Raises:
            _NoAnswerError: there is none: wrong, too large, or not here in time.
        """
        # Asked for by its usual text first: to take a content type apart takes a while.
        if request.headers.get("Content-Type") != _JSON and request.content_type != _JSON:
            raise _NoAnswerError(
                415, Outcome.MALFORMED, "a review has the content type `application/json`"
            )
        try:
            if request.content.is_eof():  # nearly always: it is all here, so reading takes no time
                return wire.decode(await request.read())
            async with asyncio.timeout(deadline - self._clock()):
                body = await request.read()
            return wire.decode(body)
        except TimeoutError as error:
            text = "the review did not arrive in time"
            raise _NoAnswerError(408, Outcome.DEADLINE, text) from error
        except (ConnectionError, web.RequestPayloadError) as error:
            text = "the review broke off"
            raise _NoAnswerError(400, Outcome.MALFORMED, text) from error
        except web.HTTPRequestEntityTooLarge as error:
            text = f"a review has at most {request.client_max_size} bytes"
            raise _NoAnswerError(413, Outcome.MALFORMED, text) from error
        except AdmissionError as error:
            raise _NoAnswerError(400, Outcome.MALFORMED, str(error)) from error
