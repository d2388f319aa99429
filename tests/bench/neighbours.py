"""How long a namespace waits beside one with costly policies: `python -m tests.bench.neighbours`.

`stowplan serve` follows a generated cluster in which things change. One namespace has 16 policies
that cost as much as those of a namespace may. A patient client sends reviews of another to both
paths; every round it does so twice: alone, and while pods are created in the first one, several at
a time and each as soon as the one before is answered. No two of those share a decision. Reviews of
quota are dry runs: none of these pods ever comes, and what it reserved would fill the quota.

Latencies depend on who else uses the machine, so beside them, in brackets, stands the processor
time that the event loop of the server took between a review and its answer: what the wait would be
on a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import aiohttp
import yaml

from engine.model.policy_resource import POLICY_GROUP, POLICY_VERSION, PolicyKind, PolicyResource
from engine.policy import MOST_COST_OF_A_NAMESPACE, compile_resource
from tests.bench.generate import GeneratedCluster
from tests.bench.load.certificates import Certificates
from tests.bench.load.parts import ApiServer, Server
from tests.bench.load.reviews import Reviews
from tests.bench.texts import Workload

_POLICY: Final = Path(__file__).with_name("policy.yaml")
_POLICIES: Final = 16
_EVENTS: Final = 10
_PATHS: Final = ("/mutate", "/validate")
_RATE: Final = 20.0  # of each path, a second
_CONNECTIONS: Final = 50
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_PATIENCE_SECONDS: Final = 60
_OK: Final = 200
_DRY: Final = (b'"dryRun": false', b'"dryRun": true')
_JSON: Final = {"Content-Type": "application/json"}


class Wait(NamedTuple):
    """From a review to its answer, in milliseconds."""

    wall: float
    worked: float  # processor time of the event loop


Waits: TypeAlias = dict[str, list[Wait]]
"""By path."""


def costly_policies(namespace: str) -> list[dict[str, Any]]:
    """Return policies whose rules differ for each pod, as costly as a namespace may have them."""
    serial = count()
    return [_policy(namespace, f"costly-{number}", serial) for number in range(_POLICIES)]


def _policy(namespace: str, name: str, serial: Iterator[int]) -> dict[str, Any]:
    kind, scores = PolicyKind.NAMESPACED, list[dict[str, Any]]()
    while True:
        expression = f"node.labels[?'l{next(serial)}'].orValue('') == pod.name ? 1 : 0"
        rule = {"name": f"r{len(scores)}", "expression": expression}
        spec = {"scores": [*scores, rule]}
        resource = PolicyResource(kind=kind, namespace=namespace, name=name, spec=spec)
        policy = compile_resource(resource).policy
        if policy is None or policy.cost > MOST_COST_OF_A_NAMESPACE // _POLICIES:
            break
        scores.append(rule)
    return {
        "apiVersion": f"{POLICY_GROUP}/{POLICY_VERSION}",
        "kind": kind.value,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scores": scores},
    }


def _named_pods(workload: Workload) -> Iterator[bytes]:
    """Yield reviews of pods that have a name each, and so share no decision."""
    review = json.loads(next(iter(Reviews([workload], 1))))
    request = review["request"]
    request["name"] = request["object"]["metadata"]["name"] = request["uid"] = "SERIAL"
    parts = json.dumps(review).split("SERIAL")
    for number in count():
        yield f"pod-{number}".join(parts).encode()


class Neighbours:
    """The clients of both namespaces.

    Attributes:
        created: costly pods so far.
        failed: reviews without an answer so far: on a machine that is far too busy.
    """

    def __init__(
        self, server: Server, trust: ssl.SSLContext, costly: Workload, other: Workload
    ) -> None:
        self._url = f"https://localhost:{server.target.port}"
        self._statistics = Path(f"/proc/{server.pid}/schedstat")  # of its main thread
        self._trust = trust
        self._costly = _named_pods(costly)
        self._other = iter(Reviews([other], 1, dry_run=True))
        self.created = self.failed = 0

    async def waits(self, seconds: float, creators: int) -> Waits:
        """Return what the other namespace waits while costly pods are created."""
        waited: Waits = {path: [] for path in _PATHS}

        async def create() -> None:
            for pod in self._costly:
                with suppress(TimeoutError):
                    await self._ask(session, "/mutate", pod)
                    await self._ask(session, "/validate", pod.replace(*_DRY))
                    self.created += 1

        async def wait(path: str, due: float) -> None:
            worked = self._worked()
            with suppress(TimeoutError):  # which is as long as that
                await self._ask(session, path, next(self._other))
            waited[path].append(
                Wait((time.perf_counter() - due) * 1e3, (self._worked() - worked) / 1e6)
            )

        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            # An API server has its connections: to open one may take longer than an answer.
            warm_up = [
                self._ask(session, _PATHS[-1], next(self._other)) for _ in range(_CONNECTIONS)
            ]
            await asyncio.gather(*warm_up)
            async with asyncio.TaskGroup() as group:
                creating = [group.create_task(create()) for _ in range(creators)]
                began = time.perf_counter() + 0.5
                for number in range(round(seconds * _RATE * len(_PATHS))):
                    due = began + number / (_RATE * len(_PATHS))
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    group.create_task(wait(_PATHS[number % len(_PATHS)], due))
                for task in creating:
                    task.cancel()
        return waited

    def _worked(self) -> int:
        """Return the nanoseconds that the event loop has had of a processor."""
        return int(self._statistics.read_text(encoding="ascii").split()[0])

    async def _ask(self, session: aiohttp.ClientSession, path: str, body: bytes) -> None:
        url = f"{self._url}{path}?timeout=10s"
        async with session.post(url, data=body, headers=_JSON, ssl=self._trust) as response:
            await response.read()
            self.failed += response.status != _OK


@contextmanager
def _staged(folder: Path, nodes: int, pods: int) -> Iterator[Neighbours]:
    """Yield the clients of a server that runs, with all policies in force."""
    cluster = GeneratedCluster(nodes=nodes, pods=pods)
    costly, *others = [each for each in cluster.workloads if each.kind == "ReplicaSet"]
    other = next(each for each in others if each.namespace != costly.namespace)
    certificates = Certificates(folder)
    api_server = ApiServer(folder, [f"--nodes={nodes}", f"--pods={pods}"], _EVENTS)
    options = (
        f"--kubeconfig={api_server.kubeconfig}",
        f"--policies={_POLICY}",
        "--policy-resources",
        *certificates.flags,
    )
    server = Server("stowplan", folder, options, certificates.ca)
    with ExitStack() as stack:
        for part in (api_server, server):
            stack.callback(part.kill)
            part.start()
        for policy in costly_policies(costly.namespace):
            _create(api_server.kubeconfig, policy)
        until = time.monotonic() + _PATIENCE_SECONDS
        while (
            server.scrape().value("stowplan_policy_resources", acceptance="Accepted") != _POLICIES
        ):
            if time.monotonic() > until:
                raise RuntimeError("the policies are not in force")
            time.sleep(0.5)
        api_server.begin_events()
        trust = ssl.create_default_context(cafile=certificates.ca)
        yield Neighbours(server, trust, costly, other)


def _create(kubeconfig: Path, policy: dict[str, Any]) -> None:
    cluster = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    plural, namespace = PolicyKind.NAMESPACED.plural, policy["metadata"]["namespace"]
    path = f"/apis/{POLICY_GROUP}/{POLICY_VERSION}/namespaces/{namespace}/{plural}"
    url, body = f"{cluster['server']}{path}", json.dumps(policy).encode()
    request = urllib.request.Request(url, data=body, headers=_JSON)  # noqa: S310 (ours)
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    with urllib.request.urlopen(request, context=trust, timeout=_PATIENCE_SECONDS):  # noqa: S310 (ours)
        pass


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5_000, help="of the generated cluster")
    parser.add_argument("--pods", type=int, default=20_000, help="on them")
    parser.add_argument("--rounds", type=int, default=4, help="quiet and busy")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each half of a round")
    parser.add_argument("--creators", type=int, default=4, help="costly pods at a time")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        neighbours = stack.enter_context(_staged(folder, asked.nodes, asked.pods))
        asyncio.run(neighbours.waits(2.0, 1))  # the first decisions fill columns
        print(f"{'ms':16}{''.join(f'{path:>43}' for path in _PATHS)}")
        for number in range(1, asked.rounds + 1):
            halves = []
            for name, creators in (("quiet", 0), ("busy", asked.creators)):
                created, failed = neighbours.created, neighbours.failed
                halves.append(asyncio.run(neighbours.waits(asked.seconds, creators)))
                figures = "".join(map(_figures, halves[-1].values()))
                rate = (neighbours.created - created) / asked.seconds
                figures += f"   {rate:3.0f} costly pods/s, {neighbours.failed - failed} failed"
                print(f"round {number} {name:8}{figures}", flush=True)
            for path in _PATHS:
                print(f"    {path} takes longer by {_longer(*(half[path] for half in halves))}")


def _longer(quiet: list[Wait], busy: list[Wait]) -> str:
    pairs = [(_percentile(quiet, p), _percentile(busy, p)) for p in (50, 99)]
    (wall_50, worked_50), (wall_99, worked_99) = (
        (after.wall - before.wall, after.worked - before.worked) for before, after in pairs
    )
    return f"p50 {wall_50:.1f} ({worked_50:.1f}), p99 {wall_99:.1f} ({worked_99:.1f})"


def _percentile(waits: list[Wait], percent: int) -> Wait:
    walls, worked = (statistics.quantiles(each, n=100) for each in zip(*waits, strict=True))
    return Wait(walls[percent - 1], worked[percent - 1])


def _figures(waits: list[Wait]) -> str:
    (wall_50, worked_50), (wall_99, worked_99) = (_percentile(waits, p) for p in (50, 99))
    return f"   p50 {wall_50:6.1f} ({worked_50:5.1f}) p99 {wall_99:6.1f} ({worked_99:5.1f})"


if __name__ == "__main__":
    main()
