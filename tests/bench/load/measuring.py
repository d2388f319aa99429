"""What one phase shows: of the reviews, of the server, and of whoever else had the processors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np

from tests.bench.load.messages import Arrival, Phase, Window
from tests.bench.load.processes import Usage, machine_cpu_seconds
from tests.bench.load.scrape import Scrape, handled
from tests.bench.load.stage import Sender

LEAD_IN_SECONDS = 2.0
"""How long reviews come at a fixed rate before they are measured."""

_FIXED_RATE = frozenset({Arrival.RANDOM, Arrival.EVEN})
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Measured(Protocol):
    """A process that is measured."""

    @property
    def usage(self) -> Usage:
        """What it has used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What the server says of its handler, milliseconds.

    Quantiles are as exact as the buckets of its histogram; the mean is exact.
    """

    mean: float
    quantiles: Mapping[str, float]
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a phase showed.

    Attributes:
        name: of the phase.
        seconds: how long it took.
        answered: reviews with an answer in time.
        client: milliseconds from the moment a review was due to its answer, by share.
        lag_p99: milliseconds by which the sender itself was late.
        advised: answers with a patch.
        timed_out: reviews without an answer within a second.
        failed: reviews by what went wrong with them.
        connected: connections made.
        cpu: seconds of processor by process, `others` being all that is not of the bench.
        waited: seconds that the server waited for a processor that others had.
        handler: what the server says; None for the floor.
    """

    name: str
    seconds: float
    answered: int
    client: Mapping[str, float]
    lag_p99: float
    advised: int
    timed_out: int
    failed: Mapping[str, int]
    connected: int
    cpu: Mapping[str, float]
    waited: float
    handler: Handler | None = None

    @property
    def rate(self) -> float:
        """Reviews answered per second."""
        return self.answered / self.seconds

    @property
    def share_advised(self) -> float:
        """Of the reviews with an answer, those with a patch; 0 where none was answered."""
        return self.advised / max(1, self.answered)

    @property
    def cpu_per_review(self) -> float:
        """Seconds of the server's processor time for each answer."""
        return self.cpu["server"] / self.answered if self.answered else 0.0


@dataclass(slots=True, kw_only=True)
class Observer:
    """Watches processes while something happens to them.

    Attributes:
        server: the one that matters.
        beside: the others of the bench by name, idle ones too.
        scrape: asks the server for its metrics; None where it has none.
    """

    server: Measured
    beside: Mapping[str, Measured]
    scrape: Callable[[], Scrape] | None = None
    _begun: float = 0.0
    _scraped: Scrape | None = None
    _usage: dict[str, Usage] = field(default_factory=dict)
    _machine: float = 0.0

    def begin(self) -> None:
        """Take note of how things are."""
        self._scraped = self.scrape() if self.scrape else None
        self._usage = self._usages()
        self._machine = machine_cpu_seconds()
        self._begun = time.monotonic()

    def end(self, name: str, came: Window) -> Figures:
        """Return what has happened since."""
        seconds = time.monotonic() - self._begun
        usage = self._usages()
        busy = machine_cpu_seconds() - self._machine
        cpu = {one: usage[one].cpu_seconds - self._usage[one].cpu_seconds for one in usage}
        return Figures(
            name=name,
            seconds=seconds,
            answered=len(came.latencies),
            client={share: ms / 1e3 for share, ms in quantiles(came.latencies).items()},
            lag_p99=quantiles(came.lags)["p99"] / 1e3,
            advised=came.advised,
            timed_out=came.timed_out,
            failed=came.failed,
            connected=came.connected,
            cpu={**cpu, "others": max(0.0, busy - sum(cpu.values()))},
            waited=usage["server"].waited_seconds - self._usage["server"].waited_seconds,
            handler=self._handler(),
        )

    def _usages(self) -> dict[str, Usage]:
        return {"server": self.server.usage, **{k: one.usage for k, one in self.beside.items()}}

    def _handler(self) -> Handler | None:
        if self.scrape is None or self._scraped is None:
            return None
        said = handled(self._scraped, self.scrape())
        return Handler(
            mean=said.mean * 1e3,
            quantiles={name: said.quantile(share) * 1e3 for name, share in _SHARES.items()},
            outcomes=said.outcomes,
        )


def quantiles(values: list[int]) -> dict[str, float]:
    """Return the usual quantiles, zero where there is nothing."""
    found = np.quantile(values or [0], list(_SHARES.values()))
    return dict(zip(_SHARES, map(float, found), strict=True))


def measured(
    name: str, phase: Phase, sender: Sender, observer: Observer, passed: Callable[[float], object]
) -> Figures:
    """Run a phase and return what it showed.

    One at a fixed rate has a lead-in, of which nothing is measured, but that it leaves connections:
    an API server has them from the pods before, and to make some fifty at once costs the reviews of
    that second more than anything else. What connections cost shows in a burst, which has none.

    Args:
        name: of the phase.
        phase: what is sent.
        sender: by whom.
        observer: of the server it is sent to.
        passed: told of each second that has passed.
    """
    if phase.arrival in _FIXED_RATE:
        for _ in sender.send(
            msgspec.structs.replace(phase, seconds=LEAD_IN_SECONDS, leaves_connections=True)
        ):
            pass
    came = Window()
    observer.begin()
    for window in sender.send(phase):
        came.add(window)
        passed(phase.window_seconds)
    return observer.end(name, came)
