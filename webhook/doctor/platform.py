"""Known pitfalls of GKE, AKS, EKS and OpenShift."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

import msgspec

from engine.documents import read_documents
from engine.errors import InvalidFileError
from webhook.cluster.client.connection import ApiError
from webhook.doctor.installation import Configuration, Finding, Installation, Level
from webhook.doctor.objects import (
    ConfigMap,
    CronJob,
    Deployment,
    Metadata,
    Node,
    ObjectList,
    Part,
    PodSpec,
    Version,
)

_MOST_NODES = 50  # enough to recognise a platform: all are of one
_KUBELET_PORT = 10250
_OPEN_ON_GKE = (443, _KUBELET_PORT)
_ENFORCER = "admissions.enforcer/disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Evidence of a platform, and the settings that it may conflict with."""

    version: str  # of the API server
    providers: frozenset[str]  # schemes of the providerIDs of nodes
    labels: frozenset[str]  # of nodes, each as its key and as `key=value`
    spec: PodSpec  # of our pods; empty if unknown
    configurations: tuple[Configuration, ...]  # our own

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

_NAME_LABEL: Final = "app.kubernetes.io/name"
_VERSION_LABEL: Final = "app.kubernetes.io/version"
_DESCHEDULER, _KARPENTER = "descheduler", "karpenter"
_MOST_READ: Final = 500  # Deployments, and CronJobs, that bear no such label
_POLICY_KINDS: Final = ("DeschedulerPolicy", "DeschedulerConfiguration")  # the latter Koordinator's
_PLUGIN: Final = "RemovePodsViolatingNodeAffinity"
_REQUIRED, _PREFERRED = (
    f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred")
)
_FIRST_THAT_RELAXES: Final = (1, 5)
"""The first Karpenter that adds nodes for pods which prefer others by hostname."""


_Item = TypeVar("_Item", Deployment, CronJob)


class _Workload(NamedTuple):
    """A Deployment or CronJob."""

    metadata: Metadata
    spec: PodSpec

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def runs(self, program: str) -> bool:
        """Return whether it runs a program, by its label or the name of an image."""
        if self.metadata.labels.get(_NAME_LABEL) == program:
            return True
        return any(program in each.image.partition("@")[0] for each in self.spec.containers)

    @property
    def version(self) -> tuple[int, int] | None:
        """The major and minor version that it runs, None if neither label nor image says it."""
        tags = (each.image.partition("@")[0].rpartition(":")[2] for each in self.spec.containers)
        for text in (self.metadata.labels.get(_VERSION_LABEL, ""), *tags):
            found = re.match(r"v?(\d+)\.(\d+)", text)
            if found:
                return int(found[1]), int(found[2])
        return None


class _PluginArgs(Part, frozen=True):
    node_affinity_type: tuple[str, ...] | None = None


class _PluginConfig(Part, frozen=True):
    name: str = ""
    args: _PluginArgs | None = None


class _EnabledPlugin(Part, frozen=True):
    """A plugin as Koordinator writes it; others write its name alone."""

    name: str = ""


class _PluginList(Part, frozen=True):
    enabled: tuple[str | _EnabledPlugin, ...] | None = None


class _Plugins(Part, frozen=True):
    deschedule: _PluginList | None = None


class _Profile(Part, frozen=True):
    plugin_config: tuple[_PluginConfig, ...] | None = None
    plugins: _Plugins | None = None

    @property
    def args(self) -> Iterator[_PluginArgs]:
        """The args of the plugin, if it is enabled."""
        lists = self.plugins and self.plugins.deschedule
        enabled = (lists and lists.enabled) or ()
        if _PLUGIN in enabled or _EnabledPlugin(_PLUGIN) in enabled:
            for config in self.plugin_config or ():
                if config.name == _PLUGIN and config.args is not None:
                    yield config.args


class _Strategy(Part, frozen=True):
    enabled: bool = False
    params: _PluginArgs | None = None


class _DeschedulerPolicy(Part, frozen=True):
    """The policy of a descheduler: of v1alpha2, by profiles, or v1alpha1, by strategies."""

    dry_run: bool = False
    profiles: tuple[_Profile, ...] | None = None
    strategies: dict[str, _Strategy] | None = None

    @property
    def affinity_types(self) -> frozenset[str]:
        """The kinds of node affinity by which it evicts pods."""
        if self.dry_run:
            return frozenset()
        args = [args for profile in self.profiles or () for args in profile.args]
        strategy = (self.strategies or {}).get(_PLUGIN)
        if strategy is not None and strategy.enabled and strategy.params is not None:
            args.append(strategy.params)
        return frozenset(kind for each in args for kind in each.node_affinity_type or ())


async def other_controllers(installation: Installation) -> AsyncIterator[Finding]:
    """Look for a descheduler that evicts by node affinity, and for a Karpenter that is too old."""
    workloads = await _deployments(installation)
    try:
        workloads += await _cron_jobs(installation)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            yield Finding(
                Level.WARNING,
                f"a descheduler that runs as a CronJob is not looked for: {error.message}",
                "run it as somebody who may list CronJobs",
            )
    deschedulers = [each for each in workloads if each.runs(_DESCHEDULER)]
    karpenters = [each for each in workloads if each.runs(_KARPENTER)]
    for each in deschedulers:
        async for finding in _descheduler(installation, each):
            yield finding
    for each in karpenters:
        yield _karpenter(each)
    if not karpenters and await _serves_karpenter(installation):
        yield Finding(
            Level.NOTE,
            "Karpenter runs where no Deployment of it can be seen, and its version is unknown:"
            " before 1.5 it adds no node for a pod that prefers nodes by hostname, as advice does",
            "see docs/autoscalers.md",
        )
    elif not deschedulers and not karpenters:
        yield Finding(Level.OK, "no descheduler and no Karpenter is seen")


async def _deployments(installation: Installation) -> list[_Workload]:
    found = await _listed(installation, "/apis/apps/v1/deployments", ObjectList[Deployment])
    return [_Workload(each.metadata, each.spec.template.spec) for each in found]


async def _cron_jobs(installation: Installation) -> list[_Workload]:
    found = await _listed(installation, "/apis/batch/v1/cronjobs", ObjectList[CronJob])
    return [_Workload(each.metadata, each.spec.job_template.spec.template.spec) for each in found]


async def _listed(
    installation: Installation, path: str, kind: type[ObjectList[_Item]]
) -> list[_Item]:
    """Return the objects that bear the label of a program, and the first of all."""
    found = list((await installation.read(path, kind, limit=str(_MOST_READ))).items)
    for program in (_DESCHEDULER, _KARPENTER):
        selector = f"{_NAME_LABEL}={program}"
        found += (await installation.read(path, kind, labelSelector=selector)).items
    return list({(each.metadata.namespace, each.metadata.name): each for each in found}.values())


async def _descheduler(installation: Installation, found: _Workload) -> AsyncIterator[Finding]:
    """Yield how a descheduler evicts pods by their node affinity."""
    names = [each.config_map.name for each in found.spec.volumes if each.config_map is not None]
    policies = []
    for name in names:
        path = f"/api/v1/namespaces/{found.metadata.namespace}/configmaps/{name}"
        try:
            data = (await installation.read(path, ConfigMap)).data
        except ApiError as error:
            yield _unknown(found, f"ConfigMap {name} cannot be read: {error.message}")
            return
        try:
            policies += [policy for text in data.values() for policy in _policies_in(text)]
        except (InvalidFileError, msgspec.ValidationError) as error:
            yield _unknown(found, f"ConfigMap {name} makes no sense: {str(error).splitlines()[0]}")
            return
    if not policies:
        yield _unknown(found, "it mounts no ConfigMap with its policy")
        return
    kinds = frozenset(kind for policy in policies for kind in policy.affinity_types)
    for finding in _evictions(found, kinds):
        yield finding


def _policies_in(text: str) -> Iterator[_DeschedulerPolicy]:
    """Yield the policies in a file; it may hold anything."""
    if not any(kind in text for kind in _POLICY_KINDS):
        return
    for document in read_documents(text.encode(), "policy"):
        value = document.value
        if isinstance(value, dict) and value.get("kind") in _POLICY_KINDS:
            yield msgspec.convert(value, _DeschedulerPolicy)


def _unknown(found: _Workload, why: str) -> Finding:
    return Finding(
        Level.WARNING,
        f"it is unknown whether descheduler {found.name} evicts pods by node affinity: {why}",
        f"look for `{_PLUGIN}` in its policy, and see docs/autoscalers.md",
    )


def _evictions(found: _Workload, kinds: frozenset[str]) -> Iterator[Finding]:
    if _PREFERRED in kinds:
        yield Finding(
            Level.WARNING,
            f"descheduler {found.name} evicts running pods by preferred node affinity: a pod that"
            " does not run on one of the best nodes of its advice is evicted while one of them has"
            " room, again and again",
            f"remove `{_PREFERRED}` from `nodeAffinityType` of `{_PLUGIN}`, or have policies decide"
            " `at: Binding`, which writes no preferred terms",
        )
    if _REQUIRED in kinds:
        yield Finding(
            Level.NOTE,
            f"descheduler {found.name} evicts running pods whose required node affinity no longer"
            " holds: a filter that promises a label which changes ends pods",
            "`stowplan lint` names such filters",
        )
    if not kinds:
        yield Finding(Level.OK, f"descheduler {found.name} evicts no pods by node affinity")


def _karpenter(found: _Workload) -> Finding:
    version = found.version
    if version is not None and version >= _FIRST_THAT_RELAXES:
        return Finding(Level.OK, f"Karpenter {found.name} is {version[0]}.{version[1]}")
    what = "of unknown version" if version is None else f"{version[0]}.{version[1]}"
    return Finding(
        Level.WARNING if version is not None else Level.NOTE,
        f"Karpenter {found.name} is {what}: before 1.5 it adds no node for a pod that prefers nodes"
        " by hostname, as advice does",
        "upgrade it to 1.5, or have policies decide `at: Binding`, which writes no such terms",
    )


async def _serves_karpenter(installation: Installation) -> bool:
    """Return whether the cluster has the API of Karpenter, such as one that a provider runs."""
    try:
        await installation.read("/apis/karpenter.sh", Part)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return False
        raise
    return True
