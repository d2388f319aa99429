"""A scheduler extender that notes which nodes pass the scheduler's own filters, and takes none.

So pods are judged by the real scheduler, all by the same cluster, for none of them is ever bound.
Source: k8s.io/kube-scheduler/extender/v1/types.go.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.e2e.control_plane import ControlPlane
from tests.e2e.serving import LOCAL, serving

REFUSED = "node(s) passed every filter"


@dataclass
class Extender:
    """What the scheduler asked.

    Attributes:
        passing: names of the nodes that passed, the last time, by namespace and name of the pod.
    """

    passing: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response:
        """Note the nodes, and refuse them all."""
        asked = await request.json()
        metadata, names = asked["Pod"]["metadata"], asked["NodeNames"]
        self.passing[metadata["namespace"], metadata["name"]] = frozenset(names)
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, REFUSED)})


@asynccontextmanager
async def extended(control_plane: ControlPlane) -> AsyncIterator[Extender]:
    """Have the scheduler, started anew, ask an extender until the block is left."""
    extender = Extender()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/filter", extender.answer)
    async with serving(app, control_plane.authority) as port:
        asked = {
            "urlPrefix": f"https://{LOCAL}:{port}",
            "filterVerb": "filter",
            "enableHTTPS": True,
            "tlsConfig": {"caFile": str(control_plane.authority.certificate)},
            "nodeCacheCapable": True,
        }
        async with control_plane.scheduling_by({"extenders": [asked]}):
            yield extender
