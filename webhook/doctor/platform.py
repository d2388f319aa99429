"""Known pitfalls of GKE, AKS, EKS and OpenShift."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation
from webhook.doctor.objects import Node, ObjectList, PodSpec, Version
from webhook.doctor.webhook_configurations import Configuration

_MOST_NODES = 50  # enough to recognise a platform: all are of one
_KUBELET_PORT = 10250
_OPEN_ON_GKE = (443, _KUBELET_PORT)
_ENFORCER = "admissions.enforcer/disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Evidence of a platform, and the settings that it may conflict with.

    Attributes:
        version: of the API server.
        providers: schemes of the providerIDs of nodes.
        labels: of nodes, each as its key and as `key=value`.
        spec: of our pods; empty if unknown.
        configurations: our own.
    """

    version: str
    providers: frozenset[str]
    labels: frozenset[str]
    spec: PodSpec
    configurations: tuple[Configuration, ...]

    def is_like(self, *, version: str, provider: str, label: str) -> bool:
        """Whether the cluster is of a platform: by its version, or by its nodes."""
        has_label = any(label in text for text in self.labels)
        return version in self.version or (provider in self.providers and has_label)


async def platform(installation: Installation) -> AsyncIterator[Finding]:
    """Recognise the platform, and check for its pitfalls."""
    version = (await installation.read("/version", Version)).git_version
    limit = str(_MOST_NODES)
    nodes = (await installation.read("/api/v1/nodes", ObjectList[Node], limit=limit)).items
    deployment = await installation.deployment()
    labels = {
        text
        for node in nodes
        for key, value in node.metadata.labels.items()
        for text in (key, f"{key}={value}")
    }
    facts = _Facts(
        version=version,
        providers=frozenset(node.spec.provider_id.partition(":")[0] for node in nodes),
        labels=frozenset(labels),
        spec=PodSpec() if deployment is None else deployment.spec.template.spec,
        configurations=tuple((await installation.own_configurations()).values()),
    )
    for check in _PLATFORMS:
        for finding in check(facts):
            yield finding
    yield Finding(Level.OK, f"Kubernetes {version}")


def _gke(facts: _Facts) -> Iterator[Finding]:
    if not facts.is_like(version="-gke.", provider="gce", label="cloud.google.com/gke"):
        return
    port = facts.spec.webhook_port
    if port not in _OPEN_ON_GKE:
        yield Finding(
            Level.NOTE,
            f"GKE: the API server of a private cluster reaches 443 and 10250 only, not {port}",
            "set `webhook.port=10250`, or open the port by a firewall rule",
        )


def _aks(facts: _Facts) -> Iterator[Finding]:
    if not facts.is_like(version="-aks", provider="azure", label="kubernetes.azure.com/"):
        return
    for configuration in facts.configurations:
        metadata = configuration.metadata
        if "true" not in (metadata.annotations.get(_ENFORCER), metadata.labels.get(_ENFORCER)):
            yield Finding(
                Level.WARNING,
                f"AKS: its admissions enforcer writes into the selectors of `{metadata.name}`",
                f"annotate and label it `{_ENFORCER}: true`, as the chart does",
            )


def _eks(facts: _Facts) -> Iterator[Finding]:
    if not facts.is_like(version="-eks-", provider="aws", label="eks.amazonaws.com/"):
        return
    if not facts.spec.host_network:
        yield Finding(
            Level.NOTE,
            "EKS: with a network other than Amazon's the API server reaches no pods, and security"
            f" groups must let it reach port {facts.spec.webhook_port} of nodes",
            "set `hostNetwork` for the one, add a rule for the other",
        )
    if "eks.amazonaws.com/compute-type=fargate" in facts.labels:
        if facts.spec.webhook_port == _KUBELET_PORT:
            message = f"EKS: on Fargate the kubelet has {_KUBELET_PORT}, the port of the webhook"
            yield Finding(Level.WARNING, message, "set another `webhook.port`")
        message = "EKS: each pod of Fargate gets a node of its own, which cannot be advised"
        yield Finding(Level.NOTE, message, "leave its namespaces out by `excludedNamespaces`")


def _openshift(facts: _Facts) -> Iterator[Finding]:
    user = facts.spec.security_context.run_as_user
    if "node.openshift.io/os_id" in facts.labels and user is not None:
        yield Finding(
            Level.WARNING,
            f"OpenShift: it chooses the user that pods run as, and refuses {user}",
            "render the chart against the cluster, which it then recognises, or set"
            " `podSecurityContext.runAsUser`, `runAsGroup` and `fsGroup` to null",
        )


_PLATFORMS: tuple[Callable[[_Facts], Iterator[Finding]], ...] = (_gke, _aks, _eks, _openshift)
