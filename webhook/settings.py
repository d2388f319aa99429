"""Every setting of the webhook, declared once.

A value is taken from the command line, else from the environment (`STOWPLAN_<NAME>`), else from
the configuration file, else from the default here. The help of the command line shows these
descriptions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from engine.model.selector_text import parse_selector_text
from engine.pipeline import SYSTEM_NAMESPACES, Scope
from engine.queue import QueueOrder, QueueSortName
from engine.quota import (
    DEFAULT_RESERVATION_SECONDS,
    Borrowing,
    PodAccounting,
    QuotaMode,
    QuotaRules,
    StatusCounts,
    UnlistedResources,
)
from engine.quota.queueing import NodeSelection, QueueRules, QuotaCohort
from engine.view import DEFAULT_ASSUMED_SECONDS
from webhook.cluster.usage.prometheus import DEFAULT_CPU_QUERY, DEFAULT_MEMORY_QUERY
from webhook.cluster.watch.source_status import DEFAULT_STALE_SECONDS
from webhook.placement.held_pods import DEFAULT_HOLD_MAX, DEFAULT_HOLD_SECONDS
from webhook.placement.live_policies import PlacementMode, WhenWorse
from webhook.settings_sources import (
    ENVIRONMENT_PREFIX,
    ConfigurationFile,
    SettingsError,
    problems_of,
    split_at,
    without_service_links,
)

_MEBIBYTE = 1024 * 1024
_SHORTEST_SILENCE_SECONDS = 120  # a quiet watch sends a bookmark about once a minute

Paths = Annotated[tuple[Path, ...], BeforeValidator(split_at(os.pathsep))]
Names = Annotated[tuple[str, ...], BeforeValidator(split_at(","))]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseSettings):
    """Settings of `stowplan serve`.

    Raises:
        SettingsError: a value cannot be used; names the flag, variable or line it came from.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        enable_decoding=False,
    )

    config: Path | None = Field(
        default=None,
        description="YAML file with any of these settings by name, such as `max_in_flight: 64`.",
    )
    policies: Paths = Field(
        default=(),
        description="Policy files, or folders of them; separated by colons in the environment.",
    )
    # The cluster.
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
    assumed_seconds: int = Field(
        default=DEFAULT_ASSUMED_SECONDS,
        gt=0,
        description="Time for which an advised pod counts on its node before it is bound.",
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

    # Usage of nodes, where Koordinator does not measure it.
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

    # The server.
    host: str = Field(default="0.0.0.0", description="Address the webhook listens on.")  # noqa: S104 - it is called from other machines
    port: Port = Field(default=9443, description="Port of the webhook; 0 takes a free one.")
    metrics_host: str = Field(
        default="127.0.0.1",
        description="Address of metrics and debug pages; plain HTTP.",
    )
    metrics_port: Port = Field(
        default=9444, description="Port of metrics and debug pages; 0 takes a free one."
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM file with the serving certificate and its chain. Without it or a Secret,"
        " a self-signed certificate is made at each start.",
    )
    tls_key: Path | None = Field(default=None, description="PEM file with its private key.")
    certificate_secret: str | None = Field(
        default=None,
        description="Secret in which a certificate is created and renewed in time; one that was"
        " put there by others is only served.",
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
    probe_port: Port | None = Field(
        default=None,
        description="Additional port for `/livez`, `/readyz` and `/statusz` alone, over TLS and"
        " without a client certificate, which a kubelet does not have; 0 takes a free one.",
    )
    max_body_bytes: int = Field(
        default=7 * _MEBIBYTE, gt=0, description="Largest accepted body of a review, in bytes."
    )
    max_connections: int = Field(
        default=1024,
        gt=0,
        description="Most connections at a time. Beyond it those that have brought no review are"
        " closed, the oldest first.",
    )
    max_in_flight: int = Field(
        default=128,
        gt=0,
        description="Most reviews of one kind at a time. Beyond it a pod is admitted without"
        " advice, and quota is left to the API server's failure policy.",
    )
    default_timeout_seconds: float = Field(
        default=10.0,
        gt=0,
        description="Timeout of a review if the caller sends none (`?timeout=`).",
    )
    deadline_fraction: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="Part of the timeout after which the pod is admitted without advice.",
    )
    placement_mode: PlacementMode = Field(
        default="Enforce",
        description="Enforce: each policy acts by its own mode; Audit: all policies only report"
        " what they would do; Off: pods are not reviewed.",
    )
    quota_mode: QuotaMode = Field(
        default="Enforce",
        description="Effect of an exceeded ElasticQuota: denial (Enforce), a wait until there is"
        " room (Queue; denial while nobody demonstrably releases pods), a warning (Audit), or none"
        " (Off).",
    )
    quota_unlisted_resources: UnlistedResources = Field(
        default="Unlimited",
        description="Limit of resources that a quota's max does not name; Zero is the rule of"
        " scheduler-plugins.",
    )
    quota_count_pods: PodAccounting = Field(
        default="NonTerminal",
        description="Pods that hold quota: all that have not finished or, as with"
        " scheduler-plugins, only those bound to a node, so that a burst may exceed max.",
    )
    quota_borrowing: Borrowing = Field(
        default="Off",
        description="AggregateMin, a rule of scheduler-plugins: all namespaces with quotas"
        " together are also limited to the sum of their min.",
    )
    quota_cohort: QuotaCohort = Field(
        default="Nodes",
        description="What the quotas of mode Queue share, and borrow from beyond min: what nodes"
        " offer (Nodes), or the sum of all min, as with scheduler-plugins (SumOfMin).",
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
        description="Time for which an admitted pod holds quota before it is observed; longer than"
        " the request timeout of the API server, which is 60 s by default.",
    )
    hold: bool = Field(
        default=False,
        description="Hold the pods of policies with `placement: { at: Release }`, and those that"
        " wait for quota, by a scheduling gate until they are decided and released. Without it, and"
        " while nobody demonstrably releases pods, such pods are advised like others.",
    )
    hold_max: int = Field(
        default=DEFAULT_HOLD_MAX,
        ge=0,
        description="Most pods held at a time, about; 0 for none. Beyond it pods are advised: each"
        " held pod costs the scheduler and every replica some memory.",
    )
    hold_seconds: int = Field(
        default=DEFAULT_HOLD_SECONDS,
        ge=10,
        le=3_600,
        description="Longest time for which a pod is held that waits neither for quota nor for its"
        " gang. Then it counts as overdue: a release is anybody's business, and half a minute later"
        " no further pods are held.",
    )
    queue_sort: QueueSortName = Field(
        default="PrioritySort",
        description="Order in which held pods are released, as a queue sort of kube-scheduler"
        " (PrioritySort) or scheduler-plugins; then by creation and uid.",
    )
    queue_sort_namespaces: Names = Field(
        default=("default",),
        description="Namespaces that TopologicalSort searches for AppGroups, in order; separated by"
        " commas in the environment.",
    )
    release_in_order: bool = Field(
        default=False,
        description="Release a held pod only when the one before it is bound, which is slow: the"
        " scheduler sorts pods that are released together again, by priority and creation.",
    )
    reclaim_after_seconds: int = Field(
        default=60,
        ge=0,
        le=3_600,
        description="Time for which a pod within its quota's min waits before pods of other quotas,"
        " which are above their min, are evicted for it; where its quota has the annotation"
        " `stowplan.dev/reclaim`: On. With DryRun, the default there, it is only reported.",
    )
    preemption: bool = Field(
        default=False,
        description="Evict pods of lower priority for held pods that no node takes, where their"
        " policy has `placement: { preemption: On }`. With DryRun there, it is only reported.",
    )
    recreate_gangs: bool = Field(
        default=False,
        description="Evict the members of a gang of which too few were bound in time, where it has"
        " the annotation `stowplan.dev/on-gang-failure`: Recreate, so that their owners create them"
        " again, held. Without it they are kept.",
    )
    node_marks: bool = Field(
        default=False,
        description="Mark nodes that filters reject whatever the pod: by a soft taint, and by a"
        " label that pods of a policy with `dynamicFilters: Marked` refuse. Without it, the leader"
        " takes back all marks it finds.",
    )
    outcome: bool = Field(
        default=True,
        description="Judge each bound pod that a policy applies to: where it landed, against our"
        " ranking and a model of the stock scheduler. The leader does, in a twentieth of its time.",
    )
    outcome_window_seconds: int = Field(
        default=3_600, ge=60, le=86_400, description="Time whose outcomes a policy is measured by."
    )
    outcome_least_pods: int = Field(
        default=100,
        ge=1,
        description="Pods of a policy that must have been compared with the model of the stock"
        " scheduler in that time before it can be found to make things worse.",
    )
    outcome_margin: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Points, of 100 by its own scores, that the pods of a policy must have less"
        " than with the stock scheduler to make things worse; or percent of them that are more on"
        " hot nodes.",
    )
    outcome_hot_percent: int = Field(
        default=80,
        ge=1,
        le=100,
        description="Usage of CPU or memory, of allocatable, above which a node is hot.",
    )
    outcome_when_worse: WhenWorse = Field(
        default="Report",
        description="What follows where a policy makes things worse: an alert and an Event"
        " (Report), or besides that it acts no more on any replica (Audit) until somebody takes it"
        " back or changes it. One whose filters promise something, or that denies, is only"
        " reported.",
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
    explanations_kept: int = Field(
        default=256, ge=0, description="Number of the latest decisions that /debug/decisions shows."
    )
    debug_pages: bool = Field(
        default=True,
        description="Serve /debug/decisions, /debug/outcome and /debug/queue. On a live cluster"
        " they require a bearer token of somebody who may `get` these nonResourceURLs.",
    )
    dashboard_port: Port | None = Field(
        default=None,
        description="Port of the dashboard, over TLS; without it there is none; 0 takes a free one."
        " On a live cluster it requires a bearer token, and shows what its user may read.",
    )
    reload_seconds: float = Field(
        default=5.0,
        ge=0,
        description="Interval at which policy and certificate files are checked for changes; 0 for"
        " never.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of messages that are logged."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="Format of log lines.")
    shutdown_delay_seconds: float = Field(
        default=0.0,
        ge=0,
        description="Least time to serve on, not ready, after SIGTERM: callers learn late of a"
        " termination. A preStop hook that sleeps does the same.",
    )
    drain_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Longest time to serve on after that, for open connections.",
    )

    @property
    def reclaims(self) -> bool:
        """Whether pods may be evicted for others, as far as quotas say so."""
        return self.hold and self.quota_mode == "Queue"

    @property
    def preempts(self) -> bool:
        """Whether pods of lower priority may be evicted, as far as policies say so."""
        return self.hold and self.preemption

    @property
    def evicts(self) -> bool:
        """Whether pods may be evicted for others."""
        return self.reclaims or self.preempts

    @field_validator("quota_cohort_nodes")
    @classmethod
    def _is_a_selector(cls, text: str) -> str:
        parse_selector_text(text)
        return text

    def scope(self) -> Scope:
        """Pods that policies place."""
        return Scope(
            scheduler_names=self.scheduler_names, excluded_namespaces=self.excluded_namespaces
        )

    def queue_rules(self) -> QueueRules:
        """Rules by which pods wait for quota."""
        return QueueRules(
            rules=self.quota_rules(),
            mode=self.quota_mode,
            excluded_namespaces=frozenset(self.excluded_namespaces),
            cohort=self.quota_cohort,
            selection=NodeSelection(parse_selector_text(self.quota_cohort_nodes)),
        )

    def quota_rules(self) -> QuotaRules:
        """Rules by which quotas are enforced."""
        return QuotaRules(
            unlisted_resources=self.quota_unlisted_resources,
            count_pods=self.quota_count_pods,
            borrowing=self.quota_borrowing,
        )

    def queue_order(self) -> QueueOrder:
        """Order of held pods."""
        return QueueOrder(sort=self.queue_sort, app_group_namespaces=self.queue_sort_namespaces)

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each field has its own type
        try:
            super().__init__(**given)
        except ValidationError as invalid:
            raise SettingsError(list(problems_of(invalid, given))) from invalid

    @model_validator(mode="after")
    def _certificate_and_key_go_together(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError(
                "a certificate and its key are given together, or neither: see `--tls-cert` and"
                " `--tls-key`"
            )
        return self

    @model_validator(mode="after")
    def _waiting_pods_are_held(self) -> Settings:
        if self.quota_mode == "Queue" and not self.hold:
            raise ValueError(
                "quota mode Queue has pods wait, and none is held: see `--hold`; `Enforce` denies"
                " pods beyond their quota"
            )
        return self

    @model_validator(mode="after")
    def _names_need_an_authority(self) -> Settings:
        if self.client_allowed_names and self.client_ca is None:
            raise ValueError(
                "names of clients are believed only where an authority has signed them: see"
                " `--client-ca`"
            )
        return self

    @model_validator(mode="after")
    def _one_kind_of_certificate(self) -> Settings:
        if self.certificate_secret and (self.tls_cert or self.cluster):
            raise ValueError(
                "a Secret with the certificate is for a live cluster, and instead of files: see"
                " `--certificate-secret`"
            )
        if self.certificate_secret and not self.certificate_names:
            raise ValueError(
                "a certificate of our own must be for some name: see `--certificate-names`"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - named by the base class
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - named by the base class
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Sources of values, in order of precedence."""
        if isinstance(env_settings, EnvSettingsSource):
            env_settings.env_vars = without_service_links(env_settings.env_vars)
        return init_settings, env_settings, ConfigurationFile(settings_cls)
