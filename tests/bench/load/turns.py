"""A server that knows how long its event loop works at a time: `python -m tests.bench.load.turns`.

It serves like `stowplan serve`, prints `ready` and its port, and answers each line of its standard
input with the longest turn since the one before, in milliseconds of processor time: as long does
everybody else wait. Processor time, since it is the same whoever else uses the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

from tests.bench.load import standard_input
from webhook.serving.composition import run_server
from webhook.serving.process import SWITCH_SECONDS
from webhook.settings import Settings

_GC_THRESHOLDS: Final = (50_000, 20, 50)  # those of the server


class Turns:
    """The turns of the running loop, which it keeps busy."""

    def __init__(self) -> None:
        self._longest = 0.0

    async def watch(self) -> None:
        """Note the turns until cancelled."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self._longest = max(self._longest, now - before)
            before = now

    def take_longest(self) -> float:
        """Return the longest turn since the last call, milliseconds."""
        longest, self._longest = self._longest * 1e3, 0.0
        return longest


async def _serve(settings: Settings) -> None:
    turns = Turns()
    async with run_server(settings) as server:
        await server.cluster.synced()
        await server.warm_up()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        orders = await standard_input.opened()
        print("ready", server.url.rsplit(":", 1)[1], flush=True)
        watching = asyncio.create_task(turns.watch())
        while await orders.readline():
            print(turns.take_longest(), flush=True)
        watching.cancel()


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--kubeconfig", "--policies", "--tls-cert", "--tls-key"):
        parser.add_argument(flag, type=Path, required=True)
    asked = parser.parse_args()
    settings = Settings(
        kubeconfig=asked.kubeconfig,
        policies=(asked.policies,),
        tls_cert=asked.tls_cert,
        tls_key=asked.tls_key,
        host="127.0.0.1",
        port=0,
        metrics_port=0,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


if __name__ == "__main__":
    main()
