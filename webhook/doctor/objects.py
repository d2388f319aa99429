"""The parts of Kubernetes objects that checks read."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from engine.model.quota_rollout import LIST_MARK, NAMESPACE_LABEL

_Item = TypeVar("_Item")
_WEBHOOK_PORT = 9443


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object; unknown fields are skipped."""


class Metadata(_Part, frozen=True):
    """Name, labels and annotations of an object."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class ObjectList(_Part, Generic[_Item], frozen=True):
    """A list of objects of one kind."""

    items: tuple[_Item, ...] = ()


# Webhook configurations.


class Service(_Part, frozen=True):
    """The Service in front of a webhook."""

    name: str
    namespace: str


class ClientConfig(_Part, frozen=True):
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


class Rule(_Part, frozen=True):
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
    def covers_pod_changes(self) -> bool:
        """Whether changes of pods are among them."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"UPDATE", "*"}.isdisjoint(self.operations)
            and not {"pods", "*", "*/*"}.isdisjoint(self.resources)
        )


class Requirement(_Part, frozen=True):
    """A requirement of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NamespaceSelector(_Part, frozen=True):
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


class Webhook(_Part, frozen=True):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()
    namespace_selector: NamespaceSelector = NamespaceSelector()
    rules: tuple[Rule, ...] = ()
    failure_policy: str = "Fail"
    timeout_seconds: int = 10

    @property
    def covers_pod_creation(self) -> bool:
        """Whether it is called for some new pods."""
        return any(rule.covers_pod_creation for rule in self.rules)

    def selects(self, namespace: str) -> bool:
        """Whether replicas have listed a namespace, or have listed none."""
        listed = self.namespace_selector.namespaces
        return listed is None or namespace in listed

    @property
    def covers_pod_changes(self) -> bool:
        """Whether it is called for some changes of pods."""
        return any(rule.covers_pod_changes for rule in self.rules)


class Configuration(_Part, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: Metadata
    webhooks: tuple[Webhook, ...] = ()


# Workloads.


class EnvironmentVariable(_Part, frozen=True):
    """A setting of a container."""

    name: str
    value: str = ""


class Port(_Part, frozen=True):
    """A port of a container."""

    container_port: int
    name: str = ""


class Container(_Part, frozen=True):
    """A container of a pod."""

    name: str
    env: tuple[EnvironmentVariable, ...] = ()
    ports: tuple[Port, ...] = ()


class SecretVolume(_Part, frozen=True):
    """A Secret as files."""

    secret_name: str = ""


class Volume(_Part, frozen=True):
    """A volume of a pod."""

    name: str
    secret: SecretVolume | None = None


class PodSpec(_Part, frozen=True):
    """Spec of a pod."""

    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    service_account_name: str = "default"
    host_network: bool = False

    @property
    def webhook_port(self) -> int:
        """Port that the webhook listens on."""
        return self._port("webhook") or _WEBHOOK_PORT

    @property
    def status_port(self) -> int:
        """Port on which a replica reports its state to everybody.

        That of reviews, which the API server reaches, unless it requires a client certificate.
        """
        probes = self._port("probes") if self.setting("STOWPLAN_CLIENT_CA") else 0
        return probes or self.webhook_port

    def _port(self, name: str) -> int:
        ports = (port for container in self.containers for port in container.ports)
        return next((port.container_port for port in ports if port.name == name), 0)

    def setting(self, name: str) -> str:
        """Return the value of an environment variable, "" for none."""
        variables = (variable for container in self.containers for variable in container.env)
        return next((variable.value for variable in variables if variable.name == name), "")


class Pod(_Part, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()


class Selector(_Part, frozen=True):
    """Selector of pods."""

    match_labels: dict[str, str] = {}


class DeploymentSpec(_Part, frozen=True):
    """Spec of a Deployment."""

    selector: Selector
    template: Pod
    replicas: int = 1
    progress_deadline_seconds: int | None = None


class Deployment(_Part, frozen=True):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec


class StatefulSetSpec(_Part, frozen=True):
    """Spec of a StatefulSet."""

    template: Pod
    replicas: int | None = None
    pod_management_policy: str = ""


class StatefulSet(_Part, frozen=True):
    """A StatefulSet."""

    metadata: Metadata
    spec: StatefulSetSpec


class Used(_Part, frozen=True):
    """Limits of a ResourceQuota, and what counts against them."""

    hard: dict[str, str | int | float] = {}
    used: dict[str, str | int | float] = {}


class ResourceQuota(_Part, frozen=True):
    """A ResourceQuota."""

    metadata: Metadata
    status: Used = Used()


class LeaseSpec(_Part, frozen=True):
    """Spec of a Lease."""

    holder_identity: str | None = None
    renew_time: datetime | None = None


class Named(_Part, frozen=True):
    """Any object, as far as all have the same."""

    metadata: Metadata


class Lease(_Part, frozen=True):
    """A Lease."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()


class Taint(_Part, frozen=True):
    """A taint of a node."""

    key: str = ""
    effect: str = ""


class NodeSpec(_Part, frozen=True):
    """Spec of a node."""

    taints: tuple[Taint, ...] | None = None
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(_Part, frozen=True):
    """Status of a node."""

    allocatable: dict[str, str | int | float] = {}


class Node(_Part, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class TlsData(_Part, frozen=True):
    """Data of a Secret with a certificate; its key is not read."""

    certificate: bytes = msgspec.field(name="tls.crt", default=b"")


class Secret(_Part, frozen=True):
    """A Secret."""

    data: TlsData = TlsData()


class Version(_Part, frozen=True):
    """The API server's version."""

    git_version: str = ""
