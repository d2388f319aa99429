"""What the lists of a start and a relist of all pods cost, and how long others wait in their steps.

Run as `python -m tests.bench.bench_lists [--nodes N --pods P]`. The objects come from a process of
their own, as events of streamed lists. Times are processor time of the thread of the event loop;
the longest step of a relist is what an answer waits for at most once, if nobody else is busy; `g`
marks those in which mostly garbage was collected.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any, Final, cast

from engine.model.kinds import WATCHED
from engine.model.time import micros
from engine.view import ClusterState
from tests.bench.cost_rules import policy_set
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import baseline_of, resident_mib, spare_the_collector
from tests.bench.steps import Steps
from tests.bench.texts import NOW
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.timing import Clock, ReflectorConfig
from webhook.cluster.watch.event_applier import EventApplier
from webhook.cluster.watch.reflector import Reflector
from webhook.serving.garbage import freezing_survivors
from webhook.serving.process import trim_heap

_RULES: Final = 10
_KINDS: Final = ("namespaces", "nodes", "nodemetrics.slo.koordinator.sh", "pods")
_END: Final = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}\n'
)
_GONE: Final = 410
_NOW: Final = micros(NOW)
_CONFIG: Final = ReflectorConfig(streamed_list_seconds=86_400.0)  # there are no pages
_LONGEST: Final = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--feed", action="store_true", help="write the events of all lists")
    asked = parser.parse_args()
    if asked.feed:
        sys.stdout.buffer.writelines(_events(asked.nodes, asked.pods))
        return
    command = [sys.executable, "-m", __spec__.name, "--feed"]
    command += [f"--nodes={asked.nodes}", f"--pods={asked.pods}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as feed:  # noqa: S603 (our own module)
        if feed.stdout is None:
            raise AssertionError("it is a pipe")
        asyncio.run(_measure(feed.stdout))


def _events(nodes: int, pods: int) -> Iterator[bytes]:
    """Yield the lines of a streamed list of each kind, and of another one of the pods."""
    cluster = GeneratedCluster(nodes=nodes, pods=pods)
    lists: Sequence[Callable[[], Iterator[bytes]]] = (
        cluster.namespaces,
        cluster.nodes,
        cluster.node_metrics,
        cluster.pods,
        cluster.pods,
    )
    for objects in lists:
        for text in objects():
            yield b'{"type":"ADDED","object":%b}\n' % text
        yield _END


class _Feed:
    """A connection to an API server that only sends streamed lists.

    Attributes:
        forgotten: ends its watch, so that another list is asked for.
        listed: set when a list was applied to its end.
    """

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines
        self.forgotten = asyncio.Event()
        self.listed = asyncio.Event()

    @asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[bytes]]:  # noqa: ANN401 - of a `Connection`
        yield self._list()

    async def _list(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            yield line
            if line == _END:
                break
        self.listed.set()
        await self.forgotten.wait()
        self.forgotten.clear()
        raise ApiError(_GONE, "Expired", "too old")


def _show(steps: Steps, what: str) -> None:
    """Print what was spent since the last time, and the longest steps."""
    count, seconds, longest = steps.count, steps.seconds, steps.take(_LONGEST)
    times = " ".join(
        f"{each.seconds * 1e3:.1f}" + ("g" if each.collecting > each.seconds / 2 else "")
        for each in longest
    )
    print(
        f"{what:12} {seconds:7.1f} s in {count:7,} steps, the longest {times} ms;"
        f" {resident_mib():.0f} MiB",
        flush=True,
    )


async def _measure(lines: IO[bytes]) -> None:
    spare_the_collector()
    state = ClusterState()
    state.track_sums(policy_set(_RULES).sum_profiles)
    applier = EventApplier(state, now=lambda: _NOW, buffers_usage=True)
    steps = Steps()
    by_name = {kind.name: kind for kind in WATCHED}
    clock = Clock(now=lambda: _NOW, sleep=lambda _: asyncio.sleep(0), jitter=lambda: 0.0)
    tasks = []
    with freezing_survivors():
        for name in _KINDS:
            kind, feed = by_name[name], _Feed(lines)
            connection, apply = cast("Connection", feed), applier.by_kind[kind.group, kind.kind]
            reflector = Reflector(connection, apply, clock, _CONFIG)
            tasks.append(asyncio.create_task(reflector.run()))
            await feed.listed.wait()
            _show(steps, name.partition(".")[0])
    for what, step in (("view", state.view), ("freeze", spare_the_collector), ("trim", trim_heap)):
        start = time.thread_time()
        step()
        print(f"{what:12} {(time.thread_time() - start) * 1e3:7.1f} ms", flush=True)
    await asyncio.sleep(0)
    steps.take(0)
    feed.listed.clear()
    feed.forgotten.set()
    await feed.listed.wait()
    _show(steps, "relist")
    start = time.thread_time()
    trim_heap()
    print(f"{'trim':12} {(time.thread_time() - start) * 1e3:7.1f} ms")
    print(f"a plain score of all nodes: {baseline_of(state.view()) / 1e3:.2f} ms")
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    main()
