"""A fake cluster with our webhook configurations, one that is not ours, and a clock."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.certificates.bundles import CaBundles
from webhook.certificates.secret import SecretStore
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.certificate_rotation import Rotation

NAMES = ("stowplan.system.svc", "stowplan.system", "stowplan", "127.0.0.1")
OURS, FOREIGN = "stowplan", "kyverno"
SECRET = ("system", "stowplan-certificates")
_KINDS = {
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
}


def configuration(kind: str, name: str, webhooks: int = 1) -> dict[str, Any]:
    """Return a webhook configuration with fields of every sort."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"team": name}},
        "webhooks": [
            {
                "name": f"hook-{index}.{name}.dev",
                "clientConfig": {"service": {"name": name, "namespace": "system", "path": "/"}},
                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for index in range(webhooks)
        ],
    }


@dataclass(slots=True)
class Cluster:
    """A cluster in which stowplan is installed."""

    server: FakeApiServer
    connection: Connection
    now: datetime = field(default_factory=lambda: datetime(2026, 1, 5, 10, 0, tzinfo=UTC))

    def store(self) -> SecretStore:
        namespace, name = SECRET
        return SecretStore(self.connection, namespace=namespace, name=name)

    def bundles(self) -> CaBundles:
        return CaBundles(self.connection, mutating=[OURS], validating=[OURS])

    def rotation(self, *, leads: bool = True) -> Rotation:
        return Rotation(
            self.store(),
            self.bundles(),
            names=NAMES,
            is_leader=lambda: leads,
            now=lambda: self.now,
        )

    def configure(self, *names: str) -> None:
        """Install configurations of both kinds; ours have two mutating webhooks."""
        for name in names:
            self.server.create(configuration("MutatingWebhookConfiguration", name, webhooks=2))
            self.server.create(configuration("ValidatingWebhookConfiguration", name))

    def configurations(self, name: str) -> list[dict[str, Any]]:
        return [self.server.objects(plural)["", name] for plural in _KINDS]

    def bundles_of(self, name: str) -> list[bytes]:
        """Return the caBundle of each webhook."""
        return [
            base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
            for one in self.configurations(name)
            for webhook in one["webhooks"]
        ]

    def secret(self) -> dict[str, bytes]:
        data = self.server.objects("secrets")[SECRET].get("data") or {}
        return {name: base64.b64decode(value) for name, value in data.items()}

    def put_secret(self, data: Mapping[str, bytes], kind: str = "Opaque") -> None:
        """Create the Secret, or replace it whatever it is."""
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        namespace, name = SECRET
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": namespace, "name": name},
            "type": kind,
            "data": encoded,
        }
        if SECRET in self.server.objects("secrets"):
            self.server.replace(secret)
        else:
            self.server.create(secret)

    def writes(self) -> list[tuple[str, str]]:
        """Return method and path of every request that may have changed something."""
        return [(one.method, one.path) for one in self.server.requests if one.method != "GET"]

    def pass_time(self, **by: float) -> None:
        self.now += timedelta(**by)


@asynccontextmanager
async def cluster(*configured: str) -> AsyncIterator[Cluster]:
    """Run a cluster with these configurations in it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(fake_api_server())
        connection = await stack.enter_async_context(connected(server.kubeconfig(folder), None))
        one = Cluster(server, connection)
        one.configure(*configured)
        yield one
