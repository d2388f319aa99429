"""What is kept of bindings that are asked about."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from engine.model.time import Micros
from tests.fake_api_server import fake_api_server
from webhook.binding import ReboundEvents, SeenBindings
from webhook.binding.decider import AskedBinding
from webhook.cluster.client.connection import connected

NOW = Micros(0)


def events_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, asyncio.Event) for each in gc.get_objects())


async def test_nothing_is_kept_of_a_pod_whose_caller_has_less_time_than_it_may_take_to_appear(
    tmp_path: Path,
) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        seen = SeenBindings(ReboundEvents(connection, identity="replica-1"), lambda: NOW)
        before = events_in_memory()
        for number in range(100):
            asked = AskedBinding(namespace="shop", name=f"never-{number}", uid="", node="node-a")
            waiting = asyncio.create_task(seen.appears(asked))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert events_in_memory() < before + 10
