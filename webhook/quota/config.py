"""Clock, timeouts and allowances of the ledger."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from engine.quota import AllowanceConfig, ReservationTimeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class MonotonicClock:
    """Durations, and randomness to spread them.

    Attributes:
        now: seconds that only go forward.
        sleep: waits for some seconds.
        jitter: a number in [0, 1).
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """Configuration of everything that reads and writes quotas.

    Attributes:
        clock: of all moments of the ledger.
        call_seconds: timeout of a request to the API server.
        timeouts: lifetime of reservations.
        allowances: conditions and size of allowances.
    """

    clock: MonotonicClock = field(default_factory=MonotonicClock)
    call_seconds: float = 3.0
    timeouts: ReservationTimeouts = field(default_factory=ReservationTimeouts)
    allowances: AllowanceConfig = field(default_factory=AllowanceConfig)
