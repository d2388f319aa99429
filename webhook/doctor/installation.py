"""An installation: its objects, and the state of its replicas."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import TypeVar

import aiohttp
import msgspec

from engine.model.well_known import CREATION_CONDITION, LIST_MARK, NAMESPACE_LABEL
from engine.report import StatusReport
from webhook.cluster.client.connection import ApiError, Connection
from webhook.doctor.objects import Deployment, Metadata, ObjectList, Part, Pod


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"  # as it should be
    NOTE = "note"  # worth knowing; no action needed
    WARNING = "warning"  # works for now, or is unknown
    PROBLEM = "problem"  # pods get no advice, quotas are not enforced, or soon so


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check, with the action that solves it; no advice if none is needed."""

    level: Level
    message: str
    advice: str = ""

    @property
    def is_well(self) -> bool:
        """Whether no action is needed."""
        return self.level in {Level.OK, Level.NOTE}


class Service(Part, frozen=True):
    """The Service in front of a webhook."""

    name: str
    namespace: str


class ClientConfig(Part, frozen=True):
    """Address of a webhook, and the authorities that its callers trust."""

    url: str | None = None
    service: Service | None = None
    ca_bundle: bytes = b""  # base64 on the wire

    @property
    def host(self) -> str:
        """The name that the certificate must be valid for."""
        if self.service is not None:
            return f"{self.service.name}.{self.service.namespace}.svc"
        authority = (self.url or "").partition("://")[2].partition("/")[0]
        return authority.rpartition(":")[0].strip("[]") or authority


class Rule(Part, frozen=True):
    """Requests that the API server sends to a webhook."""

    api_groups: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    @property
    def covers_pod_creation(self) -> bool:
        """Whether the creation of pods is among them."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"CREATE", "*"}.isdisjoint(self.operations)
            and not {"pods", "*", "*/*"}.isdisjoint(self.resources)
        )

    @property
    def covers_bindings(self) -> bool:
        """Whether the binding of pods is among them."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"CREATE", "*"}.isdisjoint(self.operations)
            and not {"pods/binding", "pods/*", "*/*"}.isdisjoint(self.resources)
        )

    @property
    def covers_pod_changes(self) -> bool:
        """Whether changes of pods are among them."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"UPDATE", "*"}.isdisjoint(self.operations)
            and not {"pods", "*", "*/*"}.isdisjoint(self.resources)
        )


class Requirement(Part, frozen=True):
    """A requirement of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NamespaceSelector(Part, frozen=True):
    """Selector of namespaces by their labels."""

    match_expressions: tuple[Requirement, ...] = ()

    def requires(self, key: str, value: str) -> bool:
        """Whether a label must have this value."""
        return Requirement(key, "In", (value,)) in self.match_expressions

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The namespaces that replicas have listed, None where they have not."""
        for each in self.match_expressions:
            if each.key == NAMESPACE_LABEL and LIST_MARK in each.values:
                return frozenset(each.values) - {LIST_MARK}
        return None


class MatchCondition(Part, frozen=True):
    """A condition that requests must meet."""

    name: str


class Webhook(Part, frozen=True):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()
    namespace_selector: NamespaceSelector = NamespaceSelector()
    rules: tuple[Rule, ...] = ()
    match_conditions: tuple[MatchCondition, ...] = ()
    failure_policy: str = "Fail"
    timeout_seconds: int = 10

    @property
    def covers_pod_creation(self) -> bool:
        """Whether it is called for some new pods."""
        return any(rule.covers_pod_creation for rule in self.rules)

    @property
    def covers_bindings(self) -> bool:
        """Whether it is called for some bindings of pods."""
        return any(rule.covers_bindings for rule in self.rules)

    @property
    def is_switched_off(self) -> bool:
        """Whether the leader has it called for nothing, as nothing would be answered."""
        return any(each.name == CREATION_CONDITION for each in self.match_conditions)

    def selects(self, namespace: str) -> bool:
        """Whether replicas have listed a namespace, or have listed none."""
        listed = self.namespace_selector.namespaces
        return listed is None or namespace in listed

    @property
    def covers_pod_changes(self) -> bool:
        """Whether it is called for some changes of pods."""
        return any(rule.covers_pod_changes for rule in self.rules)


class Configuration(Part, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: Metadata
    webhooks: tuple[Webhook, ...] = ()


ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"

_DIRECT_SECONDS = 10.0
_STATUS_PATH = "/statusz"
_Object = TypeVar("_Object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica."""

    name: str  # of its pod, or its address
    status: StatusReport | None = None  # None if it did not answer
    error: str = ""  # why it did not answer


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
