"""Every setting of the webhook, declared once.

A value is taken from the command line, else from the environment (`STOWPLAN_<NAME>`), else from
the configuration file, else from the default here. The command line reads this model too, so its
help is these descriptions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts.config import Env
from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from engine.errors import InvalidFileError, Problem, StowplanError, did_you_mean
from engine.pipeline import SYSTEM_NAMESPACES
from engine.policy.positions import Document, read_documents
from engine.quota import DEFAULT_RESERVATION_SECONDS

ENVIRONMENT_PREFIX = "STOWPLAN_"
_MEBIBYTE = 1024 * 1024
_LONGEST_ECHO = 100

QuotaMode = Literal["Enforce", "Audit", "Off"]


class SettingsError(StowplanError):
    """Settings that cannot be used; carries every mistake found in them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def _split(separator: str) -> Callable[[object], object]:
    """Return a validator that lets a list be given as one text, as an environment variable must."""

    def split(value: object) -> object:
        return (
            [part for part in value.split(separator) if part] if isinstance(value, str) else value
        )

    return split


Paths = Annotated[tuple[Path, ...], BeforeValidator(_split(os.pathsep))]
Names = Annotated[tuple[str, ...], BeforeValidator(_split(","))]
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
    cluster: Paths = Field(
        default=(),
        description="Files, or folders of them, with a recorded cluster. In the environment"
        " separated by a colon.",
    )
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
        description="PEM file with the serving certificate and its chain. Without it, a"
        " self-signed pair is made at each start.",
    )
    tls_key: Path | None = Field(default=None, description="PEM file with its private key.")
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
    quota_mode: QuotaMode = Field(
        default="Enforce",
        description="Whether ElasticQuota denies pods, only warns (Audit), or is not looked at.",
    )
    quota_reservation_seconds: int = Field(
        default=DEFAULT_RESERVATION_SECONDS,
        gt=0,
        description="How long an admitted pod counts against its quota without having been seen.",
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
    drain_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Longest time to go on answering after being told to end.",
    )

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each field has its own type
        try:
            super().__init__(**given)
        except ValidationError as invalid:
            raise SettingsError(list(_problems(invalid, given))) from invalid

    @model_validator(mode="after")
    def _certificate_and_key_go_together(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError(
                "a certificate and its key are given together, or neither: see `--tls-cert` and"
                " `--tls-key`"
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
            env_settings.env_vars = _without_service_links(env_settings.env_vars)
        return init_settings, env_settings, _ConfigurationFile(settings_cls)


class ShownEnvironment(Env):
    """Lets the command line name each variable in its help; the settings themselves read it."""

    def __init__(self) -> None:
        super().__init__(ENVIRONMENT_PREFIX, command=False)

    def __call__(self, *_: object) -> None:
        """Read nothing."""


class _ConfigurationFile(PydanticBaseSettingsSource):
    """The YAML file that flags or the environment name as `config`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Not used: the file is read as a whole."""
        raise NotImplementedError

    def __call__(self) -> dict[str, Any]:
        """Return what the file says.

        Raises:
            SettingsError: it cannot be read, or has a key that is no setting.
        """
        document = _document(self.current_state.get("config"))
        if document is None:
            return {}
        if not isinstance(document.value, dict):
            raise SettingsError([document.problem((), "expected `setting: value` lines")])
        known = set(self.settings_cls.model_fields) - {"config"}
        unknown = [
            document.problem_at_key(
                (key,), f"unknown setting `{key}`", hint=did_you_mean(key, known)
            )
            for key in document.value
            if key not in known
        ]
        if unknown:
            raise SettingsError(unknown)
        return document.value


def _document(path: object) -> Document | None:
    """Return the configuration file, None if there is none or nothing is in it."""
    if not path:
        return None
    file = str(path)
    try:
        documents = read_documents(Path(file).read_bytes(), file)
    except OSError as error:
        problem = Problem(file=file, message=f"cannot be read: {error.strerror}")
        raise SettingsError([problem]) from error
    except InvalidFileError as error:
        raise SettingsError(error.problems) from error
    if len(documents) > 1:
        raise SettingsError([documents[1].problem((), "expected one document, not several")])
    return documents[0] if documents else None


def _problems(invalid: ValidationError, given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield each mistake with the flag, variable or line that its value came from."""
    for error in invalid.errors(include_url=False):
        message = error["msg"].removeprefix("Value error, ")
        if not error["loc"]:
            yield Problem(file="settings", message=message)
            continue
        name = str(error["loc"][0])
        variable = ENVIRONMENT_PREFIX + name.upper()
        flag = f"--{name.replace('_', '-')}"
        text = str(error["input"])[:_LONGEST_ECHO]
        message = f"{message[:1].lower()}{message[1:]}, not `{text}`"
        hint = f"see {flag} in `stowplan serve --help`"
        if name in given:
            yield Problem(file=flag, message=message, hint=hint)
        elif variable in os.environ:
            yield Problem(file=variable, message=message, hint=hint)
        else:
            config = given.get("config") or os.environ.get(f"{ENVIRONMENT_PREFIX}CONFIG")
            document = _document(config)
            yield (
                document.problem((name,), message, hint=hint)
                if document
                else Problem(file=name, message=message, hint=hint)
            )


def _without_service_links(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Leave out what Kubernetes sets for a Service of our name: STOWPLAN_PORT=tcp://10.0.0.7:443."""
    return {
        name: value
        for name, value in variables.items()
        if not (value or "").startswith(("tcp://", "udp://"))
    }
