"""metrics.k8s.io, served through the API server's aggregation layer as metrics-server does.

An APIService needs a Service, and a Service cannot point at a loopback address; one of type
`ExternalName` can point at `localhost`, which is where this server listens.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from tests.e2e.certificates import Authority
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.serving import serving

_GROUP = "metrics.k8s.io"
_VERSION = "v1beta1"
_ROOT = f"/apis/{_GROUP}/{_VERSION}"
_SERVICE = {"namespace": "kube-system", "name": "metrics-server"}


@dataclass(slots=True)
class MetricsServer:
    """The usage that a test wants reported.

    Attributes:
        nodes: quantities by node: `{"node-a": {"cpu": "250m", "memory": "1Gi"}}`.
        at: when it was measured; None is the moment it is asked.
    """

    nodes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    at: datetime | None = None

    async def discovery(self, _: web.Request) -> web.Response:
        """Say what is served."""
        resource = {
            "name": "nodes",
            "singularName": "",
            "namespaced": False,
            "kind": "NodeMetrics",
            "verbs": ["get", "list"],
        }
        return web.json_response(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{_GROUP}/{_VERSION}",
                "resources": [resource],
            }
        )

    async def list_nodes(self, _: web.Request) -> web.Response:
        """Return the usage of all nodes."""
        items = [self._metrics(name) for name in self.nodes]
        return web.json_response(
            {
                "kind": "NodeMetricsList",
                "apiVersion": f"{_GROUP}/{_VERSION}",
                "metadata": {},
                "items": items,
            }
        )

    async def get_node(self, request: web.Request) -> web.Response:
        """Return the usage of one node."""
        name = request.match_info["name"]
        if name not in self.nodes:
            raise web.HTTPNotFound
        return web.json_response(self._metrics(name))

    def _metrics(self, name: str) -> Json:
        at = (self.at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "NodeMetrics",
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "metadata": {"name": name, "creationTimestamp": at},
            "timestamp": at,
            "window": "20s",
            "usage": dict(self.nodes[name]),
        }


@asynccontextmanager
async def metrics_server(cluster: Cluster, authority: Authority) -> AsyncIterator[MetricsServer]:
    """Yield a metrics server that answers through the API server; it is withdrawn afterwards.

    While it is registered but gone, the cluster cannot delete namespaces: hence the withdrawal.
    """
    server = MetricsServer()
    app = web.Application()
    app.router.add_get(_ROOT, server.discovery)
    app.router.add_get(f"{_ROOT}/nodes", server.list_nodes)
    app.router.add_get(f"{_ROOT}/nodes/{{name}}", server.get_node)
    host = "{name}.{namespace}.svc".format(**_SERVICE)
    async with serving(app, authority, [host]) as port:
        service, registration = _objects(port, authority)
        await cluster.create(service)
        await cluster.create(registration)
        try:
            await eventually(lambda: cluster.call("GET", f"{_ROOT}/nodes"), "metrics are served")
            await eventually(lambda: cluster.offers(f"nodes.{_GROUP}"), "metrics are listed")
            yield server
        finally:
            await cluster.delete("apiservices", registration["metadata"]["name"])
            await cluster.delete("services", _SERVICE["name"], _SERVICE["namespace"])


def _objects(port: int, authority: Authority) -> tuple[Json, Json]:
    """Return the Service and the APIService."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": dict(_SERVICE),
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    }
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{_VERSION}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "version": _VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(authority.pem).decode(),
            "service": {**_SERVICE, "port": port},
        },
    }
    return service, registration
