"""A client that keeps others out if it can, a process of its own: `tests.bench.load.hostile`.

It prints `ready`, and attacks after each line of its standard input that says `on`, until one says
`off`: by bodies of which only half is sent, by connections that send nothing, and by reviews of
giant pods, one after the other; and it has giant pods created on the API server, so that the watch
brings them. What the server closes is opened again. Handshakes come at a rate, for they are work
for any server.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import aiohttp
import uvloop
import yaml

from tests.bench.load import standard_input
from tests.bench.load.api_server import GIANTS_PATH
from tests.bench.load.giants import giants, review_of

_HALF_SENT: Final = 500
_IDLE: Final = 1_000
_HANDSHAKES_PER_SECOND: Final = 25
_GIANT_EVERY_SECONDS: Final = 1.0  # to each path, once the one before is answered
_CREATE_EVERY_SECONDS: Final = 2.0
_PATHS: Final = ("/mutate", "/validate")
_HALF_A_REVIEW: Final = (
    b"POST /validate?timeout=30s HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
)


class Hostile:
    """The attacks.

    Args:
        port: of the webhook.
        trust: of its certificate.
        kubeconfig: of the API server.
        namespace: in which giant pods are created; a quota limits it.
    """

    def __init__(self, port: int, trust: ssl.SSLContext, kubeconfig: Path, namespace: str) -> None:
        self._port = port
        self._trust = trust
        self._namespace = namespace
        # Encoded once: what an attack costs its client would delay the server on the same machine.
        self._reviews = [review_of(pod) for pod in giants(namespace)]
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self._api_trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._api_giants = f"{cluster['server']}{GIANTS_PATH}"

    async def attack(self) -> None:
        """Attack until cancelled."""
        pace = asyncio.Semaphore(0)
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            group.create_task(self._beat(pace))
            for number in range(_HALF_SENT + _IDLE):
                text = _HALF_A_REVIEW if number % 3 == 0 else b""
                group.create_task(self._occupy(pace, text))
            for path in _PATHS:
                group.create_task(self._send_giants(session, path))
            group.create_task(self._create_giants(session))

    async def _beat(self, pace: asyncio.Semaphore) -> None:
        while True:
            await asyncio.sleep(1 / _HANDSHAKES_PER_SECOND)
            pace.release()

    async def _occupy(self, pace: asyncio.Semaphore, text: bytes) -> None:
        """Keep a connection on which nothing goes on."""
        while True:
            await pace.acquire()
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, ssl=self._trust, server_hostname="localhost"
                )
                try:
                    writer.write(text)
                    await reader.read()
                finally:
                    writer.close()

    async def _send_giants(self, session: aiohttp.ClientSession, path: str) -> None:
        url, headers = f"https://localhost:{self._port}{path}", {"Content-Type": "application/json"}
        while True:
            for body in self._reviews:
                with suppress(aiohttp.ClientError):
                    async with session.post(
                        url, data=body, headers=headers, ssl=self._trust
                    ) as response:
                        await response.read()
                await asyncio.sleep(_GIANT_EVERY_SECONDS)

    async def _create_giants(self, session: aiohttp.ClientSession) -> None:
        for number in count():
            giant = {"namespace": self._namespace, "number": number}
            async with session.post(self._api_giants, json=giant, ssl=self._api_trust):
                pass
            await asyncio.sleep(_CREATE_EVERY_SECONDS)


async def _obey(hostile: Hostile) -> None:
    orders = await standard_input.opened()
    print("ready", flush=True)
    attack: asyncio.Task[None] | None = None
    while order := await orders.readline():
        if attack is not None:
            attack.cancel()
            with suppress(asyncio.CancelledError):
                await attack
        attack = asyncio.create_task(hostile.attack()) if order.strip() == b"on" else None


def main() -> None:
    """Attack when told to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    asked = parser.parse_args()
    trust = ssl.create_default_context(cafile=asked.ca)
    hostile = Hostile(asked.port, trust, asked.kubeconfig, asked.namespace)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_obey(hostile))


if __name__ == "__main__":
    main()
