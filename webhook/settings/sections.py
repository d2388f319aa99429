"""Every section of the settings, with the meaning, the default and the bounds of each value."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    IPvAnyAddress,
    field_validator,
    model_validator,
)

from engine.eviction import DEFAULT_IN_FLIGHT_PERCENT
from engine.gang import DEFAULT_RESERVE_AFTER_SECONDS
from engine.model.selectors import parse_selector_text
from engine.pipeline import SYSTEM_NAMESPACES, Scope
from engine.quota import (
    DEFAULT_RESERVATION_SECONDS,
    Borrowing,
    PodAccounting,
    QuotaMode,
    QuotaRules,
    StatusCounts,
    UnlistedResources,
)
from engine.quota.queueing import QuotaCohort
from engine.release import QueueOrder, QueueSortName
from webhook.cluster.usage import DEFAULT_CPU_QUERY, DEFAULT_MEMORY_QUERY
from webhook.cluster.watch.source_status import DEFAULT_STALE_SECONDS
from webhook.placement.held_pods import DEFAULT_HOLD_MAX, DEFAULT_HOLD_SECONDS
from webhook.placement.live_policies import PlacementMode, WhenWorse


def _split_at(separator: str) -> Callable[[object], object]:
    """Validator that splits a text into a list, for values from the environment."""

    def split(value: object) -> object:
        return (
            [part for part in value.split(separator) if part] if isinstance(value, str) else value
        )

    return split


Paths = Annotated[tuple[Path, ...], BeforeValidator(_split_at(os.pathsep))]
Names = Annotated[tuple[str, ...], BeforeValidator(_split_at(","))]
Addresses = Annotated[tuple[IPvAnyAddress, ...], BeforeValidator(_split_at(","))]
Port = Annotated[int, Field(ge=0, le=65_535)]


class BindingSettings(BaseModel):
    """Decisions at the moment of binding."""

    binding: bool = Field(
        default=False,
        description="Answer /bind: the API server asks, through a webhook on `pods/binding`, where"
        " the scheduler binds a pod to; policies with `placement: { at: Binding }` may name a"
        " better node. The leader alone decides. Without it such policies move no pod.",
    )
    binding_namespaces: str = Field(
        default="stowplan.dev/placement!=disabled",
        description="Label selector of the namespaces whose bindings the API server asks about,"
        " as in the webhook configuration. Bindings in other namespaces without our"
        " answer have not escaped.",
    )

    @field_validator("binding_namespaces")
    @classmethod
    def _selects_namespaces(cls, text: str) -> str:
        parse_selector_text(text)
        return text


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


class ControlSettings(BaseModel):
    """How the API server finds the leader."""

    leader_service: str | None = Field(
        default=None,
        description="Service without a selector whose EndpointSlices the leader keeps, so that it"
        " leads to the leader. Without it there is none.",
    )
    pod_ips: Addresses = Field(
        default=(),
        description="Addresses of this process, at most one of each IP family, which the leader"
        " writes there; separated by commas in the environment.",
    )

    @model_validator(mode="after")
    def _service_and_address_go_together(self) -> Self:
        if self.leader_service and not self.pod_ips:
            raise ValueError("the leader's Service needs an address of this pod: see `--pod-ips`")
        return self


class PlacementSettings(BaseModel):
    """Policies, the pods that they place, and what is counted of where those land."""

    policies: Paths = Field(
        default=(),
        description="Policy files, or folders of them; separated by colons in the environment.",
    )
    policy_resources: bool = Field(
        default=False,
        description="Take policies from the API of a live cluster too: PlacementPolicy and"
        " NamespacedPlacementPolicy. A file comes before a resource of its name.",
    )
    placement_mode: PlacementMode = Field(
        default="Enforce",
        description="Enforce: each policy acts by its own mode; Audit: all policies only report"
        " what they would do; Off: pods are not reviewed.",
    )
    scheduler_names: Names = Field(
        default=("default-scheduler",),
        description="Schedulers whose pods are advised; separated by commas in the environment.",
    )
    excluded_namespaces: Names = Field(
        default=SYSTEM_NAMESPACES,
        description="Namespaces whose pods are not reviewed; separated by commas in the"
        " environment.",
    )
    percentage_of_nodes_to_score: int = Field(
        default=0,
        ge=0,
        le=100,
        description="The same as in the configuration of the scheduler: the larger its sample of"
        " the nodes, the fewer nodes advice has to name. 0: by the number of nodes, as"
        " in the scheduler.",
    )
    outcome: bool = Field(
        default=True,
        description="Count where pods are bound: for pods decided at binding, their node against"
        " the scheduler's; for advised pods, whether they landed there. The leader"
        " does this.",
    )
    outcome_least_pods: int = Field(
        default=100,
        ge=1,
        description="Least number of pods of a policy decided at binding in an hour before it can"
        " be found to make things worse.",
    )
    outcome_margin: int = Field(
        default=5,
        ge=1,
        le=100,
        description="A policy makes things worse if its pods have this many points less (of 100,"
        " by its own scores) than on the nodes that the scheduler took, or if this"
        " many percent more of them are on hot nodes.",
    )
    outcome_hot_percent: int = Field(
        default=80,
        ge=1,
        le=100,
        description="Usage of CPU or memory, in percent of allocatable, above which a node is hot.",
    )
    outcome_when_worse: WhenWorse = Field(
        default="Report",
        description="What happens when a policy makes things worse. Report: an alert and an"
        " Event. Audit: also no replica acts on it until a person lifts that or"
        " changes the policy. A policy that promises something, or that denies, is"
        " only reported.",
    )

    @property
    def takes_policy_resources(self) -> bool:
        """Whether policies of the API are taken."""
        return self.policy_resources and self.placement_mode != "Off"

    def scope(self) -> Scope:
        """Pods that policies place."""
        return Scope(
            scheduler_names=self.scheduler_names, excluded_namespaces=self.excluded_namespaces
        )


QuotaRollout = Literal["All", "Labelled", "Automatic"]


class QuotaSettings(BaseModel):
    """ElasticQuota: how it is counted and enforced."""

    quota_mode: QuotaMode = Field(
        default="Enforce",
        description="What happens when an ElasticQuota is exceeded. Enforce: the pod is denied."
        " Queue: it waits for room, or is denied while nobody releases pods. Audit: a"
        " warning. Off: nothing.",
    )
    quota_rollout: QuotaRollout = Field(
        default="All",
        description="Namespaces whose pods the API server asks about. Automatic: those with a"
        " quota, kept by replicas in the first of the webhook configurations. All,"
        " Labelled: as the configuration says.",
    )
    quota_unlisted_resources: UnlistedResources = Field(
        default="Unlimited",
        description="Limit of resources that a quota's max does not name; Zero is the rule of"
        " scheduler-plugins.",
    )
    quota_count_pods: PodAccounting = Field(
        default="NonTerminal",
        description="Pods that count. NonTerminal: all that have not finished. Scheduled, a rule"
        " of scheduler-plugins: only those bound to a node, so that a burst may exceed"
        " max.",
    )
    quota_borrowing: Borrowing = Field(
        default="Off",
        description="AggregateMin, a rule of scheduler-plugins: all namespaces with quotas"
        " together are also limited to the sum of their min.",
    )
    quota_cohort: QuotaCohort = Field(
        default="Nodes",
        description="What quotas of mode Queue share and borrow from beyond min: what nodes offer"
        " (Nodes), or the sum of all min, as with scheduler-plugins (SumOfMin).",
    )
    quota_cohort_nodes: str = Field(
        default="",
        description="Label selector of the nodes that quotas share, such as"
        " `!node-role.kubernetes.io/control-plane`; all by default. Nodes that are cordoned or not"
        " ready never count.",
    )
    quota_status_counts: StatusCounts = Field(
        default="Running", description="Pods that count in `status.used` of a quota."
    )
    quota_reservation_seconds: int = Field(
        default=DEFAULT_RESERVATION_SECONDS,
        gt=60,
        description="Time for which an admitted pod holds quota until it is seen; longer than the"
        " request timeout of the API server, 60 s by default.",
    )

    @field_validator("quota_cohort_nodes")
    @classmethod
    def _is_a_selector(cls, text: str) -> str:
        parse_selector_text(text)
        return text

    @property
    def keeps_quota_namespaces(self) -> bool:
        """Whether the API server is to ask about namespaces with a quota alone."""
        return self.quota_rollout == "Automatic" and self.quota_mode != "Off"

    def quota_rules(self) -> QuotaRules:
        """Rules by which quotas are enforced."""
        return QuotaRules(
            unlisted_resources=self.quota_unlisted_resources,
            count_pods=self.quota_count_pods,
            borrowing=self.quota_borrowing,
        )


class HeldPodSettings(BaseModel):
    """Holding pods, and releasing them."""

    hold: bool = Field(
        default=False,
        description="Hold pods with a scheduling gate while they wait for quota or their gang,"
        " and those of policies with `placement: { releaseInOrder: true }` or"
        " `preemption`. Without it, and while nobody releases pods, such pods wait for"
        " nothing.",
    )
    hold_max: int = Field(
        default=DEFAULT_HOLD_MAX,
        ge=0,
        description="Approximate maximum number of held pods; 0: none. One namespace may hold"
        " half of it, the next one half of the rest, and so on; each of n at least 1/(4n).",
    )
    hold_seconds: int = Field(
        default=DEFAULT_HOLD_SECONDS,
        ge=10,
        le=3_600,
        description="Longest time for which a pod is held, except for quota or its gang. Then it"
        " is overdue, and half a minute later no further pods are held.",
    )
    queue_sort: QueueSortName = Field(
        default="PrioritySort",
        description="Order in which held pods are released: a queue sort of kube-scheduler"
        " (PrioritySort) or scheduler-plugins; then by creation and uid.",
    )
    queue_sort_namespaces: Names = Field(
        default=("default",),
        description="Namespaces in which TopologicalSort searches AppGroups, in order; separated"
        " by commas in the environment.",
    )
    reclaim_after_seconds: int = Field(
        default=60,
        ge=0,
        le=3_600,
        description="Time after which pods of quotas above their min are evicted for a pod that"
        " waits within the min of its quota, if its quota has the annotation"
        " `stowplan.dev/reclaim`: On. With DryRun, the default, this is only reported.",
    )
    hard_reclaim_namespaces: Names = Field(
        default=(),
        description="Namespaces whose quotas may have the annotation `stowplan.dev/reclaim`: Hard:"
        " where nothing else makes room for a pod within their min, pods above the min of other"
        " quotas are deleted against their PodDisruptionBudgets. Elsewhere Hard is On; separated"
        " by commas in the environment.",
    )
    evictions_in_flight_percent: int = Field(
        default=DEFAULT_IN_FLIGHT_PERCENT,
        ge=0,
        le=100,
        description="Percentage of the running pods of a namespace that may be evicted for others"
        " at a time, but at least 10 pods.",
    )
    preemption: bool = Field(
        default=False,
        description="Evict pods of lower priority for held pods that no node takes, where their"
        ' policy has `placement: { preemption: "On" }`. With DryRun there, it is only reported.',
    )
    gang_reserve_after_seconds: int = Field(
        default=DEFAULT_RESERVE_AFTER_SECONDS,
        ge=0,
        le=3_600,
        description="Time after which a gang that finds no room for all its members reserves it as"
        " it comes free, one gang at a time.",
    )
    recreate_gangs: bool = Field(
        default=False,
        description="Evict the members of a gang of which too few were bound in time, where it has"
        " the annotation `stowplan.dev/on-gang-failure`: Recreate, so that their owners create them"
        " again, held. Without it they are kept.",
    )

    @property
    def preempts(self) -> bool:
        """Whether pods of lower priority may be evicted, as far as policies say so."""
        return self.hold and self.preemption

    def queue_order(self) -> QueueOrder:
        """Order of held pods."""
        return QueueOrder(sort=self.queue_sort, app_group_namespaces=self.queue_sort_namespaces)


class ServerSettings(BaseModel):
    """What it listens on, whom it believes, how much it takes at a time."""

    host: str = Field(
        default="::",
        description="Address the webhook listens on; `::` is every IPv4 and IPv6 address of this"
        " machine, `0.0.0.0` every IPv4 address.",
    )
    port: Port = Field(default=9443, description="Port of the webhook; 0 takes a free one.")
    metrics_host: str = Field(
        default="127.0.0.1",
        description="Address of metrics and debug pages; plain HTTP.",
    )
    metrics_port: Port = Field(
        default=9444, description="Port of metrics and debug pages; 0 takes a free one."
    )
    probe_port: Port | None = Field(
        default=None,
        description="Additional port for `/livez`, `/readyz` and `/statusz`, over TLS and without"
        " a client certificate, which a kubelet does not have; 0 takes a free one.",
    )
    dashboard_port: Port | None = Field(
        default=None,
        description="Port of the dashboard, over TLS; 0 takes a free one. Without it there is no"
        " dashboard. On a live cluster it requires a bearer token and shows what its"
        " user may read.",
    )
    debug_pages: bool = Field(
        default=True,
        description="Serve /debug/decisions, /debug/outcome and /debug/queue. On a live cluster"
        " they require a bearer token of a user who may `get` these nonResourceURLs.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM file with the serving certificate and its chain. Without it or a Secret,"
        " a self-signed certificate is created at each start.",
    )
    tls_key: Path | None = Field(default=None, description="PEM file with its private key.")
    certificate_secret: str | None = Field(
        default=None,
        description="Secret in which a certificate is created and renewed. One that others put"
        " there is only served.",
    )
    certificate_names: Names = Field(
        default=(),
        description="Host names and addresses of the certificate that is created; separated by"
        " commas in the environment.",
    )
    webhook_configurations: Names = Field(
        default=("stowplan",),
        description="Names of the Mutating- and ValidatingWebhookConfigurations whose caBundle"
        " follows the Secret; separated by commas in the environment.",
    )
    client_ca: Path | None = Field(
        default=None,
        description="PEM file with the authorities of accepted client certificates. Without it,"
        " every client is accepted.",
    )
    client_allowed_names: Names = Field(
        default=(),
        description="Common names, DNS names or URIs of client certificates that may send reviews;"
        " separated by commas in the environment. Without any: every certificate of the client"
        " authorities.",
    )
    max_in_flight: int = Field(
        default=128,
        gt=0,
        description="Maximum number of concurrent reviews of one kind; an equal share of it is left"
        " to each namespace. Beyond it, or after 20 ms in line in an overload, a pod is admitted"
        " without advice; quota is left to the API server's failure policy.",
    )
    shutdown_delay_seconds: float = Field(
        default=0.0,
        ge=0,
        description="Minimum time to keep serving, not ready, after SIGTERM, because callers"
        " learn of a termination late. A preStop hook that sleeps does the same.",
    )
    drain_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Maximum time to serve open connections after that.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of messages that are logged."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="Format of log lines.")

    @model_validator(mode="after")
    def _certificate_and_key_go_together(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError(
                "a certificate and its key are given together, or neither: see `--tls-cert` and"
                " `--tls-key`"
            )
        return self

    @model_validator(mode="after")
    def _names_need_an_authority(self) -> Self:
        if self.client_allowed_names and self.client_ca is None:
            raise ValueError(
                "names of clients are believed only where an authority has signed them: see"
                " `--client-ca`"
            )
        return self
