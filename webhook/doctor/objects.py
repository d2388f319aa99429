"""The parts of Kubernetes objects that checks read, named as Kubernetes names them."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from engine.model.well_known import CREATION_CONDITION, LIST_MARK, NAMESPACE_LABEL

_Item = TypeVar("_Item")
_WEBHOOK_PORT = 9443


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object; unknown fields are skipped."""


class Metadata(Part, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ObjectList(Part, Generic[_Item], frozen=True):
    items: tuple[_Item, ...] = ()


class EnvironmentVariable(Part, frozen=True):
    name: str
    value: str = ""


class Port(Part, frozen=True):
    container_port: int
    name: str = ""


class Container(Part, frozen=True):
    name: str
    image: str = ""
    env: tuple[EnvironmentVariable, ...] = ()
    ports: tuple[Port, ...] = ()


class SecretVolume(Part, frozen=True):
    secret_name: str = ""


class Named(Part, frozen=True):
    name: str = ""


class Volume(Part, frozen=True):
    name: str
    config_map: Named | None = None
    secret: SecretVolume | None = None


class PodSecurityContext(Part, frozen=True):
    run_as_user: int | None = None


class PodSpec(Part, frozen=True):
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[Named, ...] = ()
    service_account_name: str = "default"
    host_network: bool = False
    security_context: PodSecurityContext = PodSecurityContext()

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


class Pod(Part, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class Selector(Part, frozen=True):
    match_labels: dict[str, str] = {}


class DeploymentSpec(Part, frozen=True):
    selector: Selector = Selector()
    template: Pod = Pod()
    replicas: int = 1
    progress_deadline_seconds: int | None = None


class Deployment(Part, frozen=True):
    metadata: Metadata = Metadata()
    spec: DeploymentSpec = DeploymentSpec()


class JobSpec(Part, frozen=True):
    template: Pod


class JobTemplate(Part, frozen=True):
    spec: JobSpec


class CronJobSpec(Part, frozen=True):
    job_template: JobTemplate


class CronJob(Part, frozen=True):
    metadata: Metadata
    spec: CronJobSpec


class ConfigMap(Part, frozen=True):
    data: dict[str, str] = {}


class StatefulSetSpec(Part, frozen=True):
    template: Pod
    pod_management_policy: str = ""


class StatefulSet(Part, frozen=True):
    metadata: Metadata
    spec: StatefulSetSpec


class Used(Part, frozen=True):
    hard: dict[str, str | int | float] = {}
    used: dict[str, str | int | float] = {}


class ResourceQuota(Part, frozen=True):
    metadata: Metadata
    status: Used = Used()


class LeaseSpec(Part, frozen=True):
    holder_identity: str | None = None
    renew_time: datetime | None = None


class AnyObject(Part, frozen=True):
    metadata: Metadata


class Lease(Part, frozen=True):
    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()


class NodeSpec(Part, frozen=True):
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(Part, frozen=True):
    allocatable: dict[str, str | int | float] = {}


class Node(Part, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServiceSpec(Part, frozen=True):
    ip_families: tuple[str, ...] = ()


class Service(Part, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class TlsData(Part, frozen=True):
    certificate: bytes = msgspec.field(name="tls.crt", default=b"")


class Secret(Part, frozen=True):
    data: TlsData = TlsData()


class Version(Part, frozen=True):
    git_version: str = ""


class ServiceReference(Part, frozen=True):
    name: str
    namespace: str


class ClientConfig(Part, frozen=True):
    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: bytes = b""  # base64 on the wire

    @property
    def host(self) -> str:
        """The name that the certificate must be valid for."""
        if self.service is not None:
            return f"{self.service.name}.{self.service.namespace}.svc"
        authority = (self.url or "").partition("://")[2].partition("/")[0]
        return authority.rpartition(":")[0].strip("[]") or authority


class Rule(Part, frozen=True):
    api_groups: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    def covers(self, operation: str, resource: str) -> bool:
        """Whether an operation on some objects of the core group is among them."""
        name, slash, _ = resource.partition("/")
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {operation, "*"}.isdisjoint(self.operations)
            and not {resource, f"{name}/*" if slash else "*", "*/*"}.isdisjoint(self.resources)
        )


class Requirement(Part, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class NamespaceSelector(Part, frozen=True):
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


class Webhook(Part, frozen=True):
    name: str
    client_config: ClientConfig = ClientConfig()
    namespace_selector: NamespaceSelector = NamespaceSelector()
    rules: tuple[Rule, ...] = ()
    match_conditions: tuple[Named, ...] = ()
    failure_policy: str = "Fail"
    timeout_seconds: int = 10

    def covers(self, operation: str, resource: str) -> bool:
        """Whether it is called for an operation on some objects of the core group."""
        return any(rule.covers(operation, resource) for rule in self.rules)

    @property
    def covers_pod_creation(self) -> bool:
        return self.covers("CREATE", "pods")

    @property
    def is_switched_off(self) -> bool:
        """Whether the leader has it called for nothing, as nothing would be answered."""
        return any(each.name == CREATION_CONDITION for each in self.match_conditions)

    def selects(self, namespace: str) -> bool:
        """Whether replicas have listed a namespace, or have listed none."""
        listed = self.namespace_selector.namespaces
        return listed is None or namespace in listed


class Configuration(Part, frozen=True):
    metadata: Metadata
    webhooks: tuple[Webhook, ...] = ()
