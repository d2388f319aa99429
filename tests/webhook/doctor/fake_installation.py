"""A whole installation on the fake API server, without faults unless a test adds them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.fake_api_server import ApiFault, FakeApiServer, fake_api_server
from tests.fake_api_server.answers import Play
from webhook.certificates import Authority, KeyPair, bundle_of
from webhook.cluster.client.connection import connected
from webhook.doctor import Finding, Installation, run_checks

NAMESPACE, NAME = "stowplan-system", "stowplan"
NOW = datetime(2026, 3, 2, tzinfo=UTC)
HOST = f"{NAME}.{NAMESPACE}.svc"
POD_NAMES = ("stowplan-a", "stowplan-b")
REVIEWS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PODS_PATH = "/api/v1/namespaces/default/pods"
SERVICE_PATH = f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}"

Json = dict[str, Any]


def source(name: str, *, required: bool = True, present: bool = True) -> Json:
    return {
        "name": name,
        "required": required,
        "present": present,
        "synced": present,
        "objects": 3,
        "lastError": "" if present else "no such API",
    }


def status(*, until: datetime) -> Json:
    """Return the status of a replica without faults."""
    return {
        "ready": True,
        "draining": False,
        "modes": {"placement": "Enforce", "quota": "Enforce"},
        "reviews": {},
        "policies": {"loaded": 2, "digest": "ab" * 16, "lastReloadError": ""},
        "view": {"version": 7, "nodes": 3, "ageSeconds": 0.1, "stale": []},
        "sources": [
            *(source(name) for name in ("nodes", "pods", "namespaces")),
            source("elasticquotas.scheduling.x-k8s.io", required=False),
            source("metrics.k8s.io", required=False),
        ],
        "certificate": {"expiresAt": until.isoformat(), "isTrusted": True},
    }


@dataclass(slots=True)
class FakeInstallation:
    """An installation that faults can be added to.

    Attributes:
        server: that it runs on.
        authority: that callers trust.
        pair: the certificate in use, with its key.
        statuses: of each replica, by name.
        missing_rights: of the account, as verb and resource.
        called: the paths that the API server calls for a new pod.
        advice: annotations of that pod.
    """

    server: FakeApiServer
    authority: Authority
    pair: KeyPair
    statuses: dict[str, Json] = field(default_factory=dict)
    missing_rights: set[tuple[str, str]] = field(default_factory=set)
    called: list[str] = field(default_factory=lambda: ["mutate", "validate"])
    advice: dict[str, str] = field(
        default_factory=lambda: {"stowplan.dev/reason": "3 of 3 nodes fit"}
    )

    def admit(self, pod: Json) -> Json:
        """Handle a new pod as the API server does: call the replicas in turn."""
        for number, path in enumerate(self.called):
            reviews = self.statuses[POD_NAMES[number % 2]]["reviews"]
            reviews[path] = reviews.get(path, 0) + 1
        return {**pod, "metadata": {"name": "tried", "annotations": self.advice}}

    def review(self, review: Json) -> Json:
        """Answer whether an account has a right."""
        attributes = review["spec"]["resourceAttributes"]
        assert review["spec"]["user"] == f"system:serviceaccount:{NAMESPACE}:{NAME}"
        lacks = (attributes["verb"], attributes["resource"]) in self.missing_rights
        return {"status": {"allowed": not lacks}}

    def replica(self, name: str) -> Play:
        """Return the answers of a replica."""
        return lambda _: self.statuses[name]

    def configure(self, kind: str, **changes: object) -> None:
        """Replace a webhook configuration of ours; changes are of its webhook."""
        self.server.replace(configuration(kind, self.authority, **changes))

    async def run_checks(self, folder: Path) -> dict[str, list[Finding]]:
        """Return the findings of all checks."""
        async with connected(self.server.kubeconfig(folder), None) as connection:
            return await run_checks(
                Installation(
                    connection=connection,
                    namespace=NAMESPACE,
                    release=NAME,
                    pod_namespace="default",
                    now=lambda: NOW,
                )
            )


def configuration(kind: str, authority: Authority, **changes: object) -> Json:
    path, name = ("mutate", "placement") if kind == "Mutating" else ("validate", "quota")
    rules = [{"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}]
    if kind == "Validating":
        changes_of_pods = ["pods", "pods/resize", "pods/status"]
        rules.append({"apiGroups": [""], "operations": ["UPDATE"], "resources": changes_of_pods})
    webhook = {
        "name": f"{name}.stowplan.dev",
        "clientConfig": {
            "service": {"name": NAME, "namespace": NAMESPACE, "path": f"/{path}", "port": 443},
            "caBundle": encoded(KeyPair(cert_pem=b"", key_pem=b"", ca_pem=ca_of(authority)).ca_pem),
        },
        "rules": rules,
        "failurePolicy": "Ignore",
        "timeoutSeconds": 1 if kind == "Mutating" else 2,
        **changes,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def ca_of(authority: Authority) -> bytes:
    return bundle_of([authority.certificate])


def deployment(**settings: str) -> Json:
    environment = {"CERTIFICATE_SECRET": "stowplan-tls", "LEASE": NAME, **settings}
    container = {
        "name": "webhook",
        "env": [{"name": f"STOWPLAN_{key}", "value": text} for key, text in environment.items()],
        "ports": [{"name": "webhook", "containerPort": 9443}],
    }
    labels = {"app.kubernetes.io/name": NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": NAME, "containers": [container]},
            },
        },
    }


def node(name: str, *, provider: str = "", **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": provider},
    }


@asynccontextmanager
async def fake_installation() -> AsyncIterator[FakeInstallation]:
    """Yield an installation without faults."""
    authority = Authority.new(now=NOW, valid_for=timedelta(days=365))
    pair = authority.issue([HOST], now=NOW, valid_for=timedelta(days=90))
    async with fake_api_server() as server:
        found = FakeInstallation(server, authority, pair)
        for kind in ("Mutating", "Validating"):
            server.create(configuration(kind, authority))
        secret = {"tls.crt": encoded(pair.cert_pem), "tls.key": encoded(pair.key_pem)}
        server.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": NAMESPACE, "name": "stowplan-tls"},
                "data": secret,
            }
        )
        made = deployment()
        server.create(made)
        server.create(node("node-a"))
        template = made["spec"]["template"]
        for name in POD_NAMES:
            metadata = {**template["metadata"], "namespace": NAMESPACE, "name": name}
            server.create(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            )
            found.statuses[name] = status(until=NOW + timedelta(days=90))
            server.play("GET", status_path(name), found.replica(name))
        server.play("GET", SERVICE_PATH, lambda _: {"spec": {"ipFamilies": ["IPv4"]}})
        server.play("GET", "/version", lambda _: {"gitVersion": "v1.36.3"})
        server.play("POST", REVIEWS_PATH, found.review)
        server.play("POST", PODS_PATH, found.admit)
        yield found


def status_path(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/pods/https:{name}:9443/proxy/statusz"


def refusing(code: int, message: str) -> Play:
    def play(_: object) -> object:
        raise ApiFault(code, message)

    return play
