"""The page of metrics, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder

from webhook.background import one_at_a_time


def metrics_page(
    registry: CollectorRegistry,
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of the page.

    With a thousand quotas there are thousands of samples, and their text takes 70 ms: so it is
    written in a thread, and reviews go on between one metric and the next. The handler of
    prometheus_client does all at once.
    """

    async def page(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(",".join(request.headers.getall(hdrs.ACCEPT, [])))
        names = request.query.getall("name[]", [])
        collected = []
        for metric in (registry.restricted_registry(names) if names else registry).collect():
            collected.append(metric)
            await asyncio.sleep(0)
        write = partial(encode, _Collected(collected))
        response = web.Response(body=await asyncio.to_thread(one_at_a_time, write))
        response.headers[hdrs.CONTENT_TYPE] = content_type
        response.enable_compression()
        return response

    return page


class _Collected:
    """Metrics as of a moment, which can be written like a registry."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        return iter(self._metrics)
