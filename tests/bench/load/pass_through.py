"""The floor, a process of its own: `python -m tests.bench.load.pass_through`.

The server of stowplan without what stowplan is for: the same application, TLS context, event loop
and settings of the garbage collector, and no cluster. It answers "allowed" at once, in two places:

- `/floor` reads the body and sends back a fixed answer: HTTP and TLS alone,
- `/mutate` is the review handler of stowplan with `ignored` as its answer: also the reading of the
  envelope, limits, turns, metrics, and the encoding of an answer without a patch.

Both are served over TLS and over plain HTTP: the difference is what TLS costs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from aiohttp import web

from engine.view import ClusterState
from tests.bench.load import standard_input
from webhook.admission.handler import ConcurrencyLimiter, ReviewHandler, ReviewLimits, ignored
from webhook.admission.wire import allowed, encode
from webhook.cluster.cluster import Cluster
from webhook.metrics import Metrics
from webhook.placement.live_policies import LivePolicies
from webhook.serving.app import build_app
from webhook.serving.composition import wall_clock
from webhook.serving.health import Health
from webhook.serving.tls import CertificateFiles, LiveCertificate

_GC_THRESHOLDS = (50_000, 20, 50)  # those of the server
_ANSWER = encode(allowed("00000000-0000-4000-8000-000000000000"))
_MOST_IN_FLIGHT = 128  # as by default
_LIMITS = ReviewLimits()


async def _floor(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=_ANSWER, content_type="application/json")


def _app(certificate: LiveCertificate) -> web.Application:
    state = ClusterState()
    health = Health(
        policies=LivePolicies((), track=state.track_sums, now=lambda: datetime.now(UTC)),
        cluster=Cluster(state=state, now=wall_clock, is_live=False),
        certificate=certificate,
        now=wall_clock,
        modes={},
        reviews=dict,
    )
    handler = ReviewHandler(
        "mutate",
        ignored,
        fails_open=True,
        limits=_LIMITS,
        limiter=ConcurrencyLimiter(_MOST_IN_FLIGHT, time.monotonic),
        metrics=Metrics(),
        clock=time.monotonic,
    )
    app = build_app(handlers=[handler], health=health)
    app.router.add_post("/floor", _floor)
    return app


async def serve(certificate: LiveCertificate, folder: Path) -> None:
    """Serve until nobody wants it any more; writes its ports, TLS first, to a file."""
    runner = web.AppRunner(_app(certificate), access_log=None)
    await runner.setup()
    for context in (certificate.current.context, None):
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    ports = [str(address[1]) for address in runner.addresses]
    written = folder / "ports.new"
    written.write_text(" ".join(ports), encoding="ascii")
    written.replace(folder / "ports")  # whoever waits for the file finds it whole
    await standard_input.until_closed()
    await runner.cleanup()


def main() -> None:
    """Serve the floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tls-cert", type=Path, required=True)
    parser.add_argument("--tls-key", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the file `ports`")
    asked = parser.parse_args()
    certificate = LiveCertificate(
        CertificateFiles(asked.tls_cert, asked.tls_key),
        client_ca=None,
        now=lambda: datetime.now(UTC),
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(certificate, asked.folder))


if __name__ == "__main__":
    main()
