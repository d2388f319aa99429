"""How long others wait while a hostile client attacks: `python -m tests.bench.hostile`.

The server of stowplan follows a generated cluster in which things change. A patient client sends
reviews to both paths and asks for `/livez`; every round it does so twice: alone, and while
`tests.bench.load.hostile` attacks. What is compared is the longest turn of the server's event loop,
for which everybody waits, in processor time: latencies are printed too, but depend on who else uses
the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import aiohttp

from tests.bench.generate import GeneratedCluster
from tests.bench.load.certificates import Certificates
from tests.bench.load.parts import ApiServer
from tests.bench.load.reviews import Reviews

WHAT: Final = "beside a hostile client, a turn is longer by, ms"
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
        waited: Latencies = {path: [] for path in PATHS}
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, asyncio.TaskGroup() as group:
            await self._ask(session, "/livez", time.perf_counter(), [])  # opens a connection
            began = time.perf_counter() + 0.1
            for number in range(round(seconds * _RATE * len(PATHS))):
                due = began + number / (_RATE * len(PATHS))
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                path = PATHS[number % len(PATHS)]
                group.create_task(self._ask(session, path, due, waited[path]))
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


class _Process:
    """A process that takes orders by its standard input; it says `ready` first."""

    def __init__(self, stack: ExitStack, *command: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 (ours)
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(self._end)
        self.port = self.answer().removeprefix("ready").strip()

    def order(self, order: str) -> None:
        """Send a line."""
        if self._process.stdin is None:
            raise AssertionError("it is a pipe")
        self._process.stdin.write(f"{order}\n".encode())
        self._process.stdin.flush()

    def answer(self) -> str:
        """Return the next line of its standard output.

        Raises:
            RuntimeError: it is gone.
        """
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise RuntimeError("a process of the bench is gone")
        return line.decode()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def _staged(folder: Path) -> Iterator[tuple[_Process, _Process, Patient]]:
    """Yield the server, the hostile client and the patient one."""
    cluster = GeneratedCluster(nodes=_NODES, pods=_PODS)
    certificates = Certificates(folder)
    api_server = ApiServer(folder, [f"--nodes={_NODES}", f"--pods={_PODS}"], _EVENTS)
    with ExitStack() as stack:
        stack.callback(api_server.kill)
        api_server.start()
        kubeconfig = f"--kubeconfig={api_server.kubeconfig}"
        server = _Process(
            stack,
            "tests.bench.load.turns",
            kubeconfig,
            f"--policies={_POLICY}",
            *certificates.flags,
        )
        api_server.begin_events()
        hostile = _Process(
            stack,
            "tests.bench.load.hostile",
            kubeconfig,
            f"--port={server.port}",
            f"--ca={certificates.ca}",
            f"--namespace={cluster.workloads[0].namespace}",
        )
        trust = ssl.create_default_context(cafile=certificates.ca)
        reviews = iter(Reviews(cluster.workloads, _REVIEWS, dry_run=True))
        yield server, hostile, Patient(int(server.port), trust, reviews)


def measured(rounds: int = _ROUNDS, seconds: float = _SECONDS) -> dict[str, list[float]]:
    """Print the figures of each round; return what is compared, by its name in the budgets."""
    longer = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, hostile, patient = stack.enter_context(_staged(folder))
        asyncio.run(patient.latencies(seconds))  # the first decisions fill columns
        heading = "".join(f"{path:>34}" for path in PATHS)
        print(f"{'ms':18}{'longest turn':>13}{heading}")
        for number in range(1, rounds + 1):
            turns = []
            for name, order in (("alone", "off"), ("attacked", "on")):
                hostile.order(order)
                time.sleep(_SETTLE_SECONDS)
                _longest_turn(server)
                latencies = asyncio.run(patient.latencies(seconds))
                turns.append(_longest_turn(server))
                figures = "".join(map(_figures, latencies.values()))
                print(f"round {number} {name:>10}{turns[-1]:13.1f}{figures}", flush=True)
            longer.append(max(0.0, turns[1] - turns[0]))
    return {WHAT: longer}


def _longest_turn(server: _Process) -> float:
    server.order("longest")
    return float(server.answer())


def _figures(latencies: Sequence[float]) -> str:
    p95 = exceeded_by_one_in_twenty(latencies)
    return f"   p50 {statistics.median(latencies):6.1f} p95 {p95:6.1f} max {max(latencies):6.0f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of each half of a round")
    asked = parser.parse_args()
    for what, found in measured(asked.rounds, asked.seconds).items():
        print(f"{what:50} {statistics.mean(found):6.1f} +- {statistics.pstdev(found):.1f}")


if __name__ == "__main__":
    main()
