"""An admission webhook that remembers what it was asked, and allows it unless a test says no."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from tests.e2e.certificates import Authority
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.serving import LOCAL, serving
from tests.e2e.workloads import pod

Phase = Literal["Mutating", "Validating"]
PHASES: tuple[Phase, ...] = ("Mutating", "Validating")
_PROBE = "stowplan-e2e-probe"


@dataclass(slots=True)
class Reviewer:
    """What an API server asked, in the order it came.

    Attributes:
        url: to put into a webhook configuration, with any path behind it.
        ca_bundle: as a configuration wants it.
        reviews: path and decoded AdmissionReview of each call.
        refuses: why it allows nothing; empty while it allows everything.
        breaks: whether it answers with an error.
    """

    url: str
    ca_bundle: str
    reviews: list[tuple[str, Json]] = field(default_factory=list)
    refuses: str = ""
    breaks: bool = False

    def requests(self, path: str) -> Iterator[Json]:
        """Yield the requests in the reviews that came to a path."""
        return (review["request"] for called, review in self.reviews if called == path)

    async def answer(self, request: web.Request) -> web.Response:
        """Remember, and allow or refuse."""
        review = await request.json()
        self.reviews.append((request.path, review))
        if self.breaks:
            raise web.HTTPInternalServerError
        response: Json = {"uid": review["request"]["uid"], "allowed": not self.refuses}
        if self.refuses:
            response["status"] = {"message": self.refuses}
        return web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    @asynccontextmanager
    async def asked(
        self, cluster: Cluster, phase: Phase, namespace: str, rules: list[Json]
    ) -> AsyncIterator[str]:
        """Have the API server ask about pods and more in one namespace; yield the path it calls.

        The rules must cover the creation of pods: with one that is only tried, we find out whether
        the API server has taken up the configuration.
        """
        path = f"/{phase.lower()}"
        kind = f"{phase}WebhookConfiguration"
        webhook = {
            "name": "reviewer.e2e.stowplan.dev",
            "clientConfig": {"url": f"{self.url}{path}", "caBundle": self.ca_bundle},
            "rules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
        }
        name = f"{namespace}-{phase.lower()}"
        await cluster.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": name},
                "webhooks": [webhook],
            }
        )

        async def reached() -> bool:
            await cluster.create(pod(namespace, _PROBE), dry_run=True)
            return any(request.get("name") == _PROBE for request in self.requests(path))

        try:
            await eventually(reached, f"the API server asks {path}")
            self.reviews = [one for one in self.reviews if one[1]["request"].get("name") != _PROBE]
            yield path
        finally:
            await cluster.delete(f"{kind.lower()}s", name)


@asynccontextmanager
async def reviewing(authority: Authority) -> AsyncIterator[Reviewer]:
    """Yield a reviewer that listens on this machine."""
    reviewer = Reviewer("", base64.b64encode(authority.pem).decode())
    app = web.Application()
    app.router.add_post("/{path:.*}", reviewer.answer)
    async with serving(app, authority) as port:
        reviewer.url = f"https://{LOCAL}:{port}"
        yield reviewer


def rule(group: str, resources: list[str], *operations: str) -> Json:
    """Return a rule of a webhook configuration, for every version of a group."""
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": resources,
        "operations": list(operations),
    }
