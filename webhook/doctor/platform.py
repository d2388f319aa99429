"""Whose cluster is it, and what is known to go wrong there?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation
from webhook.doctor.objects import Configuration, Nodes, PodSpec, Version

_LOOKED_AT = 50  # nodes; one cloud has them all
_OPEN_ON_GKE = (443, 10250)
_ENFORCER = "admissions.enforcer/disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What tells a platform, and what it may not like.

    Attributes:
        version: of the API server.
        providers: the first words of the providerIDs of nodes.
        labels: keys of the labels of nodes, and `key=value`.
        spec: of our pods; that of an empty pod where it is not known.
        configurations: ours.
    """

    version: str
    providers: frozenset[str]
    labels: frozenset[str]
    spec: PodSpec
    configurations: tuple[Configuration, ...]

    def is_like(self, *, version: str, provider: str, label: str) -> bool:
        """Whether anything tells that it is some platform."""
        has_label = any(label in one for one in self.labels)
        return version in self.version or (provider in self.providers and has_label)


async def platform(at: Installation) -> AsyncIterator[Finding]:
    """Recognise GKE, AKS, EKS and OpenShift, and look for what is special there."""
    version = (await at.read("/version", Version)).git_version
    nodes = (await at.read("/api/v1/nodes", Nodes, limit=str(_LOOKED_AT))).items
    deployment = await at.deployment()
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
        configurations=tuple((await at.ours()).values()),
    )
    for look in _PLATFORMS:
        for finding in look(facts):
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
        message = "EKS: each pod of Fargate gets a node of its own, which cannot be advised"
        yield Finding(Level.NOTE, message, "leave its namespaces out by `excludedNamespaces`")


def _openshift(facts: _Facts) -> Iterator[Finding]:
    if "node.openshift.io/os_id" in facts.labels:
        yield Finding(
            Level.NOTE,
            "OpenShift: it chooses the user that pods run as, and refuses one that is set",
            "set `podSecurityContext.runAsUser`, `runAsGroup` and `fsGroup` to null",
        )


_PLATFORMS: tuple[Callable[[_Facts], Iterator[Finding]], ...] = (_gke, _aks, _eks, _openshift)
