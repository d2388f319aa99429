"""Timing of requests to the API server: pauses after failures, intervals, and the clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.model.time import Micros

_LONGEST_RETRY_AFTER_SECONDS = 120.0  # a server that asks for more is not believed


class Backoff:
    """Waits that double up to a bound, each with jitter so that replicas do not retry in step."""

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._jitter = jitter
        self._wait = first_seconds

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._wait = self._first

    def next(self, retry_after: float | None = None) -> float:
        """Return the seconds to wait now, between half and all of the current wait.

        A server may ask for more by `Retry-After`.
        """
        wait = self._wait * (1 + self._jitter()) / 2
        self._wait = min(2 * self._wait, self._longest)
        return max(wait, min(retry_after or 0.0, _LONGEST_RETRY_AFTER_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorConfig:
    """Page size and intervals of a reflector, in seconds."""

    page_size: int = 500  # objects in a page of a list
    watch_seconds: int = 300  # the API server ends a watch after one to two times that
    # a watch is cut after that long without an event: bookmarks come every minute
    silence_seconds: float = 90.0
    # a streamed list that takes longer, for so many objects or until its end, is replaced by one in
    # pages: an API server that ignores what asks for a list marks no end
    streamed_list_seconds: float = 60.0
    streamed_list_objects: int = 10_000  # how many of them
    look_again_seconds: float = 30.0  # time between two looks for an absent API
    first_retry_seconds: float = 0.5  # the first wait after a failure
    longest_retry_seconds: float = 15.0  # waits double up to that


DEFAULT_CONFIG = ReflectorConfig()
"""Suits clusters of any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time as a source sees it; tests replace it."""

    now: Callable[[], Micros]  # the time of day
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # waits for some seconds
    jitter: Callable[[], float] = random.random  # a number in [0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonotonicClock:
    """Durations, and randomness to spread them; tests replace it."""

    now: Callable[[], float] = time.monotonic  # seconds that only go forward
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # waits for some seconds
    jitter: Callable[[], float] = random.random  # a number in [0, 1)
