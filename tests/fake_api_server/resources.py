"""Which resources exist, and which of them a URL path means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tests.fake_api_server.statuses import ApiFault


class Key(NamedTuple):
    """Where an object stands in its collection; `namespace` is empty for a cluster's own."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object in one version of its API.

    Attributes:
        group: the API group; empty for the core.
        namespaced: its objects live in namespaces.
        custom: its objects keep their kind and apiVersion in lists, as custom resources do.
        optional: clusters exist that do not have it; it may come and go.
        has_status: `/status` is written apart from the rest.
        actions: further subresources, which are posted to.
        read_only: it can only be read and not watched, as the metrics API.
        blind_update: a PUT without a resourceVersion is accepted.
        fields: what field selectors may name beside the name and the namespace.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    custom: bool = False
    optional: bool = False
    has_status: bool = False
    actions: tuple[str, ...] = ()
    read_only: bool = False
    blind_update: bool = True
    fields: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """`pods`, or `plural.group` as custom resource definitions are named."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The path its API is served under."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def verbs(self) -> list[str]:
        """What discovery says can be done with it, sorted."""
        if self.read_only:
            return ["get", "list"]
        return ["create", "delete", "get", "list", "patch", "update", "watch"]


def _custom(group: str, kind: str, plural: str, *, namespaced: bool) -> Resource:
    return Resource(
        group,
        "v1alpha1",
        kind,
        plural,
        namespaced=namespaced,
        custom=True,
        optional=True,
        has_status=True,
        blind_update=False,
    )


_ADMISSION = "admissionregistration.k8s.io"
_POD_FIELDS = ("spec.nodeName", "spec.schedulerName", "status.phase")

# Where a name means several, the first is taken: `nodes` is the core's.
RESOURCES: tuple[Resource, ...] = (
    Resource("", "v1", "Pod", "pods", has_status=True, actions=("eviction",), fields=_POD_FIELDS),
    Resource(
        "",
        "v1",
        "Node",
        "nodes",
        namespaced=False,
        has_status=True,
        fields=("spec.unschedulable",),
    ),
    Resource(
        "",
        "v1",
        "Namespace",
        "namespaces",
        namespaced=False,
        has_status=True,
        fields=("status.phase",),
    ),
    Resource("", "v1", "Secret", "secrets", fields=("type",)),
    Resource("", "v1", "ConfigMap", "configmaps"),
    Resource("", "v1", "Event", "events", fields=("reason", "type")),
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", has_status=True),
    Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False),
    Resource("apps", "v1", "Deployment", "deployments", has_status=True),
    Resource("apps", "v1", "StatefulSet", "statefulsets", has_status=True),
    Resource("coordination.k8s.io", "v1", "Lease", "leases", blind_update=False),
    Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", has_status=True),
    Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
    Resource(
        _ADMISSION,
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        blind_update=False,
    ),
    Resource(
        _ADMISSION,
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        blind_update=False,
    ),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        has_status=True,
        blind_update=False,
    ),
    _custom("scheduling.x-k8s.io", "ElasticQuota", "elasticquotas", namespaced=True),
    _custom("scheduling.sigs.k8s.io", "ElasticQuota", "elasticquotas", namespaced=True),
    _custom("scheduling.x-k8s.io", "PodGroup", "podgroups", namespaced=True),
    _custom("scheduling.sigs.k8s.io", "PodGroup", "podgroups", namespaced=True),
    _custom("slo.koordinator.sh", "NodeMetric", "nodemetrics", namespaced=False),
    _custom("stowplan.dev", "PlacementPolicy", "placementpolicies", namespaced=False),
    _custom(
        "stowplan.dev",
        "NamespacedPlacementPolicy",
        "namespacedplacementpolicies",
        namespaced=True,
    ),
    Resource(
        "metrics.k8s.io",
        "v1beta1",
        "NodeMetrics",
        "nodes",
        namespaced=False,
        custom=True,
        optional=True,
        read_only=True,
    ),
    Resource(
        "metrics.k8s.io",
        "v1beta1",
        "PodMetrics",
        "pods",
        custom=True,
        optional=True,
        read_only=True,
    ),
)


def resource_named(name: str, among: Iterable[Resource] = RESOURCES) -> Resource:
    """Return the resource of a plural, a kind, or a full name as `nodes.metrics.k8s.io`."""
    for resource in among:
        if name in {resource.plural, resource.kind, resource.full_name}:
            return resource
    raise LookupError(f"no resource `{name}` is installed")


@dataclass(frozen=True, slots=True)
class Target:
    """What a path points at: a collection, an object, or its status.

    Attributes:
        namespace: the one asked for; empty means all, or none.
        name: the object's; empty means the collection.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Where the object stands in its collection."""
        return Key(self.namespace, self.name)

    def missing(self) -> ApiFault:
        """Return the answer for an object that does not exist."""
        return self.refusal(404, f'{self.resource.full_name} "{self.name}" not found')

    def refusal(self, code: int, message: str, reason: str = "") -> ApiFault:
        """Return a refusal that names the object."""
        details = {"name": self.name, "group": self.resource.group, "kind": self.resource.plural}
        return ApiFault(
            code, message, reason=reason, details={k: v for k, v in details.items() if v}
        )


def target_of(path: str, installed: Iterable[Resource]) -> Target | None:
    """Return what `path` points at among the installed resources; None for nothing known."""
    for resource in installed:
        if not path.startswith(resource.root + "/"):
            continue
        parts = path.removeprefix(resource.root + "/").split("/")
        namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces" and resource.namespaced:
            namespace, parts = parts[1], parts[2:]
        if parts[0] == resource.plural and len(parts) <= 3:  # plural, name, subresource
            name, subresource = (*parts[1:], "", "")[:2]
            served = {"", *(["status"] if resource.has_status else []), *resource.actions}
            if subresource in served:
                return Target(resource, namespace, name, subresource)
    return None
