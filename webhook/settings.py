"""Every setting of the webhook, declared once.

A value is taken from the command line, else from the environment (`STOWPLAN_<NAME>`), else from
the configuration file, else from the default here. The command line reads this model too, so its
help is these descriptions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from engine.pipeline import SYSTEM_NAMESPACES
from engine.quota import (
    DEFAULT_RESERVATION_SECONDS,
    Borrowing,
    PodAccounting,
    QuotaMode,
    QuotaRules,
    StatusCounts,
    UnlistedResources,
)
from engine.view import DEFAULT_ASSUMED_SECONDS
from webhook.cluster.usage.prometheus import DEFAULT_CPU_QUERY, DEFAULT_MEMORY_QUERY
from webhook.cluster.watch.source_status import DEFAULT_STALE_SECONDS
from webhook.placement.live_policies import PlacementMode
from webhook.settings_sources import (
    ENVIRONMENT_PREFIX,
    ConfigurationFile,
    SettingsError,
    problems_of,
    split_at,
    without_service_links,
)

_MEBIBYTE = 1024 * 1024
_SHORTEST_SILENCE_SECONDS = 120  # a quiet watch says something about once a minute

Paths = Annotated[tuple[Path, ...], BeforeValidator(split_at(os.pathsep))]
Names = Annotated[tuple[str, ...], BeforeValidator(split_at(","))]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseSettings):
    """What `stowplan serve` can be told.

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
        description="YAML file with any of these settings, by name, as `max_in_flight: 64`.",
    )
    policies: Paths = Field(
        default=(),
        description="Policy files, or folders of them. In the environment separated by a colon.",
    )
    # The cluster.
    cluster: Paths = Field(
        default=(),
        description="Files, or folders of them, with a recorded cluster, instead of a live one. In"
        " the environment separated by a colon.",
    )
    kubeconfig: Path | None = Field(
        default=None,
        description="How to reach the live cluster. Without it, by the service account of the pod"
        " this runs in, else by $KUBECONFIG or the default place.",
    )
    context: str | None = Field(
        default=None, description="Context of the kubeconfig. Without it, its current one."
    )
    namespace: str = Field(
        default="stowplan-system",
        description="Namespace this runs in: where its Secret and its Lease are.",
    )
    lease: str = Field(
        default="stowplan",
        description="Lease that says which of several replicas does what one must do for all.",
    )
    assumed_seconds: int = Field(
        default=DEFAULT_ASSUMED_SECONDS,
        gt=0,
        description="How long an advised pod counts on its node without having been bound.",
    )
    stale_nodes_seconds: float = Field(
        default=DEFAULT_STALE_SECONDS,
        ge=_SHORTEST_SILENCE_SECONDS,
        description="Silence about nodes after which rules that read them abstain.",
    )
    stale_pods_seconds: float = Field(
        default=DEFAULT_STALE_SECONDS,
        ge=_SHORTEST_SILENCE_SECONDS,
        description="Silence about pods after which rules that read what they add up to abstain.",
    )
    stale_usage_seconds: float = Field(
        default=DEFAULT_STALE_SECONDS,
        gt=0,
        description="Silence about usage after which rules that read it abstain.",
    )

    # Usage of nodes, where Koordinator does not measure it.
    usage_poll_seconds: float = Field(
        default=15.0, ge=5, description="How often the usage of nodes is asked for."
    )
    usage_of_pods: bool = Field(
        default=False,
        description="Also ask metrics.k8s.io for the usage of each pod: exact where pods come and"
        " go, but some 10 us a pod each time.",
    )
    prometheus_url: str | None = Field(
        default=None,
        pattern="^https?://",
        description="Prometheus to ask instead of metrics.k8s.io, as `http://prometheus:9090`.",
    )
    prometheus_cpu_query: str = Field(
        default=DEFAULT_CPU_QUERY, description="PromQL for the cores that each node uses."
    )
    prometheus_memory_query: str = Field(
        default=DEFAULT_MEMORY_QUERY, description="PromQL for the bytes that each node uses."
    )
    prometheus_node_label: str = Field(
        default="node", description="Label in their results that holds the name of the node."
    )
    prometheus_window_seconds: int = Field(
        default=120,
        gt=0,
        description="How far back the queries look: a pod bound since then is estimated.",
    )
    prometheus_token_file: Path | None = Field(
        default=None, description="File with a bearer token for Prometheus."
    )
    prometheus_ca_file: Path | None = Field(
        default=None, description="PEM file with the authorities of the certificate of Prometheus."
    )

    # RunningServer.
    host: str = Field(default="0.0.0.0", description="Address the webhook listens on.")  # noqa: S104 - it is called from other machines
    port: Port = Field(default=9443, description="Port of the webhook; 0 takes a free one.")
    metrics_host: str = Field(
        default="127.0.0.1",
        description="Address of metrics and debug pages: plain HTTP, so not open.",
    )
    metrics_port: Port = Field(
        default=9444, description="Port of metrics and debug pages; 0 takes a free one."
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM file with the serving certificate and its chain. Without it or a Secret, a"
        " self-signed pair is made at each start.",
    )
    tls_key: Path | None = Field(default=None, description="PEM file with its private key.")
    certificate_secret: str | None = Field(
        default=None,
        description="Secret in which a certificate of our own is kept and renewed in time; one that"
        " somebody else made is only served.",
    )
    certificate_names: Names = Field(
        default=(),
        description="Host names and addresses that callers use, for a certificate of our own. In"
        " the environment separated by a comma.",
    )
    webhook_configurations: Names = Field(
        default=("stowplan",),
        description="Names of the Mutating- and ValidatingWebhookConfigurations that are kept"
        " trusting the certificate in the Secret. In the environment separated by a comma.",
    )
    client_ca: Path | None = Field(
        default=None,
        description="PEM file with the authorities of accepted client certificates. Without it,"
        " any client may call.",
    )
    max_body_bytes: int = Field(
        default=7 * _MEBIBYTE, gt=0, description="Largest accepted body of a review."
    )
    max_in_flight: int = Field(
        default=128,
        gt=0,
        description="Most reviews of one kind worked on at a time. Beyond it a pod is admitted"
        " without advice, and quota is left to the API server's failure policy.",
    )
    default_timeout_seconds: float = Field(
        default=10.0,
        gt=0,
        description="Time a review may take where the caller does not say (`?timeout=`).",
    )
    deadline_fraction: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="Part of that time we use; then the pod is admitted without advice.",
    )
    placement_mode: PlacementMode = Field(
        default="Enforce",
        description="Whether policies act as each says, all only tell (Audit) what they would have"
        " done, or pods are not looked at.",
    )
    quota_mode: QuotaMode = Field(
        default="Enforce",
        description="Whether ElasticQuota denies pods, only warns (Audit), or is not looked at.",
    )
    quota_unlisted_resources: UnlistedResources = Field(
        default="Unlimited",
        description="What a resource means that a quota's max does not name; Zero is the rule of"
        " scheduler-plugins.",
    )
    quota_count_pods: PodAccounting = Field(
        default="NonTerminal",
        description="Pods that hold quota: all that have not finished, or, as with"
        " scheduler-plugins, only those that have a node: then a burst may pass max.",
    )
    quota_borrowing: Borrowing = Field(
        default="Off",
        description="AggregateMin, a rule of scheduler-plugins: also hold all namespaces with"
        " quotas together to the sum of their min.",
    )
    quota_status_counts: StatusCounts = Field(
        default="Running", description="Pods that `status.used` of a quota adds up."
    )
    quota_reservation_seconds: int = Field(
        default=DEFAULT_RESERVATION_SECONDS,
        gt=60,
        description="How long an admitted pod counts against its quota without having been seen;"
        " longer than the API server works on a request, which is 60 s by default.",
    )
    scheduler_names: Names = Field(
        default=("default-scheduler",),
        description="Schedulers whose pods are advised. In the environment separated by a comma.",
    )
    excluded_namespaces: Names = Field(
        default=SYSTEM_NAMESPACES,
        description="Namespaces whose pods are left alone. In the environment separated by a"
        " comma.",
    )
    explanations_kept: int = Field(
        default=256, ge=0, description="How many of the latest decisions /debug/decisions shows."
    )
    reload_seconds: float = Field(
        default=5.0,
        ge=0,
        description="How often policy and certificate files are looked at for changes; 0 for"
        " never.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least important messages logged."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="Form of a log line.")
    shutdown_delay_seconds: float = Field(
        default=0.0,
        ge=0,
        description="Least time to go on answering, not ready, after being told to end: callers"
        " learn late that we leave. A preStop hook that sleeps does the same.",
    )
    drain_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Longest time to go on answering after that, for those still connected.",
    )

    def quota_rules(self) -> QuotaRules:
        """Return the rules that quotas are enforced by."""
        return QuotaRules(
            unlisted_resources=self.quota_unlisted_resources,
            count_pods=self.quota_count_pods,
            borrowing=self.quota_borrowing,
        )

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
        """Return where values come from, most important first."""
        if isinstance(env_settings, EnvSettingsSource):
            env_settings.env_vars = without_service_links(env_settings.env_vars)
        return init_settings, env_settings, ConfigurationFile(settings_cls)
