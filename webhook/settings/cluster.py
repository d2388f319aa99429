"""Settings of the cluster: where knowledge of it comes from, and when it is too old."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field

from webhook.cluster.usage.prometheus import DEFAULT_CPU_QUERY, DEFAULT_MEMORY_QUERY
from webhook.cluster.watch.source_status import DEFAULT_STALE_SECONDS
from webhook.settings.values import Paths

_SHORTEST_SILENCE_SECONDS: Final = 120  # a quiet watch sends a bookmark about once a minute


class ClusterSettings(BaseModel):
    """The cluster, live or recorded, and the usage of its nodes where Koordinator measures none."""

    cluster: Paths = Field(
        default=(),
        description="Files, or folders of them, with a recorded cluster instead of a live one;"
        " separated by colons in the environment.",
    )
    kubeconfig: Path | None = Field(
        default=None,
        description="Kubeconfig for the live cluster. Without it: the service account of the pod,"
        " else $KUBECONFIG or the default path.",
    )
    context: str | None = Field(
        default=None, description="Context of the kubeconfig. Without it: the current one."
    )
    namespace: str = Field(
        default="stowplan-system",
        description="Namespace of the installation, with its Secret and its Lease.",
    )
    lease: str = Field(
        default="stowplan",
        description="Lease for leader election: the leader runs the controllers for all replicas.",
    )
    stale_nodes_seconds: float = Field(
        default=DEFAULT_STALE_SECONDS,
        ge=_SHORTEST_SILENCE_SECONDS,
        description="Age of node data after which rules that read it abstain.",
    )
    stale_pods_seconds: float = Field(
        default=DEFAULT_STALE_SECONDS,
        ge=_SHORTEST_SILENCE_SECONDS,
        description="Age of pod data after which rules that read sums over pods abstain.",
    )
    stale_usage_seconds: float = Field(
        default=DEFAULT_STALE_SECONDS,
        gt=0,
        description="Age of usage data after which rules that read it abstain.",
    )
    usage_poll_seconds: float = Field(
        default=15.0, ge=5, description="Interval between two requests for the usage of nodes."
    )
    usage_of_pods: bool = Field(
        default=False,
        description="Also request the usage of each pod from metrics.k8s.io: exact where pods come"
        " and go, at some 10 us for each pod.",
    )
    prometheus_url: str | None = Field(
        default=None,
        pattern="^https?://",
        description="Prometheus to query instead of metrics.k8s.io, such as"
        " `http://prometheus:9090`.",
    )
    prometheus_cpu_query: str = Field(
        default=DEFAULT_CPU_QUERY, description="PromQL for the cores that each node uses."
    )
    prometheus_memory_query: str = Field(
        default=DEFAULT_MEMORY_QUERY, description="PromQL for the bytes that each node uses."
    )
    prometheus_node_label: str = Field(
        default="node", description="Label of the results that holds the node name."
    )
    prometheus_window_seconds: int = Field(
        default=120,
        gt=0,
        description="Range of the queries: the usage of pods bound within it is estimated.",
    )
    prometheus_token_file: Path | None = Field(
        default=None, description="File with a bearer token for Prometheus."
    )
    prometheus_ca_file: Path | None = Field(
        default=None,
        description="PEM file with the authorities that Prometheus's certificate is verified by.",
    )
