"""Settings of the server: addresses, certificates, limits, logs, and its end."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, Field, model_validator

from webhook.settings.values import Names, Port

_MEBIBYTE: Final = 1024 * 1024


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
    max_body_bytes: int = Field(
        default=7 * _MEBIBYTE, gt=0, description="Largest accepted body of a review, in bytes."
    )
    max_connections: int = Field(
        default=1024,
        gt=0,
        description="Maximum number of connections. Beyond it, those that have brought no review"
        " are closed, the oldest first.",
    )
    max_in_flight: int = Field(
        default=128,
        gt=0,
        description="Maximum number of concurrent reviews of one kind. Beyond it, or after 20 ms"
        " in line in an overload, a pod is admitted without advice; quota is left to"
        " the API server's failure policy.",
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
        description="Fraction of the timeout after which the pod is admitted without advice.",
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
