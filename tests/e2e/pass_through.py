"""A webhook that allows everything, as little as one in this language can do.

Run as `python -m tests.e2e.pass_through PORT CERTIFICATE KEY`. What a webhook that decides takes
longer than this one is its own.
"""

from __future__ import annotations

import ssl
import sys

import msgspec
import uvloop
from aiohttp import web

from tests.e2e.serving import LOCAL


class _Request(msgspec.Struct):
    uid: str


class _Review(msgspec.Struct):
    request: _Request


_decode = msgspec.json.Decoder(_Review).decode


async def _allow(request: web.Request) -> web.Response:
    response = {"uid": _decode(await request.read()).request.uid, "allowed": True}
    said = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return web.Response(body=msgspec.json.encode(said), content_type="application/json")


def main() -> None:
    """Serve until killed."""
    port, certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_post("/validate", _allow)
    web.run_app(
        app,
        host=LOCAL,
        port=int(port),
        ssl_context=context,
        access_log=None,
        print=lambda *_: None,
        loop=uvloop.new_event_loop(),
    )


if __name__ == "__main__":
    main()
