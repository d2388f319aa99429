"""Known pitfalls of GKE, AKS, EKS and OpenShift."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

import msgspec

from engine.documents import read_documents
from engine.errors import InvalidFileError
from webhook.cluster.client.connection import ApiError
from webhook.doctor.findings import Finding, note, ok, warning
from webhook.doctor.installation import DEPLOYMENTS, MOST_WORKLOADS, Installation
from webhook.doctor.objects import (
    ConfigMap,
    Configuration,
    CronJob,
    Deployment,
    Metadata,
    Node,
    ObjectList,
    Part,
    PodSpec,
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


def platform(installation: Installation) -> Iterator[Finding]:
    """Recognise the platform, and check for its pitfalls."""
    limit = str(_MOST_NODES)
    nodes = installation.read("/api/v1/nodes", ObjectList[Node], limit=limit).items
    labels = {
        text
        for node in nodes
        for key, value in node.metadata.labels.items()
        for text in (key, f"{key}={value}")
    }
    facts = _Facts(
        version=installation.version,
        providers=frozenset(node.spec.provider_id.partition(":")[0] for node in nodes),
        labels=frozenset(labels),
        spec=installation.spec,
        configurations=tuple(installation.own_configurations.values()),
    )
    for check in _PLATFORMS:
        yield from check(facts)
    yield ok(f"Kubernetes {facts.version}")


def _gke(facts: _Facts) -> Iterator[Finding]:
    if not facts.is_like(version="-gke.", provider="gce", label="cloud.google.com/gke"):
        return
    port = facts.spec.webhook_port
    if port not in _OPEN_ON_GKE:
        yield note(
            f"GKE: the API server of a private cluster reaches 443 and 10250 only, not {port}",
            "set `webhook.port=10250`, or open the port by a firewall rule",
        )


def _aks(facts: _Facts) -> Iterator[Finding]:
    if not facts.is_like(version="-aks", provider="azure", label="kubernetes.azure.com/"):
        return
    for configuration in facts.configurations:
        metadata = configuration.metadata
        if "true" not in (metadata.annotations.get(_ENFORCER), metadata.labels.get(_ENFORCER)):
            yield warning(
                f"AKS: its admissions enforcer writes into the selectors of `{metadata.name}`",
                f"annotate and label it `{_ENFORCER}: true`, as the chart does",
            )


def _eks(facts: _Facts) -> Iterator[Finding]:
    if not facts.is_like(version="-eks-", provider="aws", label="eks.amazonaws.com/"):
        return
    if not facts.spec.host_network:
        yield note(
            "EKS: with a network other than Amazon's the API server reaches no pods, and security"
            f" groups must let it reach port {facts.spec.webhook_port} of nodes",
            "set `hostNetwork` for the one, add a rule for the other",
        )
    if "eks.amazonaws.com/compute-type=fargate" in facts.labels:
        if facts.spec.webhook_port == _KUBELET_PORT:
            message = f"EKS: on Fargate the kubelet has {_KUBELET_PORT}, the port of the webhook"
            yield warning(message, "set another `webhook.port`")
        message = "EKS: each pod of Fargate gets a node of its own, which cannot be advised"
        yield note(message, "leave its namespaces out by `excludedNamespaces`")


def _openshift(facts: _Facts) -> Iterator[Finding]:
    user = facts.spec.security_context.run_as_user
    if "node.openshift.io/os_id" in facts.labels and user is not None:
        yield warning(
            f"OpenShift: it chooses the user that pods run as, and refuses {user}",
            "render the chart against the cluster, which it then recognises, or set"
            " `podSecurityContext.runAsUser`, `runAsGroup` and `fsGroup` to null",
        )


_PLATFORMS: tuple[Callable[[_Facts], Iterator[Finding]], ...] = (_gke, _aks, _eks, _openshift)

_NAME_LABEL: Final = "app.kubernetes.io/name"
_VERSION_LABEL: Final = "app.kubernetes.io/version"
_DESCHEDULER, _KARPENTER = "descheduler", "karpenter"
_CRON_JOBS: Final = "/apis/batch/v1/cronjobs"
_POLICY_KINDS: Final = ("DeschedulerPolicy", "DeschedulerConfiguration")  # the latter Koordinator's
_PLUGIN: Final = "RemovePodsViolatingNodeAffinity"
_REQUIRED, _PREFERRED = (
    f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred")
)
_FIRST_THAT_RELAXES: Final = (1, 5)
"""The first Karpenter that adds nodes for pods which prefer others by hostname."""


_Item = TypeVar("_Item", bound=Deployment | CronJob)


class _Workload(NamedTuple):
    """A Deployment or CronJob."""

    metadata: Metadata
    spec: PodSpec

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


def other_controllers(installation: Installation) -> Iterator[Finding]:
    """Look for a descheduler that evicts by node affinity, and for a Karpenter that is too old."""
    deployments = _listed(
        installation, DEPLOYMENTS, ObjectList[Deployment], installation.deployments
    )
    workloads = [_Workload(each.metadata, each.spec.template.spec) for each in deployments]
    try:
        listed = installation.read(_CRON_JOBS, ObjectList[CronJob], limit=str(MOST_WORKLOADS))
        cron_jobs = _listed(installation, _CRON_JOBS, ObjectList[CronJob], listed.items)
    except ApiError as error:
        cron_jobs = []
        if error.status != HTTPStatus.NOT_FOUND:
            yield warning(
                f"a descheduler that runs as a CronJob is not looked for: {error.message}",
                "run it as somebody who may list CronJobs",
            )
    workloads += [
        _Workload(each.metadata, each.spec.job_template.spec.template.spec) for each in cron_jobs
    ]
    deschedulers = [each for each in workloads if each.runs(_DESCHEDULER)]
    karpenters = [each for each in workloads if each.runs(_KARPENTER)]
    for each in deschedulers:
        yield from _descheduler(installation, each)
    for each in karpenters:
        yield _karpenter(each)
    # A provider may run it where nobody sees its Deployment.
    if not karpenters and installation.find("/apis/karpenter.sh", Part) is not None:
        yield note(
            "Karpenter runs where no Deployment of it can be seen, and its version is unknown:"
            " before 1.5 it adds no node for a pod that prefers nodes by hostname, as advice does",
            "see docs/autoscalers.md",
        )
    elif not deschedulers and not karpenters:
        yield ok("no descheduler and no Karpenter is seen")


def _listed(
    installation: Installation, path: str, kind: type[ObjectList[_Item]], first: Sequence[_Item]
) -> list[_Item]:
    """Return the first objects of a kind, and those that bear the label of a program."""
    found = [*first]
    for program in (_DESCHEDULER, _KARPENTER):
        selector = f"{_NAME_LABEL}={program}"
        found += installation.read(path, kind, labelSelector=selector).items
    return list({each.metadata.key: each for each in found}.values())


def _descheduler(installation: Installation, found: _Workload) -> Iterator[Finding]:
    """Yield how a descheduler evicts pods by their node affinity."""
    names = [each.config_map.name for each in found.spec.volumes if each.config_map is not None]
    policies: list[_DeschedulerPolicy] = []
    for name in names:
        path = f"/api/v1/namespaces/{found.metadata.namespace}/configmaps/{name}"
        try:
            data = installation.read(path, ConfigMap).data
            policies += [policy for text in data.values() for policy in _policies_in(text)]
        except ApiError as error:
            yield _unknown(found, f"ConfigMap {name} cannot be read: {error.message}")
            return
        except (InvalidFileError, msgspec.ValidationError) as error:
            yield _unknown(found, f"ConfigMap {name} makes no sense: {str(error).splitlines()[0]}")
            return
    if not policies:
        yield _unknown(found, "it mounts no ConfigMap with its policy")
        return
    kinds = frozenset(kind for policy in policies for kind in policy.affinity_types)
    yield from _evictions(found, kinds)


def _policies_in(text: str) -> Iterator[_DeschedulerPolicy]:
    """Yield the policies in a file; it may hold anything."""
    if not any(kind in text for kind in _POLICY_KINDS):
        return
    for document in read_documents(text.encode(), "policy"):
        value = document.value
        if isinstance(value, dict) and value.get("kind") in _POLICY_KINDS:
            yield msgspec.convert(value, _DeschedulerPolicy)


def _unknown(found: _Workload, why: str) -> Finding:
    name = found.metadata.key
    return warning(
        f"it is unknown whether descheduler {name} evicts pods by node affinity: {why}",
        f"look for `{_PLUGIN}` in its policy, and see docs/autoscalers.md",
    )


def _evictions(found: _Workload, kinds: frozenset[str]) -> Iterator[Finding]:
    name = found.metadata.key
    if _PREFERRED in kinds:
        yield warning(
            f"descheduler {name} evicts running pods by preferred node affinity: a pod that does"
            " not run on one of the best nodes of its advice is evicted while one of them has"
            " room, again and again",
            f"remove `{_PREFERRED}` from `nodeAffinityType` of `{_PLUGIN}`, or have policies decide"
            " `at: Binding`, which writes no preferred terms",
        )
    if _REQUIRED in kinds:
        yield note(
            f"descheduler {name} evicts running pods whose required node affinity no longer holds:"
            " a filter that promises a label which changes ends pods",
            "`stowplan lint` names such filters",
        )
    if not kinds:
        yield ok(f"descheduler {name} evicts no pods by node affinity")


def _karpenter(found: _Workload) -> Finding:
    name, version = found.metadata.key, found.version
    if version is not None and version >= _FIRST_THAT_RELAXES:
        return ok(f"Karpenter {name} is {version[0]}.{version[1]}")
    what = "of unknown version" if version is None else f"{version[0]}.{version[1]}"
    return (note if version is None else warning)(
        f"Karpenter {name} is {what}: before 1.5 it adds no node for a pod that prefers nodes by"
        " hostname, as advice does",
        "upgrade it to 1.5, or have policies decide `at: Binding`, which writes no such terms",
    )
