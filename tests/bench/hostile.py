"""How long others wait while a hostile client attacks: `python -m tests.bench.hostile`.

`stowplan serve` follows a generated cluster in which things change. A patient client sends reviews
to both paths and asks for `/livez`; every round it does so twice: alone, and while
`tests.bench.load.hostile` attacks. What is compared is the latency that one answer in twenty
exceeds, of the path on which that grows most. Latencies depend on who else uses the machine: the
figure of a busy one says nothing.
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
from tests.bench.load.parts import ApiServer, Server
from tests.bench.load.reviews import Reviews

WHAT: Final = "beside a hostile client, answers wait longer by, ms"
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
    """A process that takes orders by its standard input, once it has said `ready`.

    Raises:
        RuntimeError: it did not start.
    """

    def __init__(self, stack: ExitStack, *command: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 (ours)
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(self._end)
        if self._process.stdout is None or not self._process.stdout.readline():
            raise RuntimeError("a process of the bench did not start")

    def order(self, order: str) -> None:
        """Send a line."""
        if self._process.stdin is None:
            raise AssertionError("it is a pipe")
        self._process.stdin.write(f"{order}\n".encode())
        self._process.stdin.flush()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def _staged(folder: Path) -> Iterator[tuple[_Process, Patient]]:
    """Yield the hostile client and the patient one, of a server that runs."""
    cluster = GeneratedCluster(nodes=_NODES, pods=_PODS)
    certificates = Certificates(folder)
    api_server = ApiServer(folder, [f"--nodes={_NODES}", f"--pods={_PODS}"], _EVENTS)
    kubeconfig = f"--kubeconfig={api_server.kubeconfig}"
    options = (kubeconfig, f"--policies={_POLICY}", *certificates.flags)
    server = Server("stowplan", folder, options, certificates.ca)
    with ExitStack() as stack:
        for part in (api_server, server):
            stack.callback(part.kill)
            part.start()
        api_server.begin_events()
        hostile = _Process(
            stack,
            "tests.bench.load.hostile",
            kubeconfig,
            f"--port={server.target.port}",
            f"--ca={certificates.ca}",
            f"--namespace={cluster.workloads[0].namespace}",
        )
        trust = ssl.create_default_context(cafile=certificates.ca)
        reviews = iter(Reviews(cluster.workloads, _REVIEWS, dry_run=True))
        yield hostile, Patient(server.target.port, trust, reviews)


def measured(rounds: int = _ROUNDS, seconds: float = _SECONDS) -> dict[str, list[float]]:
    """Print the figures of each round; return what is compared, by its name in the budgets."""
    longer = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hostile, patient = stack.enter_context(_staged(folder))
        asyncio.run(patient.latencies(seconds))  # the first decisions fill columns
        heading = "".join(f"{path:>34}" for path in PATHS)
        print(f"{'ms':18}{heading}")
        for number in range(1, rounds + 1):
            halves = []
            for name, order in (("alone", "off"), ("attacked", "on")):
                hostile.order(order)
                time.sleep(_SETTLE_SECONDS)
                halves.append(asyncio.run(patient.latencies(seconds)))
                figures = "".join(map(_figures, halves[-1].values()))
                print(f"round {number} {name:>10}{figures}", flush=True)
            longer.append(_longer(*halves))
    return {WHAT: longer}


def _longer(alone: Latencies, attacked: Latencies) -> float:
    """Return by how much one answer in twenty takes longer, of the path where it is most."""
    return max(
        exceeded_by_one_in_twenty(attacked[path]) - exceeded_by_one_in_twenty(alone[path])
        for path in PATHS
    )


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
