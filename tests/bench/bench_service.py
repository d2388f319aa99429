"""What the service can do on a processor of its own: `python -m tests.bench.bench_service`.

The load bench needs a quiet machine. Here everything is in one process: AdmissionReviews go through
the HTTP server of aiohttp and the handlers of the server, over transports without sockets, at their
moments of a clock that stands still while others have the processor, while this bench makes its
texts, and that jumps while nobody has anything to do. So latencies and rates are those of a machine
that does nothing else, without TLS and the kernel; pods come and go by `--events` a second. What
can be compared between machines is the ratio to the floors, which are measured beside it.

With `--quota 0.5` the process gets half a processor, as under a CPU limit: in each tenth of a
second it runs for at most half of it, and then hangs until the next (`cpu.max` of a cgroup).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import uvloop
from aiohttp import web

import engine.placement
from engine.model import api
from engine.model.pod import pod_of
from engine.model.time import Micros, micros
from engine.pipeline import Scope
from engine.policy import load_policies
from engine.view import ClusterState
from tests.bench.bench_view import machine
from tests.bench.generate import GeneratedCluster
from tests.bench.load.reviews import Reviews
from tests.bench.measuring import loaded
from tests.bench.texts import NOW
from webhook.admission.concurrency_limiter import ConcurrencyLimiter
from webhook.admission.handler import Decide, ReviewHandler, ReviewLimits, Shortcut
from webhook.admission.placement import PlacementReviews
from webhook.admission.review_result import ignored
from webhook.admission.wire import allowed, encode
from webhook.cluster import Cluster
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts
from webhook.serving.connections import Connection, Connections

_POLICY = Path(__file__).with_name("policy.yaml")
_ANSWER: Final = encode(allowed("00000000-0000-4000-8000-000000000000"))
_DIFFERENT: Final = 20_000  # pods
_MOST_IN_FLIGHT: Final = 128  # as by default
_SATURATING: Final = 32  # connections
_TIMEOUT_SECONDS: Final = 1.0  # as in the chart
_PERIOD_SECONDS: Final = 0.1  # in which a quota of the processor counts, as by default in Linux
_PATCHED: Final = b'"patch":"'
_GC_THRESHOLDS: Final = (50_000, 20, 50)  # those of the server
_HEAD: Final = (
    b"POST /%b?timeout=1s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-apiserver-admission\r\n"
    b"Accept: application/json, */*\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class Clock:
    """Seconds of processor time, and of the time in which there was nothing to do, or no quota.

    Args:
        quota: of a processor.
        used: seconds of processor time that this thread has used.
    """

    def __init__(self, quota: float, used: Callable[[], float] = time.thread_time) -> None:
        self._allowed = quota * _PERIOD_SECONDS  # of each period
        self._used = used
        self._added = 0.0
        self._uncounted = 0.0  # processor time of others than the service
        self._period, self._used_before = -1.0, 0.0

    def __call__(self) -> float:
        """Return the moment."""
        used = self._used() - self._uncounted
        now = used + self._added
        period = now // _PERIOD_SECONDS
        if period != self._period:
            self._period, self._used_before = period, used
        elif used - self._used_before >= self._allowed:
            self._period, self._used_before = period + 1, used
            now = self._period * _PERIOD_SECONDS
            self._added = now - used
        return now

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stand still while something else is done."""
        began = self._used()
        yield
        self._uncounted += self._used() - began

    def jump_to(self, moment: float) -> None:
        """Pass the time until a moment, if it is not past."""
        self._added += max(0.0, moment - self())


class _Transport(asyncio.Transport):
    """Keeps what is written on a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of the base
        return ("127.0.0.1", 1) if name == "peername" else default

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


@dataclass(slots=True, eq=False)
class _Caller:
    """A connection and the review on it."""

    connection: Connection
    transport: _Transport
    due: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came of the reviews of a phase.

    Attributes:
        per_second: answers.
        micros: of the processor for each answer, events aside.
        latencies: milliseconds from the moment a review was due.
        advised: the share of answers with a patch.
        late: answers after the timeout of their caller.
        failed: answers with another status than 200.
    """

    per_second: float
    micros: float
    latencies: list[float]
    advised: float
    late: int
    failed: int

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies."""
        return float(np.quantile(self.latencies, share))


@dataclass(slots=True)
class _Count:
    latencies: list[float] = field(default_factory=list)
    advised: int = 0
    failed: int = 0


class Service:
    """The service in this process, and those who call it.

    Args:
        cluster: the generated cluster.
        policy: the file of the policies.
        events: pods that come or go, per second.
        quota: of a processor.
    """

    def __init__(
        self, cluster: GeneratedCluster, policy: Path, events: float, quota: float
    ) -> None:
        policies = load_policies([policy])
        self._clock, self._start = Clock(quota), micros(NOW)
        self._state = loaded(cluster.objects(), policies)
        known = Cluster(state=self._state, now=self._now, is_live=True)
        limiter = ConcurrencyLimiter(_MOST_IN_FLIGHT, self._clock)
        placer = Placer(
            view=known.view,
            now=known.now,
            scope=Scope(),
            encode=engine.placement.encode,
            clock=self._clock,
            explanations=Explanations(256, clock=self._clock),
            assumed=known,
        )
        placement = PlacementReviews(
            placer,
            lambda: policies,
            self._clock,
            PolicyCounts(),
            queue=limiter,
        )
        self._metrics = Metrics()
        self._handlers = [
            self._handler("mutate", placement.review, limiter, placement.without_waiting),
            self._handler("ignored", ignored, ConcurrencyLimiter(_MOST_IN_FLIGHT, self._clock)),
        ]
        self._bodies = iter(Reviews(cluster.workloads, _DIFFERENT))
        self._events = _events(self._state, cluster)
        self._between_events = 1 / events if events else float("inf")
        self._idle: list[_Caller] = []

    def _now(self) -> Micros:
        return Micros(self._start + int(self._clock() * 1e6))

    def _handler(
        self,
        path: str,
        decide: Decide,
        limiter: ConcurrencyLimiter,
        shortcut: Shortcut = lambda _: None,
    ) -> ReviewHandler:
        return ReviewHandler(
            path,
            decide,
            fails_open=True,
            limits=ReviewLimits(default_timeout_seconds=10.0, deadline_fraction=0.6),
            limiter=limiter,
            metrics=self._metrics,
            clock=self._clock,
            shortcut=shortcut,
        )

    async def start(self) -> None:
        """Make the HTTP server."""
        app = web.Application(client_max_size=7 * 1024 * 1024)
        for handler in self._handlers:
            app.router.add_post(f"/{handler.path}", handler.handle)
        app.router.add_post("/floor", _floor)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        if runner.server is None:
            raise AssertionError("setup makes the server")
        self._server, self._connections = runner.server, Connections(100_000)

    async def saturated(self, path: str, reviews: int) -> Came:
        """Send reviews by a few connections, on each the next as soon as the last is answered."""
        begin, due = self._clock(), [self._clock()] * _SATURATING
        return await self._phase(path, begin, due, reviews)

    async def at_rate(self, path: str, rate: float, reviews: int) -> Came:
        """Send reviews at random moments, whether or not those before were answered."""
        begin = self._clock()
        moments = np.random.default_rng(1).uniform(0, reviews / rate, reviews)
        return await self._phase(path, begin, sorted(begin + moments), 0)

    async def _phase(self, path: str, begin: float, due: list[float], followed: int) -> Came:
        """Send reviews at their moments; with `followed` one for each answer, so many in all."""
        clock, count, waiting = self._clock, _Count(), list[_Caller]()
        used, at, event_at = time.thread_time(), 0, begin + self._between_events
        with clock.stopped():
            texts = islice(self._bodies, max(followed, len(due)))
            requests = [_HEAD % (path.encode(), len(text)) + text for text in texts]
        spent = time.thread_time() - used
        used += spent
        while at < len(due) or waiting:
            if not waiting:
                clock.jump_to(min(due[at], event_at))
            while event_at <= clock():
                before = time.thread_time()
                next(self._events)
                used += time.thread_time() - before
                event_at += self._between_events
            while at < len(due) and due[at] <= clock():
                with clock.stopped():
                    caller = self._caller()
                    caller.due = due[at]
                    waiting.append(caller)
                caller.connection.data_received(requests[at])
                at += 1
            await asyncio.sleep(0)
            with clock.stopped():
                before = time.thread_time()
                still = self._answered(waiting, count)
                if followed:
                    due += [clock()] * min(len(waiting) - len(still), followed - len(due))
                waiting = still
                used += time.thread_time() - before
        seconds, micros_used = clock() - begin, (time.thread_time() - used) * 1e6
        answers = len(count.latencies)
        return Came(
            per_second=answers / seconds,
            micros=micros_used / answers,
            latencies=count.latencies,
            advised=count.advised / answers,
            late=sum(ms > _TIMEOUT_SECONDS * 1e3 for ms in count.latencies),
            failed=count.failed,
        )

    def _answered(self, waiting: list[_Caller], count: _Count) -> list[_Caller]:
        """Count the answers there are; return who still waits."""
        still, now = [], self._clock()
        for caller in waiting:
            if not caller.transport.written:
                still.append(caller)
                continue
            answer = b"".join(caller.transport.written)
            caller.transport.written.clear()
            count.latencies.append((now - caller.due) * 1e3)
            count.advised += _PATCHED in answer
            count.failed += not answer.startswith(b"HTTP/1.1 200 ")
            self._idle.append(caller)
        return still

    def _caller(self) -> _Caller:
        """Return an idle connection or a new one: the server closes those that idle for long."""
        while self._idle:
            caller = self._idle.pop()
            if not caller.transport.closed:
                return caller
        return self._dial()

    def _dial(self) -> _Caller:
        loop = asyncio.get_running_loop()
        connection = Connection(self._server, self._connections, loop=loop)
        transport = _Transport()
        connection.connection_made(transport)
        return _Caller(connection, transport)


async def _floor(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=_ANSWER, content_type="application/json")


def _events(state: ClusterState, cluster: GeneratedCluster) -> Iterator[None]:
    """Take a pod away, or let it come back, at each step, as a watch tells of it."""
    texts = list(islice(cluster.pods(), 0, None, max(1, cluster.pod_count // 5_000)))
    random.Random(1).shuffle(texts)
    decode = msgspec.json.Decoder(api.Pod).decode
    for text in cycle(texts):
        state.delete_pod(pod_of(decode(text)).key)
        yield
        state.set_pod(pod_of(decode(text)), seen_at=micros(NOW))
        yield


async def _measure(service: Service, show: Callable[[str, str], None], reviews: int) -> None:
    await service.start()
    await service.saturated("mutate", reviews // 4)  # as at a warm-up
    saturated = {path: await service.saturated(path, reviews) for path in _PATHS}
    most = {path: came.per_second for path, came in saturated.items()}
    for path, came in saturated.items():
        show(f"{path}, saturated", _text(came))
    rate = most["ignored"] / _LIGHT
    light = {path: await service.at_rate(path, rate, reviews) for path in ("ignored", "mutate")}
    for path, came in light.items():
        show(f"{path}, at a fifth of the rate of `ignored`", _text(came))
    over = await service.at_rate("mutate", 1.5 * most["mutate"], reviews)
    show("mutate, at 1.5 times its rate", _text(over))
    ratios = {
        "saturated, to `ignored`": most["mutate"] / most["ignored"],
        **{
            f"at a fifth of the rate, p{share:.0f}": light["mutate"].quantile(share / 100)
            / light["ignored"].quantile(share / 100)
            for share in (50, 99)
        },
    }
    for name, ratio in ratios.items():
        show(name, f"{ratio:.2f}")


_PATHS: Final = ("floor", "ignored", "mutate")
_LIGHT: Final = 5  # with TLS and sockets a tenth of what the floor can do


def _text(came: Came) -> str:
    return (
        f"{came.per_second:7,.0f}/s  {came.micros:5,.0f} us  p50 {came.quantile(0.5):6.2f}"
        f"  p99 {came.quantile(0.99):6.2f} ms  advised {came.advised:.3f}"
        f"  late {came.late}  failed {came.failed}"
    )


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--events", type=float, default=200, help="per second")
    parser.add_argument("--reviews", type=int, default=4_000, help="of each phase")
    parser.add_argument("--quota", type=float, default=1.0, help="of a processor")
    parser.add_argument("--policies", type=Path, default=_POLICY)
    asked = parser.parse_args()
    logging.disable()
    print(machine())
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    service = Service(cluster, asked.policies, asked.events, asked.quota)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            _measure(
                service, lambda name, text: print(f"{name:40} {text}", flush=True), asked.reviews
            )
        )


if __name__ == "__main__":
    main()
