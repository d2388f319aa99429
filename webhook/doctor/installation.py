"""An installation as it can be asked about: its objects, and its replicas one by one."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import TypeVar

import aiohttp
import msgspec

from webhook.cluster.client.connection import ApiError, Connection
from webhook.doctor.objects import (
    Configuration,
    Configurations,
    Deployment,
    Pod,
    Pods,
    ReplicaState,
    Webhook,
)

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"

_DIRECT_SECONDS = 10.0
_STATUS = "/statusz"
_Object = TypeVar("_Object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica.

    Attributes:
        name: of its pod, or its address.
        state: what it says of itself; None where it could not be asked.
        error: why not.
    """

    name: str
    state: ReplicaState | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is examined. Nothing of it is kept: every check reads for itself.

    Attributes:
        connection: to the API server.
        namespace: where it is.
        release: the name of its Deployment and of both webhook configurations.
        pod_namespace: where a pod is tried.
        now: the time of day.
    """

    connection: Connection = field(repr=False)
    namespace: str
    release: str
    pod_namespace: str
    now: Callable[[], datetime]

    async def read(self, path: str, kind: type[_Object], **query: str) -> _Object:
        """Return an object.

        Raises:
            ApiError: it cannot be read.
        """
        return msgspec.json.decode(await self.connection.get(path, tuple(query.items())), type=kind)

    async def configurations(self) -> dict[str, tuple[Configuration, ...]]:
        """Return the webhook configurations of the cluster, by kind.

        Raises:
            ApiError: they cannot be read.
        """
        return {
            kind: (await self.read(f"{ADMISSION}/{kind.lower()}s", Configurations)).items
            for kind in (MUTATING, VALIDATING)
        }

    async def ours(self) -> dict[str, Configuration]:
        """Return our own webhook configurations, by kind; one may be missing.

        Raises:
            ApiError: they cannot be read.
        """
        return {
            kind: one
            for kind, found in (await self.configurations()).items()
            for one in found
            if one.metadata.name == self.release
        }

    async def deployment(self) -> Deployment | None:
        """Return our Deployment, None if there is none of that name.

        Raises:
            ApiError: it cannot be read.
        """
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.release}"
        try:
            return await self.read(path, Deployment)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def replicas(self) -> list[Replica]:
        """Return what every replica says of itself: pods, or who answers at the webhook's URL.

        Raises:
            ApiError: the API server does not tell which there are.
        """
        deployment = await self.deployment()
        if deployment is not None:
            labels = deployment.spec.selector.match_labels
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            path = f"/api/v1/namespaces/{self.namespace}/pods"
            pods = (await self.read(path, Pods, labelSelector=selector)).items
            running = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
            if running:
                return [await self._replica(pod) for pod in running]
        webhooks = [one for each in (await self.ours()).values() for one in each.webhooks]
        called = next((one for one in webhooks if one.client_config.url), None)
        return [] if called is None else [await _called(called)]

    async def _replica(self, pod: Pod) -> Replica:
        """Ask a pod, by the API server: it reaches pods that we may not."""
        name = pod.metadata.name
        address = f"https:{name}:{pod.spec.webhook_port}"
        path = f"/api/v1/namespaces/{self.namespace}/pods/{address}/proxy{_STATUS}"
        try:
            return Replica(name=name, state=await self.read(path, ReplicaState))
        except (ApiError, msgspec.DecodeError) as error:
            return Replica(name=name, error=str(error))


async def _called(webhook: Webhook) -> Replica:
    """Ask who answers at the URL of a webhook, trusting whom the API server trusts."""
    called = webhook.client_config
    address = (called.url or "").rpartition("/")[0]
    try:
        trust = ssl.create_default_context(cadata=called.ca_bundle.decode() or None)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_DIRECT_SECONDS)) as session,
            session.get(f"{address}{_STATUS}", ssl=trust) as answer,
        ):
            state = msgspec.json.decode(await answer.read(), type=ReplicaState)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return Replica(name=address, error=str(error) or "no answer in time")
    return Replica(name=address, state=state)


def states(replicas: Sequence[Replica]) -> list[tuple[str, ReplicaState]]:
    """Return the replicas that answered, by name, with what they said."""
    return [(one.name, one.state) for one in replicas if one.state is not None]
