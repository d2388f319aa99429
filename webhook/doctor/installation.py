"""An installation: its objects, and the state of its replicas."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import TypeVar

import aiohttp
import msgspec

from engine.report import StatusReport
from webhook.cluster.client.connection import ApiError, Connection
from webhook.doctor.objects import Deployment, ObjectList, Pod
from webhook.doctor.webhook_configurations import Configuration, Webhook

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"

_DIRECT_SECONDS = 10.0
_STATUS_PATH = "/statusz"
_Object = TypeVar("_Object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica.

    Attributes:
        name: of its pod, or its address.
        status: None if it did not answer.
        error: why it did not answer.
    """

    name: str
    status: StatusReport | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The installation to check. Nothing is cached: every check reads for itself.

    Attributes:
        connection: to the API server.
        namespace: of its Deployment.
        release: the name of its Deployment and of both webhook configurations.
        pod_namespace: where a pod is created as a dry run.
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
            kind: (await self.read(f"{ADMISSION}/{kind.lower()}s", ObjectList[Configuration])).items
            for kind in (MUTATING, VALIDATING)
        }

    async def own_configurations(self) -> dict[str, Configuration]:
        """Return our own webhook configurations, by kind; one may be missing.

        Raises:
            ApiError: they cannot be read.
        """
        return {
            kind: configuration
            for kind, configurations in (await self.configurations()).items()
            for configuration in configurations
            if configuration.metadata.name == self.release
        }

    async def deployment(self) -> Deployment | None:
        """Return the Deployment that answers reviews, None if there is none by that name.

        Raises:
            ApiError: it cannot be read.
        """
        return await self._deployment(self.release)

    async def control(self) -> Deployment | None:
        """Return the Deployment of the leader, None where replicas lead themselves.

        Raises:
            ApiError: it cannot be read.
        """
        return await self._deployment(f"{self.release}-control")

    async def _deployment(self, name: str) -> Deployment | None:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"
        try:
            return await self.read(path, Deployment)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def replicas(self) -> list[Replica]:
        """Return all replicas: the pods, those of the leader too, or the server at our URL.

        Raises:
            ApiError: the pods cannot be listed.
        """
        running: list[Pod] = []
        for deployment in (await self.deployment(), await self.control()):
            if deployment is None:
                continue
            labels = deployment.spec.selector.match_labels
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            path = f"/api/v1/namespaces/{self.namespace}/pods"
            pods = (await self.read(path, ObjectList[Pod], labelSelector=selector)).items
            running += [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        if running:
            return [await self._replica(pod) for pod in running]
        for configuration in (await self.own_configurations()).values():
            for webhook in configuration.webhooks:
                if webhook.client_config.url:
                    return [await _replica_at_url(webhook)]
        return []

    async def _replica(self, pod: Pod) -> Replica:
        """Read the status of a pod through the API server, which reaches pods that we may not."""
        name = pod.metadata.name
        address = f"https:{name}:{pod.spec.status_port}"
        path = f"/api/v1/namespaces/{self.namespace}/pods/{address}/proxy{_STATUS_PATH}"
        try:
            return Replica(name=name, status=await self.read(path, StatusReport))
        except (ApiError, msgspec.DecodeError) as error:
            return Replica(name=name, error=str(error))


async def _replica_at_url(webhook: Webhook) -> Replica:
    """Read the status of the server at a webhook's URL, with the trust of the API server."""
    client = webhook.client_config
    address = (client.url or "").rpartition("/")[0]
    try:
        trust = ssl.create_default_context(cadata=client.ca_bundle.decode() or None)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_DIRECT_SECONDS)) as session,
            session.get(f"{address}{_STATUS_PATH}", ssl=trust) as answer,
        ):
            status = msgspec.json.decode(await answer.read(), type=StatusReport)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return Replica(name=address, error=str(error) or "no answer in time")
    return Replica(name=address, status=status)


def statuses(replicas: Sequence[Replica]) -> list[tuple[str, StatusReport]]:
    """Return the name and status of each replica that answered."""
    return [(replica.name, replica.status) for replica in replicas if replica.status is not None]
