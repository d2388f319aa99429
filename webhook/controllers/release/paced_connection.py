"""Requests about held pods: as fast as their rate allows, and only while this replica leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aiolimiter import AsyncLimiter

from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.timing import Backoff
from webhook.controllers.release.write_error import (
    UnclearError,
    WriteError,
    WriteFailure,
    write_error_of,
)

_PER_SECOND: Final = 300  # a service account's share of an API server is 245 at a time
_BURST: Final = 500
_MOST_IN_FLIGHT: Final = 50
_MOST_LARGE_IN_FLIGHT: Final = 2
_SLOW_POD_SECONDS: Final = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0


class PacedConnection:
    """A connection with a rate, a number of requests in flight, and a pause after failures.

    Large pods have a lane of their own: an API server may take half a minute for a patch of one
    with thousands of tolerations, which anybody may create.

    Args:
        connection: to the API server.
        may_write: whether this replica leads at this very moment.
        clock: seconds that only go forward.
        call_seconds: the longest wait for an answer.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        may_write: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        call_seconds: float = 10.0,
    ) -> None:
        self._connection = connection
        self._may_write = may_write
        self._clock = clock
        self._call_seconds = call_seconds
        self._limiter = AsyncLimiter(_BURST, _BURST / _PER_SECOND)
        self._in_flight = asyncio.Semaphore(_MOST_IN_FLIGHT)
        self._large_in_flight = asyncio.Semaphore(_MOST_LARGE_IN_FLIGHT)
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._pause_until = float("-inf")
        self._newest_answered = float("-inf")  # when the newest answered request was sent

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next request; 0 unless the API server was out of reach."""
        return max(self._pause_until - self._clock(), 0.0)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "",
        *,
        is_large: bool,
        is_own: bool = False,
        query: Query = (),
    ) -> bytes:
        """Send one request as soon as rate and number in flight allow; return the answer.

        Args:
            method: of HTTP.
            path: begins with `/`.
            body: JSON, empty for none.
            content_type: of the body.
            is_large: whether the pod is one that the API server may take long for.
            is_own: whether a 5xx may be of this pod alone; then nobody else waits for it, and the
                caller asks the API server for the pod.
            query: parameters, not yet encoded.

        Raises:
            WriteError: it failed.
            UnclearError: it failed, and the pod itself tells why.
        """
        async with self._large_in_flight if is_large else self._in_flight:
            await self._limiter.acquire()
            if not self._may_write():
                error = ApiError(NO_CONTACT, "", "this replica does not lead")
                raise WriteError(WriteFailure.NOT_LEADING, error)
            sent_at = self._clock()
            try:
                async with asyncio.timeout(self._call_seconds):
                    answer = await self._connection.write(
                        method, path, body, content_type=content_type, query=query
                    )
            except TimeoutError as error:
                raise self._timed_out(sent_at, is_large=is_large) from error
            except ApiError as error:
                raise self._failed(error, sent_at, is_own=is_own) from error
        self._answered(sent_at)
        return answer

    def _timed_out(self, sent_at: float, *, is_large: bool) -> WriteError:
        """Return the error of a request without an answer.

        It is the pod's own where the pod is large, or later requests were answered meanwhile.
        """
        if is_large or self._newest_answered >= sent_at + self._call_seconds / 2:
            message = f"the API server takes more than {self._call_seconds:g} s for this pod"
            slow = ApiError(NO_CONTACT, "", message, _SLOW_POD_SECONDS)
            return WriteError(WriteFailure.REFUSED, slow)
        return self._unreachable(ApiError(NO_CONTACT, "", "no answer in time"))

    def _failed(
        self, error: ApiError, sent_at: float, *, is_own: bool
    ) -> WriteError | UnclearError:
        failed = write_error_of(error, is_own=is_own)
        if isinstance(failed, WriteError) and failed.failure is WriteFailure.UNREACHABLE:
            return self._unreachable(error)
        self._answered(sent_at)
        return failed

    def _unreachable(self, error: ApiError) -> WriteError:
        if not self.pause_seconds:  # of many that fail at a time the first counts
            self._pause_until = self._clock() + self._backoff.next(error.retry_after_seconds)
        return WriteError(WriteFailure.UNREACHABLE, error)

    def _answered(self, sent_at: float) -> None:
        self._newest_answered = max(self._newest_answered, sent_at)
        self._pause_until = float("-inf")
        self._backoff.reset()
