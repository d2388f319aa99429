"""Every setting of the webhook together, and where values, right or wrong, come from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cyclopts.config import Env
from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from engine.documents import Document, error_text, read_documents
from engine.errors import Diagnostic, InvalidFileError, StowplanError, did_you_mean
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

ENVIRONMENT_PREFIX = "STOWPLAN_"
_MAX_ECHO = 100


class SettingsError(StowplanError):
    """Invalid settings; carries every mistake found in them."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ShownEnvironment(Env):
    """Shows each variable in the help of the command line; the settings read its value."""

    def __init__(self) -> None:
        super().__init__(ENVIRONMENT_PREFIX, command=False)

    def __call__(self, *_: object) -> None:
        """Read nothing."""


class ConfigurationFile(PydanticBaseSettingsSource):
    """The YAML file that the setting `config` names."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Unused: the file is read as a whole."""
        raise NotImplementedError

    def __call__(self) -> dict[str, Any]:
        """Settings in the file."""
        document = _document(self.current_state.get("config"))
        if document is None:
            return {}
        if not isinstance(document.value, dict):
            raise SettingsError([document.problem((), "expected `setting: value` lines")])
        if "config" in document.value:
            raise SettingsError([_unknown(document, "config")])
        return document.value


def _document(path: object) -> Document | None:
    """Read the configuration file, None if there is none or it is empty."""
    if not path:
        return None
    file = str(path)
    try:
        documents = read_documents(Path(file).read_bytes(), file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        problem = Diagnostic(file=file, message=f"cannot be read: {reason}")
        raise SettingsError([problem]) from error
    except InvalidFileError as error:
        raise SettingsError(error.problems) from error
    if len(documents) > 1:
        raise SettingsError([documents[1].problem((), "expected one document, not several")])
    return documents[0] if documents else None


def _unknown(document: Document, key: str, known: Iterable[str] = ()) -> Diagnostic:
    hint = did_you_mean(key, known)
    return document.problem_at_key((key,), f"unknown setting `{key}`", hint=hint)


def problems_of(
    invalid: ValidationError, given: Mapping[str, Any], known: Iterable[str]
) -> list[Diagnostic]:
    """Return each mistake with the flag, variable or line of its value, in order of a file."""
    document = _document(given.get("config") or os.environ.get(f"{ENVIRONMENT_PREFIX}CONFIG"))
    problems = [
        _problem(error, given, document, known) for error in invalid.errors(include_url=False)
    ]
    return sorted(problems, key=lambda problem: problem.line)


def _problem(
    error: ErrorDetails, given: Mapping[str, Any], document: Document | None, known: Iterable[str]
) -> Diagnostic:
    message = error_text(error)
    if not error["loc"]:
        return Diagnostic(file="settings", message=message)
    name = str(error["loc"][0])
    variable = ENVIRONMENT_PREFIX + name.upper()
    flag = f"--{name.replace('_', '-')}"
    message = f"{message}, not `{str(error['input'])[:_MAX_ECHO]}`"
    hint = f"see {flag} in `stowplan serve --help`"
    if name in given:
        return Diagnostic(file=flag, message=message, hint=hint)
    if document is not None and error["type"] == "extra_forbidden":
        return _unknown(document, name, known)
    if variable in os.environ:
        return Diagnostic(file=variable, message=message, hint=hint)
    if document is not None:
        return document.problem((name,), message, hint=hint)
    return Diagnostic(file=name, message=message, hint=hint)


def without_service_links(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Drop the variables of a Service named stowplan, such as STOWPLAN_PORT=tcp://10.0.0.7:443."""
    return {
        name: value
        for name, value in variables.items()
        if not (value or "").startswith(("tcp://", "udp://"))
    }


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
