"""The API server of the bench, a process of its own: `python -m tests.bench.load.api_server`.

The stateful server of the tests, over TLS, holding a generated cluster in which things happen once
it is told so. It is ready when there is a kubeconfig in its folder, and ends with its standard
input.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from engine.model import api
from tests.bench.generate import GeneratedCluster
from tests.bench.load.churn import Churn, Running
from tests.bench.load.giants import giants
from tests.bench.load.standard_input import until_closed
from tests.fake_api_server import FakeApiServer, fake_api_server

CONTROL_PATH = "/bench/churn"
"""POST `{"happening": true}` here lets things happen; the answer says how many there were."""

FORGET_PATH = "/bench/forget"
"""POST `{}` here cuts the watch of pods, whose history is gone: it has to begin with a list."""

GIANTS_PATH = "/bench/giants"
"""POST `{"namespace": "shop", "number": 3}` here creates one of the giant pods, and deletes it.

A real API server does so beside its other work; this one would let that wait if it had to decode
the pod.
"""

_pod_of = msgspec.json.Decoder(api.Pod).decode

_HISTORY = 5_000  # changes per resource: half a minute
_BOOKMARK_SECONDS = 30


async def serve(cluster: GeneratedCluster, events: float, folder: Path) -> None:
    """Serve a cluster until nobody wants it any more."""
    async with fake_api_server(tls=True, without=(), history_limit=_HISTORY) as server:
        churn = Churn(server, cluster, fill(server, cluster), events)

        def control(asked: dict[str, bool]) -> dict[str, int]:
            churn.happening = asked["happening"]
            return {"events": churn.events}

        def forget(_: dict[str, bool]) -> dict[str, int]:
            server.fail_next(1, 410, method="WATCH", path_prefix="/api/v1/pods")
            server.cut_watches("pods")
            return {"events": churn.events}

        def attack(asked: dict[str, Any]) -> dict[str, int]:
            pods = _giants(asked["namespace"])
            name, text = pods[asked["number"] % len(pods)]
            server.put_pod(text)
            server.remove_pod(asked["namespace"], name)
            return {}

        server.play("POST", CONTROL_PATH, control)
        server.play("POST", GIANTS_PATH, attack)
        server.play("POST", FORGET_PATH, forget)
        gc.collect()
        gc.freeze()
        async with asyncio.TaskGroup() as group:  # a cluster in which nothing happens would do
            tasks = [group.create_task(churn.run()), group.create_task(_speak_up(server))]
            server.kubeconfig(folder)
            await until_closed()
            for task in tasks:
                task.cancel()


@cache
def _giants(namespace: str) -> list[tuple[str, bytes]]:
    """Return the giant pods of a namespace: name, and JSON."""
    return [(pod["metadata"]["name"], msgspec.json.encode(pod)) for pod in giants(namespace)]


def fill(server: FakeApiServer, cluster: GeneratedCluster) -> list[Running]:
    """Store all objects of the cluster; return the pods that may end: not those of DaemonSets."""
    for text in cluster.others():
        server.create(msgspec.json.decode(text))
    running = []
    for text in cluster.pods():
        server.put_pod(text)  # decoded as a whole, a million would take minutes
        pod = _pod_of(text)
        if pod.status.phase == "Running" and pod.metadata.namespace != "kube-system":
            running.append(Running(pod.metadata.namespace, pod.metadata.name, pod.spec.node_name))
    return running


async def _speak_up(server: FakeApiServer) -> None:
    """Tell watches now and then that they are alive, as a real server does."""
    while True:
        await asyncio.sleep(_BOOKMARK_SECONDS)
        server.send_bookmarks()
        server.requests.clear()  # the log would grow for ever


def main() -> None:
    """Generate a cluster and serve it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--events", type=float, required=True, help="of pods and nodes per second")
    parser.add_argument("--folder", type=Path, required=True, help="for the kubeconfig")
    asked = parser.parse_args()
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods, now=datetime.now(UTC))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(cluster, asked.events, asked.folder))


if __name__ == "__main__":
    main()
