"""A configuration of webhooks in memory, every version that it had, and API servers that follow it.

What the API server matches is written here once more, from its own rules, so that ours are tested.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import jsonpatch
import msgspec

from engine.model.elastic_quota import QuotaKey
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query, Server

Object = dict[str, Any]

NAMESPACE = "stowplan-system"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/stowplan"
_SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Fate(Enum):
    """What becomes of a request."""

    DONE = "done"
    LOST = "lost"
    UNANSWERED = "done, but not answered"


@dataclass(frozen=True)
class Weather:
    """How long a request is on its way, and its answer, seconds; and what becomes of it."""

    there: float = 0.0
    back: float = 0.0
    fate: Fate = Fate.DONE


def chart() -> Object:
    """Return the webhooks as the chart has them."""
    excluded = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", NAMESPACE],
    }
    return {
        "metadata": {"name": "stowplan", "annotations": {"admissions.enforcer/disabled": "true"}},
        "webhooks": [
            {
                "name": "quota.stowplan.dev",
                "clientConfig": {},
                "namespaceSelector": {"matchExpressions": [excluded]},
            },
            {
                "name": "rollout-probe.stowplan.dev",
                "clientConfig": {},
                "objectSelector": {"matchLabels": {"stowplan.dev/rollout-stamp": "none"}},
            },
        ],
    }


@dataclass
class Follower:
    """An API server.

    Attributes:
        server: where it is.
        lag_seconds: of its watch behind the store.
        version: that it goes by.
    """

    server: Server
    lag_seconds: float = 0.0
    version: int = 0


@dataclass
class ApiServersModel:
    """What is stored, and the API servers in front of it.

    Attributes:
        now: the time, seconds.
        versions: of the configuration, each with a number of its own; the last is stored.
        stored_at: when each was.
        quotas: that are stored.
        followers: the API servers.
        weather: of the next requests; good once there is none.
        alive: how many API servers renew a Lease of their identity.
    """

    now: Callable[[], float]
    versions: list[Object] = field(default_factory=lambda: [_numbered(chart(), 0, 1)])
    stored_at: list[float] = field(default_factory=lambda: [0.0])
    quotas: set[QuotaKey] = field(default_factory=set)
    followers: list[Follower] = field(
        default_factory=lambda: [
            Follower(Server(f"192.0.2.{number}", 6443, "kubernetes.default.svc"))
            for number in (1, 2)
        ]
    )
    weather: deque[Weather] = field(default_factory=deque)
    alive: int = 2

    def write(self, changed: Object) -> None:
        """Store another version."""
        metadata = self.versions[-1]["metadata"]
        is_other = changed["webhooks"] != self.versions[-1]["webhooks"]
        self.versions.append(
            _numbered(changed, len(self.versions), metadata["generation"] + is_other)
        )
        self.stored_at.append(self.now())

    def version_of(self, follower: Follower) -> int:
        """Return the version that an API server goes by: never an earlier one than before."""
        seen_until = self.now() - follower.lag_seconds
        while (
            follower.version + 1 < len(self.versions)
            and self.stored_at[follower.version + 1] <= seen_until
        ):
            follower.version += 1
        return follower.version

    def upgrade(self) -> None:
        """Write the webhooks of the chart over ours, as `helm upgrade` does."""
        self.write({**copy.deepcopy(self.versions[-1]), "webhooks": chart()["webhooks"]})

    def rotate(self) -> None:
        """Change what our replicas change besides."""
        changed = copy.deepcopy(self.versions[-1])
        changed["webhooks"][0]["clientConfig"]["caBundle"] = f"{len(self.versions)}"
        self.write(changed)

    def selects(self, version: int, namespace: str) -> bool:
        """Return whether an API server that goes by a version asks about a namespace."""
        selector = self.versions[version]["webhooks"][0]["namespaceSelector"]
        return all(
            (namespace in each["values"]) is (each["operator"] == "In")
            for each in selector["matchExpressions"]
        )

    def get(self, path: str) -> bytes:
        """Return what is stored."""
        if path == CONFIGURATION:
            return msgspec.json.encode(self.versions[-1])
        if path == _SLICE:
            endpoints = [{"addresses": [each.server.address]} for each in self.followers]
            return msgspec.json.encode({"endpoints": endpoints, "ports": [{"port": 6443}]})
        if path == _LEASES:
            lease = {"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}}
            return msgspec.json.encode({"items": [lease] * self.alive})
        group = path.split("/")[2]
        items = [
            {
                "apiVersion": f"{group}/v1alpha1",
                "metadata": {"name": name, "namespace": namespace},
            }
            for namespace, own_group, name in sorted(self.quotas)
            if own_group == group
        ]
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})

    def patch(self, operations: Iterable[Object]) -> bytes:
        """Change the configuration as a JSON patch says."""
        stored = self.versions[-1]
        changed = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(stored))
        version = stored["metadata"]["resourceVersion"]
        if changed["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict", f"the stored version is {version}")
        self.write(changed)
        return msgspec.json.encode(self.versions[-1])

    def probe(self, server: Server, body: bytes) -> bytes:
        """Create a Lease as a dry run, by one API server."""
        (follower,) = (each for each in self.followers if each.server == server)
        labels = msgspec.json.decode(body)["metadata"]["labels"]
        webhook = self.versions[self.version_of(follower)]["webhooks"][1]
        if labels.items() >= webhook["objectSelector"]["matchLabels"].items():
            name = webhook["name"]
            raise ApiError(403, "Forbidden", f'admission webhook "{name}" denied the request: x')
        return body


class ModelConnection(Connection):
    """The connection of one replica to the model."""

    def __init__(self, model: ApiServersModel) -> None:  # no session is needed
        self._model = model

    async def get(self, path: str, query: Query = ()) -> bytes:  # noqa: ARG002 (of its base)
        """Read an object or a list."""
        return await self._sent(lambda: self._model.get(path))

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",  # noqa: ARG002
        query: Query = (),
    ) -> bytes:
        """Change the configuration, or probe the first API server."""
        if method == "PATCH":
            return await self._sent(lambda: self._model.patch(msgspec.json.decode(body)))
        return await self.create_at(self._model.followers[0].server, path, body, query=query)

    async def create_at(
        self, server: Server, path: str, body: bytes, *, query: Query = ()
    ) -> bytes:
        """Probe an API server."""
        assert path == f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        assert query == (("dryRun", "All"),)
        return await self._sent(lambda: self._model.probe(server, body))

    async def _sent(self, act: Any) -> bytes:  # noqa: ANN401
        weather = self._model.weather.popleft() if self._model.weather else Weather()
        await asyncio.sleep(weather.there)
        if weather.fate is Fate.LOST:
            raise ApiError(NO_CONTACT, "", "the connection broke")
        answer: bytes = act()
        await asyncio.sleep(weather.back)
        if weather.fate is Fate.UNANSWERED:
            raise ApiError(NO_CONTACT, "", "no answer in time")
        return answer


def _numbered(configuration: Object, number: int, generation: int) -> Object:
    metadata = {
        **configuration["metadata"],
        "resourceVersion": str(number),
        "generation": generation,
    }
    return {**configuration, "metadata": metadata}
