"""The HTTP side of a review: read within limits, answer in time, count what came of it.

A review that can be answered gets an AdmissionReview with status 200, whatever the verdict. One
that cannot gets another status and a line of text, and the API server's failure policy decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import web

from engine.errors import QuotaUndecidedError
from engine.model.duration import DurationError, parse_duration
from webhook import review
from webhook.answers import Answer, Outcome, unadvised
from webhook.metrics import Metrics
from webhook.review import AdmissionError, AdmissionRequest
from webhook.turnstile import Room, Turnstile

Decide: TypeAlias = Callable[[AdmissionRequest], Answer | Awaitable[Answer]]
"""What answers a review, at once or after waiting for others."""

_NANOS = 1e9
_LONGEST_TIMEOUT = 30.0  # the most a webhook configuration may ask for

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
        try:
            given = parse_duration(request.query.get("timeout", "")) / _NANOS
        except DurationError:
            given = 0.0
        timeout = min(given, _LONGEST_TIMEOUT) if given > 0 else self.default_timeout_seconds
        return timeout * self.deadline_fraction


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
        self._turnstile = Turnstile(limits.max_in_flight)
        metrics.show_in_flight(path, lambda: self._turnstile.inside)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one review."""
        arrived = self._clock()
        counts: dict[str, Any] = {}
        try:
            answer = await self._answer(request, arrived + self._limits.seconds(request))
        except _NoAnswerError as failure:
            outcome = failure.outcome
            response = web.Response(status=failure.status, text=f"{failure}\n")
        else:
            outcome = answer.outcome
            counts = {"rule_errors": answer.rule_errors, "abstained": answer.abstained}
            body = review.encode(answer.response)
            response = web.Response(body=body, content_type="application/json")
        self._metrics.reviewed(self.path, outcome, self._clock() - arrived, **counts)
        return response

    async def _answer(self, request: web.Request, deadline: float) -> Answer:
        with self._turnstile.enter() as room:
            if room is Room.CROWDED or (room is Room.FULL and not self._fails_open):
                raise _NoAnswerError(503, Outcome.SHED, "too many reviews at a time")
            asked = await self._read(request, deadline)
            if room is Room.FULL:
                return unadvised(asked, Outcome.SHED, "too many pods at a time")
            async with self._turnstile.turn():
                if self._clock() >= deadline:
                    return self._too_late(asked)
                with self._failures_told(asked):
                    answer = self._decide(asked)
            if isinstance(answer, Answer):
                return answer
            try:
                async with asyncio.timeout(deadline - self._clock()):
                    with self._failures_told(asked):
                        return await answer
            except TimeoutError:
                return self._too_late(asked)

    @contextmanager
    def _failures_told(self, asked: AdmissionRequest) -> Iterator[None]:
        try:
            yield
        except QuotaUndecidedError as error:
            raise _NoAnswerError(503, Outcome.UNDECIDED, str(error)) from error
        except AdmissionError as error:
            raise _NoAnswerError(400, Outcome.MALFORMED, str(error)) from error
        except Exception as error:
            _log.exception("no answer to a review", extra={"uid": asked.uid, "path": self.path})
            raise _NoAnswerError(500, Outcome.ERROR, "internal error, see the log") from error

    def _too_late(self, asked: AdmissionRequest) -> Answer:
        if self._fails_open:
            return unadvised(asked, Outcome.DEADLINE, "no time was left")
        raise _NoAnswerError(503, Outcome.DEADLINE, "no time was left")

    async def _read(self, request: web.Request, deadline: float) -> AdmissionRequest:
        """Return the request of a review.

        Raises:
            _NoAnswerError: there is none: wrong, too large, or not here in time.
        """
        if request.content_type != "application/json":
            raise _NoAnswerError(
                415, Outcome.MALFORMED, "a review has the content type `application/json`"
            )
        try:
            async with asyncio.timeout(deadline - self._clock()):
                body = await request.read()
            return review.decode(body)
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
