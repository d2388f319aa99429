"""KubeSchedulerConfiguration as people write it: what is read of a file, a profile or an entry.

Source: Kubernetes, staging/src/k8s.io/kube-scheduler/config/v1/types.go. Fields that say nothing of
where pods go are ignored, so that newer versions can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from engine.documents import Document, Path, read_documents, validate_model
from engine.errors import Diagnostic, InvalidFileError, did_you_mean
from engine.scheduler_config.versions import VERSIONS, default_weights

KIND: Final = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER: Final = "default-scheduler"
_CONFIG_MAP: Final = "ConfigMap"
_PROFILE_KEYS: Final = frozenset({"pluginConfig", "plugins", "schedulerName"})
_EXPECTED: Final = (
    f"expected a {KIND}, one of its profiles, or an entry of `pluginConfig` with `name` and `args`"
)

_M = TypeVar("_M", bound=BaseModel)


class _Written(BaseModel):
    """The common settings: camelCase keys, others ignored, a null is a field that is not set."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, written: object) -> object:
        if isinstance(written, dict):
            return {key: value for key, value in written.items() if value is not None}
        return written


class WrittenPlugin(_Written):
    """A plugin at an extension point; a weight of 0 stands for 1."""

    name: str
    weight: int = 0


class PluginSet(_Written):
    """What a profile changes at an extension point; `*` is every plugin."""

    enabled: tuple[WrittenPlugin, ...] = ()
    disabled: tuple[WrittenPlugin, ...] = ()


class PluginEntry(_Written):
    """An entry of `pluginConfig`."""

    name: str
    args: dict[str, Any] = {}


class Profile(_Written):
    """A profile; `plugins` are by extension point."""

    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int = 0
    plugins: dict[str, PluginSet] = {}
    plugin_config: tuple[PluginEntry, ...] = ()


class _Configuration(_Written):
    percentage_of_nodes_to_score: int = 0
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReadProfile:
    """A profile, and its place.

    Attributes:
        profile: the profile.
        document: that it is in.
        path: to it, or to the entry where `is_entry`.
        is_entry: whether it is a lone entry of `pluginConfig`, which says nothing of what is
            enabled.
        extenders: how many the configuration has.
        version: `apiVersion` of the configuration, None where the file does not say.
    """

    profile: Profile
    document: Document
    path: Path
    is_entry: bool = False
    extenders: int = 0
    version: str | None = None

    @cached_property
    def default_weights(self) -> Mapping[str, int]:
        """The plugins that it has by default, with the weights of scores."""
        plugins = self.profile.plugins.values()
        named = [each.name for found in plugins for each in (*found.enabled, *found.disabled)]
        configured = [entry.name for entry in self.profile.plugin_config]
        return default_weights(self.version, frozenset([*named, *configured]))

    def place_of(self, name: str) -> Path:
        """Return the path of the first place where it enables a plugin; its own if nowhere."""
        for point, plugins in self.profile.plugins.items():
            for index, plugin in enumerate(plugins.enabled):
                if plugin.name == name:
                    return (*self.path, "plugins", point, "enabled", index)
        return self.path

    def args_at(self, index: int) -> Path:
        """Return the path of the args of an entry of its `pluginConfig`."""
        return (*self.path, "args") if self.is_entry else (*self.entry_at(index), "args")

    def entry_at(self, index: int) -> Path:
        """Return the path of an entry of its `pluginConfig`."""
        return self.path if self.is_entry else (*self.path, "pluginConfig", index)


def read_profiles(content: bytes, file: str) -> list[ReadProfile]:
    """Return the profiles of a file: of configurations, also within ConfigMaps, or lone ones.

    A lone entry of `pluginConfig`, or a list of them, is a profile for each.

    Raises:
        InvalidFileError: there is none, or something is wrong with them.
    """
    documents = read_documents(content, file)
    profiles = [found for document in documents for found in _profiles(document)]
    if not profiles:
        raise InvalidFileError([Diagnostic(file=file, message=_EXPECTED)])
    return profiles


def _profiles(document: Document) -> Iterator[ReadProfile]:
    value = document.value
    if isinstance(value, list):
        for index in range(len(value)):
            yield _entry(document, (index,), value[index])
        return
    keys = value.keys() if isinstance(value, dict) else set[str]()
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == _CONFIG_MAP:
        yield from _in_config_map(document)
    elif kind == KIND or "profiles" in keys:
        yield from _configuration(document)
    elif kind is not None:
        raise InvalidFileError([document.problem(("kind",), f"{_EXPECTED}, not `{kind}`")])
    elif keys & _PROFILE_KEYS:
        profile = _valid(Profile, value, document, ())
        yield ReadProfile(profile=profile, document=document, path=())
    else:
        yield _entry(document, (), value)


def _in_config_map(document: Document) -> Iterator[ReadProfile]:
    """Yield the profiles of the configurations in a ConfigMap; its other texts may be anything."""
    data = document.value.get("data") if isinstance(document.value, dict) else None
    for key, text in (data if isinstance(data, dict) else {}).items():
        if isinstance(text, str) and KIND in text:
            for inner in document.embedded(("data", key)):
                yield from _profiles(inner)


def _configuration(document: Document) -> Iterator[ReadProfile]:
    version = document.value.get("apiVersion") if isinstance(document.value, dict) else None
    if version is not None and version not in VERSIONS:
        hint = did_you_mean(str(version), VERSIONS) or f"known are {', '.join(VERSIONS)}"
        problem = document.problem(("apiVersion",), f"`{version}` is not known", hint=hint)
        raise InvalidFileError([problem])
    written = _valid(_Configuration, document.value, document, ())
    percentage = written.percentage_of_nodes_to_score
    for index, profile in enumerate(written.profiles or (Profile(),)):
        own = profile.percentage_of_nodes_to_score or percentage
        yield ReadProfile(
            profile=profile.model_copy(update={"percentage_of_nodes_to_score": own}),
            document=document,
            path=("profiles", index),
            extenders=len(written.extenders),
            version=version,
        )


def _entry(document: Document, path: Path, value: object) -> ReadProfile:
    if not isinstance(value, dict) or "name" not in value:
        raise InvalidFileError([document.problem(path, _EXPECTED)])
    entry = _valid(PluginEntry, value, document, path)
    profile = Profile.model_construct(plugin_config=(entry,))
    return ReadProfile(profile=profile, document=document, path=path, is_entry=True)


def _valid(model: type[_M], value: object, document: Document, path: Path) -> _M:
    valid, problems = validate_model(model, value, document, path)
    if valid is None:
        raise InvalidFileError(problems)
    return valid
