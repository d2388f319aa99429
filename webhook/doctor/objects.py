"""The parts of Kubernetes objects that checks read, and what a replica says of itself."""

from __future__ import annotations

from datetime import datetime

import msgspec


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object; what it does not name is skipped."""


class Metadata(_Part, frozen=True):
    """Who an object is."""

    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


# Webhook configurations.


class Service(_Part, frozen=True):
    """The Service that a webhook is called by."""

    name: str
    namespace: str


class ClientConfig(_Part, frozen=True):
    """How a webhook is called."""

    url: str | None = None
    service: Service | None = None
    ca_bundle: bytes = b""  # base64 on the wire

    @property
    def host(self) -> str:
        """The name that the certificate must be for."""
        if self.service is not None:
            return f"{self.service.name}.{self.service.namespace}.svc"
        authority = (self.url or "").partition("://")[2].partition("/")[0]
        return authority.rpartition(":")[0].strip("[]") or authority


class Rule(_Part, frozen=True):
    """What a webhook is asked about."""

    api_groups: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    @property
    def has_new_pods(self) -> bool:
        """Whether the creation of pods is among it."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"CREATE", "*"}.isdisjoint(self.operations)
            and not {"pods", "*", "*/*"}.isdisjoint(self.resources)
        )


class Webhook(_Part, frozen=True):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()
    rules: tuple[Rule, ...] = ()
    failure_policy: str = "Fail"
    timeout_seconds: int = 10

    @property
    def sees_new_pods(self) -> bool:
        """Whether it is asked about some new pods."""
        return any(rule.has_new_pods for rule in self.rules)


class Configuration(_Part, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: Metadata
    webhooks: tuple[Webhook, ...] = ()


class Configurations(_Part, frozen=True):
    """All of one of the two kinds."""

    items: tuple[Configuration, ...] = ()


# What runs.


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
    """What a pod should be."""

    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    service_account_name: str = "default"
    host_network: bool = False

    @property
    def webhook_port(self) -> int:
        """Where the webhook listens."""
        ports = (port for container in self.containers for port in container.ports)
        return next((port.container_port for port in ports if port.name == "webhook"), 9443)

    def setting(self, name: str) -> str:
        """Return the value of an environment variable, "" for none."""
        variables = (one for container in self.containers for one in container.env)
        return next((one.value for one in variables if one.name == name), "")


class Pod(_Part, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()


class Pods(_Part, frozen=True):
    """Some pods."""

    items: tuple[Pod, ...] = ()


class Selector(_Part, frozen=True):
    """Which pods are meant."""

    match_labels: dict[str, str] = {}


class DeploymentSpec(_Part, frozen=True):
    """What a Deployment should be."""

    selector: Selector
    template: Pod
    replicas: int = 1


class Deployment(_Part, frozen=True):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec


class NodeSpec(_Part, frozen=True):
    """What a node should be."""

    provider_id: str = msgspec.field(name="providerID", default="")


class Node(_Part, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()


class Nodes(_Part, frozen=True):
    """Some nodes."""

    items: tuple[Node, ...] = ()


class Served(_Part, frozen=True):
    """What a Secret with a certificate may show; its keys are not read."""

    certificate: bytes = msgspec.field(name="tls.crt", default=b"")


class Secret(_Part, frozen=True):
    """A Secret."""

    data: Served = Served()


class Version(_Part, frozen=True):
    """The API server's version."""

    git_version: str = ""


# What a replica says of itself: `webhook.serving.health`.


class PoliciesState(_Part, frozen=True):
    """The policies of a replica."""

    loaded: int
    digest: str
    last_reload_error: str = ""


class ViewState(_Part, frozen=True):
    """What a replica knows of the cluster."""

    nodes: int
    stale: tuple[str, ...] = ()


class SourceState(_Part, frozen=True):
    """Where it knows it from."""

    name: str
    required: bool
    present: bool
    synced: bool
    objects: int = 0
    last_error: str = ""


class CertificateState(_Part, frozen=True):
    """What it serves."""

    expires_at: datetime
    is_trusted: bool | None = None


class ReplicaState(_Part, frozen=True):
    """All a replica says of itself."""

    ready: bool
    policies: PoliciesState
    view: ViewState
    certificate: CertificateState
    draining: bool = False
    modes: dict[str, str] = {}
    reviews: dict[str, int] = {}
    sources: tuple[SourceState, ...] = ()
