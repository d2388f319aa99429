"""How much longer others wait while a hostile client attacks: `python -m tests.bench.hostile`.

`stowplan serve` follows a generated cluster in which things change. A patient client sends reviews
to both paths and asks for `/livez`, each at its moment, and a latency counts from that moment.
Every round it does so twice: alone, and while `tests.bench.load.hostile` attacks. What is compared
is the latency that one in twenty exceeds. Server and clients share a machine, which may have others
to serve: so the client also works for two milliseconds now and then, and a delay counts in
proportion to how much longer than two milliseconds that takes.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import aiohttp

from tests.bench.generate import GeneratedCluster
from tests.bench.load.certificates import Certificates
from tests.bench.load.parts import ApiServer, Server
from tests.bench.load.reviews import Reviews

WHAT: Final = "beside a hostile client, {} waits longer, ms"
_WORK: Final = "work"
_WORK_SECONDS: Final = 0.002
_WORK_EVERY_SECONDS: Final = 0.1
PATHS: Final = ("/mutate", "/validate", "/livez")

_NODES, _PODS, _EVENTS = 5_000, 2_000, 10
_POLICY: Final = Path(__file__).with_name("policy.yaml")
_ROUNDS: Final = 6
_SECONDS: Final = 3.5
_RATE: Final = 8.0  # of each path, a second
_SETTLE_SECONDS: Final = 1.5
_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
_REVIEWS: Final = 200
_OK: Final = 200
_JSON: Final = "application/json"

Latencies: TypeAlias = dict[str, list[float]]
"""Milliseconds, by path."""


def exceeded_by_one_in_twenty(latencies: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(latencies, n=20)[-1]


def delays(rounds: Sequence[tuple[Latencies, Latencies]]) -> dict[str, list[float]]:
    """Return by how much each path was delayed in each round, milliseconds of a machine of our own.

    Args:
        rounds: latencies alone and under attack, of work too.
    """
    return {
        WHAT.format(path): [
            _delay(alone[path], hostile[path]) / slowness(hostile[_WORK])
            for alone, hostile in rounds
        ]
        for path in PATHS
    }


def slowness(work: Sequence[float]) -> float:
    """Return how many times longer work takes than on a machine with nothing else to do."""
    return max(1.0, exceeded_by_one_in_twenty(work) / (_WORK_SECONDS * 1e3))


def _delay(alone: Sequence[float], hostile: Sequence[float]) -> float:
    return max(0.0, exceeded_by_one_in_twenty(hostile) - exceeded_by_one_in_twenty(alone))


class Patient:
    """Sends reviews and probes as an API server and a kubelet do."""

    def __init__(self, port: int, trust: ssl.SSLContext, reviews: Iterator[bytes]) -> None:
        self._url = f"https://localhost:{port}"
        self._trust = trust
        self._reviews = reviews

    async def latencies(self, seconds: float) -> Latencies:
        """Return what it waits for each answer.

        Raises:
            RuntimeError: an answer has another status than 200.
        """
        waited: Latencies = {what: [] for what in (*PATHS, _WORK)}
        worker = threading.Thread(target=_work, args=(seconds, waited[_WORK]))
        worker.start()
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, asyncio.TaskGroup() as group:
            await self._ask(session, "/livez", time.perf_counter(), [])  # opens a connection
            began = time.perf_counter() + 0.1
            for number in range(round(seconds * _RATE * len(PATHS))):
                due = began + number / (_RATE * len(PATHS))
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                path = PATHS[number % len(PATHS)]
                group.create_task(self._ask(session, path, due, waited[path]))
        await asyncio.to_thread(worker.join)
        return waited

    async def _ask(
        self, session: aiohttp.ClientSession, path: str, due: float, waited: list[float]
    ) -> None:
        body = None if path == "/livez" else next(self._reviews)
        method, headers = ("GET", None) if body is None else ("POST", {"Content-Type": _JSON})
        url = f"{self._url}{path}"
        with suppress(TimeoutError):  # which is as long as that
            async with session.request(
                method, url, data=body, headers=headers, ssl=self._trust
            ) as response:
                await response.read()
                if response.status != _OK:
                    raise RuntimeError(f"{path} answers {response.status}")
        waited.append((time.perf_counter() - due) * 1e3)


def _work(seconds: float, took: list[float]) -> None:
    """Note how long work takes, milliseconds."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        time.sleep(_WORK_EVERY_SECONDS)
        began, done = time.perf_counter(), time.thread_time() + _WORK_SECONDS
        while time.thread_time() < done:
            pass
        took.append((time.perf_counter() - began) * 1e3)


class _Attacker:
    """The process of the hostile client."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def attack(self) -> None:
        """Begin."""
        self._say(b"on\n")

    def rest(self) -> None:
        """End."""
        self._say(b"off\n")

    def _say(self, order: bytes) -> None:
        if self._process.stdin is None or self._process.poll() is not None:
            raise RuntimeError("the hostile client is gone")
        self._process.stdin.write(order)
        self._process.stdin.flush()


@contextmanager
def _staged(folder: Path) -> Iterator[tuple[Server, _Attacker, Patient]]:
    cluster = GeneratedCluster(nodes=_NODES, pods=_PODS)
    certificates = Certificates(folder)
    api_server = ApiServer(folder, [f"--nodes={_NODES}", f"--pods={_PODS}"], _EVENTS)
    with ExitStack() as stack:
        stack.callback(api_server.kill)
        api_server.start()
        options = [
            f"--kubeconfig={api_server.kubeconfig}",
            f"--policies={_POLICY}",
            *certificates.flags,
        ]
        server = Server("stowplan", folder, options, certificates.ca)
        stack.callback(server.kill)
        server.start()
        api_server.begin_events()
        namespace = cluster.workloads[0].namespace
        command = [sys.executable, "-m", "tests.bench.load.hostile", f"--port={server.target.port}"]
        command += [f"--ca={certificates.ca}", f"--kubeconfig={api_server.kubeconfig}"]
        process = subprocess.Popen(  # noqa: S603 (ours)
            [*command, f"--namespace={namespace}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(_end, process)
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError("the hostile client did not start")
        trust = ssl.create_default_context(cafile=certificates.ca)
        reviews = iter(Reviews(cluster.workloads, _REVIEWS, dry_run=True))
        yield server, _Attacker(process), Patient(server.target.port, trust, reviews)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def measured(rounds: int = _ROUNDS, seconds: float = _SECONDS) -> dict[str, list[float]]:
    """Print the figures of each round; return the delays by their names in the budgets."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _staged(Path(folder)) as (server, attacker, patient),
    ):
        asyncio.run(patient.latencies(seconds))  # the first decisions fill columns
        found = []
        print(f"{'ms':12} {'':>9}" + "".join(f"{what:>34}" for what in (*PATHS, _WORK)))
        for number in range(1, rounds + 1):
            alone = asyncio.run(patient.latencies(seconds))
            attacker.attack()
            time.sleep(_SETTLE_SECONDS)
            hostile = asyncio.run(patient.latencies(seconds))
            attacker.rest()
            time.sleep(_SETTLE_SECONDS)
            found.append((alone, hostile))
            for name, latencies in (("alone", alone), ("attacked", hostile)):
                print(f"round {number:<6} {name:>9}" + "".join(map(_figures, latencies.values())))
        closed = server.scrape().by("reason", "stowplan_connections_closed_total")
        print("connections closed:", ", ".join(f"{n:.0f} {why}" for why, n in closed.items()))
        return delays(found)


def _figures(latencies: Sequence[float]) -> str:
    p95 = exceeded_by_one_in_twenty(latencies)
    return f"   p50 {statistics.median(latencies):5.1f} p95 {p95:5.1f} max {max(latencies):5.0f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of each half of a round")
    asked = parser.parse_args()
    for what, found in measured(asked.rounds, asked.seconds).items():
        print(f"{what:58} {statistics.mean(found):6.1f} +- {statistics.pstdev(found):.1f}")


if __name__ == "__main__":
    main()
