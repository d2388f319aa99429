"""Sources of settings besides the command line, and diagnostics for invalid settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cyclopts.config import Env
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import PydanticBaseSettingsSource

from engine.documents import Document, error_text, read_documents
from engine.errors import Diagnostic, InvalidFileError, StowplanError, did_you_mean

ENVIRONMENT_PREFIX = "STOWPLAN_"
_MAX_ECHO = 100


class SettingsError(StowplanError):
    """Invalid settings; carries every mistake found in them."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def split_at(separator: str) -> Callable[[object], object]:
    """Validator that splits a text into a list, for values from the environment."""

    def split(value: object) -> object:
        return (
            [part for part in value.split(separator) if part] if isinstance(value, str) else value
        )

    return split


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
