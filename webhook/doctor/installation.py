"""An installation: its objects and the state of its replicas, each read once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from engine.report import StatusReport
from webhook.cluster.client.connection import ApiError, Connection
from webhook.doctor.held_queue import ListedPod, list_held_pods
from webhook.doctor.objects import (
    Configuration,
    Deployment,
    ObjectList,
    Pod,
    PodSpec,
    ResourceQuota,
    Version,
    Webhook,
)

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
MOST_WORKLOADS: Final = 500
"""Of a kind that are read."""

_DIRECT_SECONDS = 10.0
_STATUS_PATH = "/statusz"
_Object = TypeVar("_Object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    name: str  # of its pod, or its address
    status: StatusReport | None = None  # None if it did not answer
    error: str = ""  # why it did not answer


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The installation to check; made on the event loop of its connection.

    Checks run in a thread. A read blocks it until the loop has the answer; what several checks read
    is read once, by the first of them. Where it cannot be read, they raise `ApiError`.
    """

    connection: Connection = field(repr=False)  # to the API server
    namespace: str  # of its Deployment
    release: str  # the name of its Deployment and of both webhook configurations
    pod_namespace: str  # where a pod is created as a dry run
    now: Callable[[], datetime]  # the time of day
    # of the connection
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, repr=False)

    def wait_for(self, reading: Coroutine[Any, Any, _Object]) -> _Object:
        """Return what is read on the event loop."""
        return asyncio.run_coroutine_threadsafe(reading, self.loop).result()

    def read(self, path: str, kind: type[_Object], **query: str) -> _Object:
        """Return an object."""
        answer = self.wait_for(self.connection.get(path, tuple(query.items())))
        return msgspec.json.decode(answer, type=kind)

    def find(self, path: str, kind: type[_Object]) -> _Object | None:
        """Return an object, None if there is none."""
        try:
            return self.read(path, kind)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def create(self, path: str, manifest: object, **query: str) -> bytes:
        """Return the answer to the creation of an object that is not kept."""
        body = msgspec.json.encode(manifest)
        return self.wait_for(self.connection.write("POST", path, body, query=tuple(query.items())))

    @cached_property
    def version(self) -> str:
        """That of the API server."""
        return self.read("/version", Version).git_version

    @cached_property
    def configurations(self) -> dict[str, tuple[Configuration, ...]]:
        """The webhook configurations of the cluster, by kind."""
        return {
            kind: self.read(f"{ADMISSION}/{kind.lower()}s", ObjectList[Configuration]).items
            for kind in (MUTATING, VALIDATING)
        }

    @property
    def own_configurations(self) -> dict[str, Configuration]:
        """Our own webhook configurations, by kind; one may be missing."""
        return {
            kind: configuration
            for kind, configurations in self.configurations.items()
            for configuration in configurations
            if configuration.metadata.name == self.release
        }

    @property
    def own_webhooks(self) -> list[Webhook]:
        """The webhooks of our own configurations."""
        return [webhook for each in self.own_configurations.values() for webhook in each.webhooks]

    @cached_property
    def deployment(self) -> Deployment | None:
        """The Deployment that answers reviews, None if there is none by that name."""
        return self._deployment(self.release)

    @cached_property
    def control(self) -> Deployment | None:
        """The Deployment of the leader, None where replicas lead themselves."""
        return self._deployment(f"{self.release}-control")

    def _deployment(self, name: str) -> Deployment | None:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"
        return self.find(path, Deployment)

    @property
    def spec(self) -> PodSpec:
        """That of our pods; an empty one where there is no Deployment."""
        return PodSpec() if self.deployment is None else self.deployment.spec.template.spec

    def setting(self, name: str) -> str:
        """Return a setting of our pods, such as `QUOTA_MODE`; "" for none."""
        return self.spec.setting(f"STOWPLAN_{name}")

    @property
    def holds(self) -> bool:
        """Whether pods are held."""
        return self.setting("HOLD") == "true"

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted for held ones."""
        preempts = self.setting("PREEMPTION") == "true"
        return self.holds and (preempts or self.setting("QUOTA_MODE") == "Queue")

    @property
    def lease(self) -> str:
        """Name of the Lease of the leader."""
        return self.setting("LEASE") or self.release

    @cached_property
    def deployments(self) -> Sequence[Deployment]:
        """The first Deployments of the cluster."""
        listed = self.read(DEPLOYMENTS, ObjectList[Deployment], limit=str(MOST_WORKLOADS))
        return listed.items

    @property
    def readable_deployments(self) -> Sequence[Deployment]:
        """The same, none for an account that may not list them: few may."""
        try:
            return self.deployments
        except ApiError:
            return ()

    def resource_quotas(self, namespace: str) -> Sequence[ResourceQuota]:
        """Return the ResourceQuotas of a namespace."""
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        return self.read(path, ObjectList[ResourceQuota]).items

    @cached_property
    def held_pods(self) -> Sequence[ListedPod]:
        """The pods with our scheduling gate."""
        return self.wait_for(list_held_pods(self.connection))

    @cached_property
    def replicas(self) -> Sequence[Replica]:
        """All replicas as the first check saw them."""
        return self.read_replicas()

    @property
    def statuses(self) -> list[tuple[str, StatusReport]]:
        """Name and status of each replica that answered."""
        return statuses(self.replicas)

    def read_replicas(self) -> list[Replica]:
        """Return all replicas: the pods, those of the leader too, or the server at our URL."""
        running: list[Pod] = []
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        for deployment in (self.deployment, self.control):
            if deployment is not None:
                labels = deployment.spec.selector.match_labels
                selector = ",".join(f"{key}={value}" for key, value in labels.items())
                pods = self.read(path, ObjectList[Pod], labelSelector=selector).items
                running += [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        if running:
            return [self._replica(pod) for pod in running]
        at_url = next((each for each in self.own_webhooks if each.client_config.url), None)
        return [] if at_url is None else [self.wait_for(_replica_at_url(at_url))]

    def _replica(self, pod: Pod) -> Replica:
        """Read the status of a pod through the API server, which reaches pods that we may not."""
        name = pod.metadata.name
        address = f"https:{name}:{pod.spec.status_port}"
        path = f"/api/v1/namespaces/{self.namespace}/pods/{address}/proxy{_STATUS_PATH}"
        try:
            return Replica(name=name, status=self.read(path, StatusReport))
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
    return [(replica.name, replica.status) for replica in replicas if replica.status is not None]
