"""The parts of Kubernetes objects that checks read."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

_Item = TypeVar("_Item")
_WEBHOOK_PORT = 9443


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object; unknown fields are skipped."""


class Metadata(Part, frozen=True):
    """Name, labels and annotations of an object."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class ObjectList(Part, Generic[_Item], frozen=True):
    """A list of objects of one kind."""

    items: tuple[_Item, ...] = ()


class EnvironmentVariable(Part, frozen=True):
    """A setting of a container."""

    name: str
    value: str = ""


class Port(Part, frozen=True):
    """A port of a container."""

    container_port: int
    name: str = ""


class Container(Part, frozen=True):
    """A container of a pod."""

    name: str
    image: str = ""
    env: tuple[EnvironmentVariable, ...] = ()
    ports: tuple[Port, ...] = ()


class SecretVolume(Part, frozen=True):
    """A Secret as files."""

    secret_name: str = ""


class ConfigMapVolume(Part, frozen=True):
    """A ConfigMap as files."""

    name: str = ""


class SchedulingGate(Part, frozen=True):
    """A scheduling gate of a pod."""

    name: str = ""


class Volume(Part, frozen=True):
    """A volume of a pod."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None


class PodSecurityContext(Part, frozen=True):
    """Users of a pod."""

    run_as_user: int | None = None


class PodSpec(Part, frozen=True):
    """Spec of a pod."""

    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
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
    """A pod, or the template of one."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class Selector(Part, frozen=True):
    """Selector of pods."""

    match_labels: dict[str, str] = {}


class DeploymentSpec(Part, frozen=True):
    """Spec of a Deployment."""

    selector: Selector
    template: Pod
    replicas: int = 1
    progress_deadline_seconds: int | None = None


class Deployment(Part, frozen=True):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec


class JobSpec(Part, frozen=True):
    """Spec of a Job."""

    template: Pod


class JobTemplate(Part, frozen=True):
    """A Job as a CronJob makes it."""

    spec: JobSpec


class CronJobSpec(Part, frozen=True):
    """Spec of a CronJob."""

    job_template: JobTemplate


class CronJob(Part, frozen=True):
    """A CronJob."""

    metadata: Metadata
    spec: CronJobSpec


class ConfigMap(Part, frozen=True):
    """A ConfigMap."""

    data: dict[str, str] = {}


class StatefulSetSpec(Part, frozen=True):
    """Spec of a StatefulSet."""

    template: Pod
    replicas: int | None = None
    pod_management_policy: str = ""


class StatefulSet(Part, frozen=True):
    """A StatefulSet."""

    metadata: Metadata
    spec: StatefulSetSpec


class Used(Part, frozen=True):
    """Limits of a ResourceQuota, and what counts against them."""

    hard: dict[str, str | int | float] = {}
    used: dict[str, str | int | float] = {}


class ResourceQuota(Part, frozen=True):
    """A ResourceQuota."""

    metadata: Metadata
    status: Used = Used()


class LeaseSpec(Part, frozen=True):
    """Spec of a Lease."""

    holder_identity: str | None = None
    renew_time: datetime | None = None


class Named(Part, frozen=True):
    """Any object, as far as all have the same."""

    metadata: Metadata


class Lease(Part, frozen=True):
    """A Lease."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()


class Taint(Part, frozen=True):
    """A taint of a node."""

    key: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True):
    """Spec of a node."""

    taints: tuple[Taint, ...] | None = None
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(Part, frozen=True):
    """Status of a node."""

    allocatable: dict[str, str | int | float] = {}


class Node(Part, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServiceSpec(Part, frozen=True):
    """Spec of a Service."""

    ip_families: tuple[str, ...] = ()


class Service(Part, frozen=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()


class TlsData(Part, frozen=True):
    """Data of a Secret with a certificate; its key is not read."""

    certificate: bytes = msgspec.field(name="tls.crt", default=b"")


class Secret(Part, frozen=True):
    """A Secret."""

    data: TlsData = TlsData()


class Version(Part, frozen=True):
    """The API server's version."""

    git_version: str = ""
