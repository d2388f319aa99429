"""What the bench and its sender of reviews say to each other, one line of JSON each."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Arrival(StrEnum):
    """When reviews come."""

    RANDOM = "random"  # independent of each other: a Poisson process
    EVEN = "even"  # one after the other at equal distances
    BURST = "burst"  # rollouts: groups of pods, one a millisecond
    AT_ONCE = "at once"  # each connection sends the next as soon as it has an answer


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where reviews go.

    Attributes:
        ca_file: whom to trust; empty for plain HTTP.
    """

    port: int
    path: str
    ca_file: str = ""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Reviews to send.

    Attributes:
        rate: per second; with `AT_ONCE` it does not matter.
        connections: at most; they are made when none is idle, and some are kept. An API server has
            no limit; this one keeps our descriptors from running out.
        seats: reviews at a time. Of the 600 requests that an API server handles at a time, 245 are
            for service accounts, which create nearly all pods; more wait there.
        reviews_per_connection: then it is closed in good order; 0 for never.
        leaves_connections: whether those idle at the end stay, for the next phase with that target.
        window_seconds: how often to tell what came of them.
    """

    target: Target
    arrival: Arrival
    seconds: float
    rate: float = 0.0
    connections: int = 900
    seats: int = 245
    reviews_per_connection: int = 0
    leaves_connections: bool = False
    window_seconds: float = 1.0


class Window(msgspec.Struct, kw_only=True):
    """What came of the reviews whose end came since the last window.

    Attributes:
        latencies: from the scheduled moment to the answer, microseconds.
        lags: from the scheduled moment until we got around to it, microseconds: our own fault.
        advised: answers with a patch.
        timed_out: reviews without an answer in the time an API server gives.
        failed: by what went wrong.
        connected: connections made.
        last: no more will follow.
    """

    latencies: list[int] = []
    lags: list[int] = []
    advised: int = 0
    timed_out: int = 0
    failed: dict[str, int] = {}
    connected: int = 0
    last: bool = False

    def add(self, other: Window) -> None:
        """Count what came of others too."""
        self.latencies += other.latencies
        self.lags += other.lags
        self.advised += other.advised
        self.timed_out += other.timed_out
        for what, count in other.failed.items():
            self.failed[what] = self.failed.get(what, 0) + count
        self.connected += other.connected
