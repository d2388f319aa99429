"""What is listed and watched of a live cluster, as data.

PriorityClasses are not: the API server writes their value into `spec.priority` of a pod before it
asks any webhook, and nothing reads more of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.view import Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One kind of objects.

    Attributes:
        name: what people call them, unique.
        path: where they are listed and watched, in all namespaces.
        group: their API group, empty for the core group.
        kind: their kind.
        domain: what grows old with them; None where no rule about nodes reads it.
        required: whether nothing can be decided without them. Other kinds may be missing, come
            later, and go.
        field_selector: which of them; empty for all.
    """

    name: str
    path: str
    group: str = ""
    kind: str
    domain: Domain | None = None
    required: bool = False
    field_selector: str = ""


WATCHED: tuple[Watched, ...] = (
    Watched(
        name="nodes",
        path="/api/v1/nodes",
        kind="Node",
        domain=Domain.NODES,
        required=True,
    ),
    Watched(
        name="pods",
        path="/api/v1/pods",
        kind="Pod",
        domain=Domain.PODS,
        required=True,
        # One that finishes leaves the selection, and is told of as deleted.
        field_selector="status.phase!=Succeeded,status.phase!=Failed",
    ),
    Watched(
        name="namespaces",
        path="/api/v1/namespaces",
        kind="Namespace",
        required=True,
    ),
    Watched(
        name="elasticquotas.scheduling.x-k8s.io",
        path="/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas",
        group="scheduling.x-k8s.io",
        kind="ElasticQuota",
    ),
    Watched(
        name="elasticquotas.scheduling.sigs.k8s.io",
        path="/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas",
        group="scheduling.sigs.k8s.io",
        kind="ElasticQuota",
    ),
    Watched(
        name="nodemetrics.slo.koordinator.sh",
        path="/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
        group="slo.koordinator.sh",
        kind="NodeMetric",
        domain=Domain.METRICS,
    ),
    Watched(
        name="noderesourcetopologies.topology.node.k8s.io",
        path="/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
        group="topology.node.k8s.io",
        kind="NodeResourceTopology",
        domain=Domain.TOPOLOGY,
    ),
    Watched(
        name="appgroups.appgroup.diktyo.x-k8s.io",
        path="/apis/appgroup.diktyo.x-k8s.io/v1alpha1/appgroups",
        group="appgroup.diktyo.x-k8s.io",
        kind="AppGroup",
        domain=Domain.TOPOLOGY,
    ),
    Watched(
        name="networktopologies.networktopology.diktyo.x-k8s.io",
        path="/apis/networktopology.diktyo.x-k8s.io/v1alpha1/networktopologies",
        group="networktopology.diktyo.x-k8s.io",
        kind="NetworkTopology",
        domain=Domain.TOPOLOGY,
    ),
    Watched(
        name="nodediskiostats.diskio.x-k8s.io",
        path="/apis/diskio.x-k8s.io/v1alpha1/nodediskiostats",
        group="diskio.x-k8s.io",
        kind="NodeDiskIOStats",
        domain=Domain.TOPOLOGY,
    ),
)
