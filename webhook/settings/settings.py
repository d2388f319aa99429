"""Every setting of the webhook together, and where their values come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from engine.model.selectors import parse_selector_text
from engine.quota.queueing import NodeSelection, QueueRules
from webhook.settings.sections import (
    BindingSettings,
    ClusterSettings,
    ControlSettings,
    HeldPodSettings,
    PlacementSettings,
    QuotaSettings,
    ServerSettings,
)
from webhook.settings.sources import (
    ENVIRONMENT_PREFIX,
    ConfigurationFile,
    SettingsError,
    problems_of,
    without_service_links,
)


class _SourcedSettings(BaseSettings):
    """Where values come from, the first first: those given, the environment, the file."""

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


# In the help, settings come in the order of the sections from the last to the first.
class Settings(
    BindingSettings,
    HeldPodSettings,
    QuotaSettings,
    ServerSettings,
    ControlSettings,
    ClusterSettings,
    PlacementSettings,
    _SourcedSettings,
):
    """Settings of a process of an installation.

    Raises:
        SettingsError: a value cannot be used; names the flag, variable or line it came from.
    """

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each field has its own type
        try:
            super().__init__(**given)
        except ValidationError as invalid:
            problems = problems_of(invalid, given, type(self).model_fields.keys() - {"config"})
            raise SettingsError(problems) from invalid

    @property
    def reviews_new_pods(self) -> bool:
        """Whether new pods are asked about: they are placed, or may be held for quota."""
        return self.hold or self.placement_mode != "Off"

    @property
    def reclaims(self) -> bool:
        """Whether pods may be evicted for others, as far as quotas say so."""
        return self.hold and self.quota_mode == "Queue"

    @property
    def evicts(self) -> bool:
        """Whether pods may be evicted for others."""
        return self.reclaims or self.preempts

    def queue_rules(self) -> QueueRules:
        """Rules by which pods wait for quota."""
        return QueueRules(
            rules=self.quota_rules(),
            mode=self.quota_mode,
            excluded_namespaces=frozenset(self.excluded_namespaces),
            cohort=self.quota_cohort,
            selection=NodeSelection(parse_selector_text(self.quota_cohort_nodes)),
        )

    @model_validator(mode="after")
    def _waiting_pods_are_held(self) -> Self:
        if self.quota_mode == "Queue" and not self.hold:
            raise ValueError(
                "quota mode Queue has pods wait, and none is held: see `--hold`; `Enforce` denies"
                " pods beyond their quota"
            )
        return self

    @model_validator(mode="after")
    def _one_kind_of_certificate(self) -> Self:
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


class ServeSettings(Settings):
    """Settings of `stowplan serve`, which may do the work of `stowplan control` as well."""

    control: bool = Field(
        default=False,
        description="Do what `stowplan control` does in this process too, for small clusters:"
        " replicas elect a leader among them. Without it, run `stowplan control` as a"
        " process of its own.",
    )
