"""Who sends reviews, a process of its own: `python -m tests.bench.load.sender`.

Takes a `Phase` per line of its standard input and answers with a `Window` per line, until its
standard input ends. A latency is counted from the moment a review is due, whether or not there was
a seat or a connection for it: waiting counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator

import msgspec
import uvloop

from tests.bench.generate import GeneratedCluster
from tests.bench.load import standard_input
from tests.bench.load.connections import Pool, Sent, clock
from tests.bench.load.messages import Arrival, Phase, Target, Window
from tests.bench.load.reviews import Reviews
from tests.bench.load.schedule import moments

_BREATH_SECONDS = 0.05
_DIFFERENT = 20_000  # pods
_SWITCH_SECONDS = 0.0005


class Sender:
    """Sends reviews of a generated cluster's workloads."""

    def __init__(self, reviews: Reviews) -> None:
        self._bodies = iter(reviews)
        self._left: dict[Target, Pool] = {}  # by phases that leave their connections

    async def send(self, phase: Phase) -> AsyncIterator[Window]:
        """Send the reviews of a phase; yield what comes of them, window by window."""
        head = _head(phase.target.path)
        pool = self._left.pop(phase.target, None) or Pool(
            target=phase.target,
            most=phase.connections,
            seats=phase.seats,
            reviews_each=phase.reviews_per_connection,
        )
        begin = clock() + _BREATH_SECONDS
        end = begin + phase.seconds
        due = [begin + moment for moment in moments(phase)]
        texts = (head % (len(body), body) for body in self._bodies)
        if phase.arrival is Arrival.AT_ONCE:
            pool.when_idle = lambda: Sent(clock(), next(texts)) if clock() < end else None
            for _ in range(phase.connections):
                pool.dial()
        else:
            self._start(pool, due, texts)
        tell_at = begin
        while clock() < end or due or pool.busy:
            await asyncio.sleep(_BREATH_SECONDS)
            pool.give_up_late_ones()
            if clock() >= tell_at + phase.window_seconds:
                tell_at += phase.window_seconds
                window, pool.count = pool.count, Window()
                yield window
        if phase.leaves_connections:
            self._left[phase.target] = pool
        else:
            pool.close()
            await asyncio.sleep(0)
        window, pool.count = pool.count, Window()
        window.last = True
        yield window

    def _start(self, pool: Pool, due: list[float], texts: Iterator[bytes]) -> None:
        """Submit a review at each moment; by a thread, for the event loop counts milliseconds.

        As many are left in `due` as are not submitted yet, however late that is.
        """
        loop = asyncio.get_running_loop()
        each = tuple(due)

        def submit(moment: float) -> None:
            due.pop()
            pool.count.lags.append(round((clock() - moment) * 1e6))
            pool.submit(Sent(moment, next(texts)))

        def beat() -> None:
            for moment in each:
                seconds = moment - clock()
                if seconds > 0:
                    time.sleep(seconds)
                loop.call_soon_threadsafe(submit, moment)

        threading.Thread(target=beat, daemon=True).start()


def _head(path: str) -> bytes:
    """Return the request to be filled in with the length and the text of a body."""
    return (
        f"POST {path}?timeout=1s HTTP/1.1\r\n"
        "Host: localhost\r\n"
        "User-Agent: kube-apiserver-admission\r\n"
        "Accept: application/json, */*\r\n"
        "Content-Type: application/json\r\n"
    ).encode() + b"Content-Length: %d\r\n\r\n%b"


async def _obey(sender: Sender) -> None:
    orders = await standard_input.opened()
    encode = msgspec.json.Encoder().encode
    while order := await orders.readline():
        async for window in sender.send(msgspec.json.decode(order, type=Phase)):
            sys.stdout.buffer.write(encode(window) + b"\n")
            sys.stdout.buffer.flush()


def main() -> None:
    """Make the reviews, then send what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    asked = parser.parse_args()
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    sender = Sender(Reviews(cluster.workloads, _DIFFERENT))
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_obey(sender))


if __name__ == "__main__":
    main()
