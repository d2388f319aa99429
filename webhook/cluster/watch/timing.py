"""How long to wait for what, and what a second is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.model.time import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorConfig:
    """How long a reflector waits for what, in seconds.

    Attributes:
        page_size: objects in a page of a list.
        watch_seconds: a watch is ended by the API server after one to two times that.
        silence_seconds: a watch that says nothing for that long is dead: bookmarks come every
            minute.
        streamed_list_seconds: a streamed list that takes longer is given up for one in pages.
        look_again_seconds: how often to look for an API that is not there.
        first_retry_seconds: the first wait after a failure.
        longest_retry_seconds: waits double up to that.
    """

    page_size: int = 500
    watch_seconds: int = 300
    silence_seconds: float = 90.0
    streamed_list_seconds: float = 60.0
    look_again_seconds: float = 30.0
    first_retry_seconds: float = 0.5
    longest_retry_seconds: float = 15.0


USUAL = ReflectorConfig()
"""What suits a cluster of any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What time is to a source.

    Attributes:
        now: the time of day.
        sleep: waits for some seconds.
        jitter: a number in [0, 1).
    """

    now: Callable[[], Micros]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
