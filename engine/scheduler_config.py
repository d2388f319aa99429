"""Configurations of kube-scheduler as policies: what `stowplan import` writes.

Belongs here: which plugins a profile enables, with which weights and args, and the policy that
ranks nodes as they do, as text with comments on what a policy cannot say. Never: what a plugin
computes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from engine.documents import Document, Path, read_documents, validate_model
from engine.errors import Diagnostic, InvalidFileError, did_you_mean
from engine.plugins import PLUGINS, UPSTREAM_NAMES
from engine.plugins.node_resources_fit import ScoringStrategy

# Earlier versions of the configuration: what a profile has by default, and scores of old names.
#
# Source: Kubernetes 1.22, pkg/scheduler/apis/config/v1beta1/default_plugins.go and .../v1beta2, and
# staging/src/k8s.io/kube-scheduler/config/v1beta1/types_pluginargs.go. Version v1beta3 has the
# defaults of v1. NodePreferAvoidPods, of weight 10000 in v1beta1, is left out: no node says any
# more what it preferred to avoid.


GROUP: Final = "kubescheduler.config.k8s.io"

DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    "SchedulingGates": 0,
    "PrioritySort": 0,
    "NodeUnschedulable": 0,
    "NodeName": 0,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodePorts": 0,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 0,
    "NodeVolumeLimits": 0,
    "VolumeBinding": 0,
    "VolumeZone": 0,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 0,
    "DefaultPreemption": 0,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "DefaultBinder": 0,
}
"""Plugins of the scheduler itself, enabled at every point they have, with the weights of scores."""

FIT: Final = "NodeResourcesFit"

STRATEGIES: Final[Mapping[str, str]] = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Scores of v1beta1 that are strategies of NodeResourcesFit today, by their names."""

_BEFORE_V1BETA3: Final = {
    **DEFAULT_WEIGHTS,
    "TaintToleration": 1,
    "NodeAffinity": 1,
    "InterPodAffinity": 1,
}
_V1BETA1: Final = {**_BEFORE_V1BETA3, FIT: 0, "NodeResourcesLeastAllocated": 1}

_DEFAULTS: Final[Mapping[str, Mapping[str, int]]] = {
    f"{GROUP}/v1": DEFAULT_WEIGHTS,
    f"{GROUP}/v1beta3": DEFAULT_WEIGHTS,
    f"{GROUP}/v1beta2": _BEFORE_V1BETA3,
    f"{GROUP}/v1beta1": _V1BETA1,
}

VERSIONS: Final = tuple(_DEFAULTS)
"""Versions that are read, the newest first."""


def default_weights(version: str | None, names: frozenset[str]) -> Mapping[str, int]:
    """Return the plugins that a profile has by default, with the weights of scores.

    Args:
        version: one of VERSIONS, None where the file does not say.
        names: plugins that the profile mentions. No version but v1beta1 knows those of STRATEGIES:
            a profile that mentions one was written for it, whatever the file says now.
    """
    if not names.isdisjoint(STRATEGIES):
        return _V1BETA1
    return DEFAULT_WEIGHTS if version is None else _DEFAULTS[version]


def strategy_of(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scoring strategy that a score of an old name stands for.

    Args:
        name: one of STRATEGIES.
        args: as written: `resources`, and `shape` of a ratio.
    """
    strategy: dict[str, Any] = {"type": STRATEGIES[name]}
    if args.get("resources"):
        strategy["resources"] = args["resources"]
    if args.get("shape"):
        strategy["requestedToCapacityRatio"] = {"shape": args["shape"]}
    return strategy


# KubeSchedulerConfiguration as people write it: what is read of a file, a profile or an entry.
#
# Source: Kubernetes, staging/src/k8s.io/kube-scheduler/config/v1/types.go. Fields that say nothing
# of where pods go are ignored, so that newer versions can be read.


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


# The plugins that a profile enables as filters and as scores, in order, with their weights.
#
# Source: Kubernetes, pkg/scheduler/apis/config/v1/default_plugins.go (getDefaultPlugins,
# mergePlugins) and pkg/scheduler/framework/runtime/framework.go (expandMultiPointPlugins).


FILTER: Final = "filter"
SCORE: Final = "score"
_EVERY_POINT: Final = "multiPoint"
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Enabled:
    """A plugin at an extension point.

    Attributes:
        name: the scheduler's.
        weight: of its score.
        is_configured: whether the profile enables it, not the defaults.
    """

    name: str
    weight: int
    is_configured: bool


def enabled_at(
    point: str, plugins: Mapping[str, PluginSet], defaults: Mapping[str, int] = DEFAULT_WEIGHTS
) -> tuple[Enabled, ...]:
    """Return the plugins at `FILTER` or `SCORE`, those of every point first.

    A plugin that is enabled at every point is returned for either, whether or not it has it.

    Args:
        point: the extension point.
        plugins: what the profile changes, by extension point.
        defaults: what it has without a word, by `versions.default_weights`.
    """
    own = plugins.get(point, PluginSet())
    disabled = {plugin.name for plugin in own.disabled}
    explicit = {plugin.name: plugin for plugin in own.enabled}
    every = plugins.get(_EVERY_POINT, PluginSet())
    inherited = () if _ALL in disabled else _at_every_point(every, defaults)
    kept = (
        plugin
        for plugin in inherited
        if plugin.name not in disabled
        and plugin.name not in explicit
        and not _lacks(plugin.name, point, defaults)
    )
    configured = (Enabled(each.name, each.weight or 1, True) for each in explicit.values())  # noqa: FBT003 - as declared
    return (*kept, *configured)


def names_anywhere(plugins: Mapping[str, PluginSet]) -> tuple[str, ...]:
    """Return the plugins that a profile enables at any extension point, in order."""
    return tuple(dict.fromkeys(each.name for found in plugins.values() for each in found.enabled))


def _at_every_point(own: PluginSet, weights: Mapping[str, int]) -> tuple[Enabled, ...]:
    disabled = {plugin.name for plugin in own.disabled}
    explicit = {plugin.name: plugin for plugin in own.enabled}
    defaults = {} if _ALL in disabled else weights
    merged = {
        name: Enabled(name, weight, is_configured=False)
        for name, weight in defaults.items()
        if name not in disabled
    }
    for name, plugin in explicit.items():  # one that replaces a default keeps its place
        merged[name] = Enabled(name, plugin.weight or 1, is_configured=True)
    return tuple(merged.values())


def _lacks(name: str, point: str, defaults: Mapping[str, int]) -> bool:
    """Return whether a plugin of the scheduler itself has no such extension point."""
    return point == SCORE and defaults.get(name) == 0


_ELSEWHERE: Final[Mapping[str, str]] = {
    "CapacityScheduling": "ElasticQuotas are kept at admission, see docs/quota.md",
    "Coscheduling": "gangs are held and released together, see docs/gangs.md",
    "CrossNodePreemption": "held pods are preempted for on several nodes, see docs/preemption.md",
    "DeviceShare": "devices are not allocated; count them by `node.allocatable` in an expression",
    "ElasticQuota": "Koordinator's quotas are kept at admission, see docs/elastic-quota.md",
    "NodeNUMAResource": "the nearest is `NodeResourceTopologyMatch`, for reported zones",
    "PreemptionToleration": "PriorityClasses say it for held pods, see docs/preemption.md",
    "QOSSort": "an order of held pods: `queueSort`, see docs/held-pods.md",
    "TopologicalSort": "an order of held pods: `queueSort`, see docs/held-pods.md",
}
"""Where else that is which a plugin does."""

UNUSED_ARGS: Final[Mapping[str, tuple[str, ...]]] = {
    "LoadAware": ("estimator",),
    "LoadVariationRiskBalancing": ("metricProvider", "watcherAddress"),
    "LowRiskOverCommitment": ("metricProvider", "watcherAddress"),
    "NodeResourceTopologyMatch": ("cache", "cacheResyncPeriodSeconds", "preemptionMode"),
    "Peaks": ("watcherAddress",),
    "TargetLoadPacking": ("metricProvider", "watcherAddress"),
}
"""Args that are accepted and not used, by plugin."""

MOST_WEIGHT: Final = 100
"""The greatest weight of a policy's score."""


def our_name(name: str) -> str:
    """Return our name of a plugin."""
    return FIT if name in STRATEGIES else UPSTREAM_NAMES.get(name, name)


def scores(name: str) -> bool:
    """Return whether we have the score of a plugin."""
    plugin = PLUGINS.get(our_name(name))
    return plugin is not None and plugin.score is not None


def filters(name: str) -> bool:
    """Return whether we have the filter of a plugin that the scheduler itself does not run."""
    if name in DEFAULT_WEIGHTS or name in STRATEGIES:
        return False
    plugin = PLUGINS.get(our_name(name))
    return plugin is not None and plugin.filter is not None


def elsewhere(name: str) -> str:
    """Return where else that is which a plugin does, or that there is nothing like it."""
    return _ELSEWHERE.get(name, "no counterpart")


def notes(read: ReadProfile) -> Iterator[str]:
    """Yield what a policy cannot say of a profile."""
    profile = read.profile
    defaults = read.default_weights
    yield from _disabled_filters(profile, defaults)
    enabled = {*names_anywhere(profile.plugins), *defaults}
    for name in names_anywhere(profile.plugins):
        if name not in DEFAULT_WEIGHTS and our_name(name) not in PLUGINS:
            yield f"`{_inline(name)}`: {elsewhere(name)}"
    for entry in profile.plugin_config:
        yield from _lost_args(entry.name, entry.args, is_enabled=entry.name in enabled)
    weights = (
        each.weight for each in enabled_at(SCORE, profile.plugins, defaults) if scores(each.name)
    )
    if max(weights, default=0) > MOST_WEIGHT:
        yield f"weights are scaled to at most {MOST_WEIGHT}"
    if profile.percentage_of_nodes_to_score:
        percentage = profile.percentage_of_nodes_to_score
        yield (
            f"`percentageOfNodesToScore` {percentage}: for all policies, by `stowplan serve"
            f" --percentage-of-nodes-to-score {percentage}`"
        )
    if read.extenders:
        yield f"{read.extenders} `extenders`: no counterpart"


def _disabled_filters(profile: Profile, defaults: Mapping[str, int]) -> Iterator[str]:
    """Yield the filters of the scheduler itself that a profile switches off."""
    running = {each.name for each in enabled_at(FILTER, profile.plugins, defaults)}
    for name in DEFAULT_WEIGHTS:
        plugin = PLUGINS.get(name)
        if plugin is not None and plugin.filter is not None and name not in running:
            yield f"`{name}` is switched off as a filter: a stock scheduler runs it all the same"


def _lost_args(name: str, args: Mapping[str, object], *, is_enabled: bool) -> Iterator[str]:
    if not is_enabled:
        if scores(name) or filters(name):
            yield f"`{_inline(name)}` has args and is enabled nowhere: left out"
        return
    if name in DEFAULT_WEIGHTS and not scores(name) and args.keys() - {"apiVersion", "kind"}:
        yield f"args of `{name}`: a stock scheduler has its own"
    elif name == "NodeResourcesFit" and args.keys() & {"ignoredResources", "ignoredResourceGroups"}:
        yield f"`{name}`: a stock scheduler does not ignore these resources when it filters"


def _inline(text: str) -> str:
    """Return a text of a file as a part of a comment."""
    return "".join(char if char.isprintable() else " " for char in text)[:64]


_TYPE_META: Final = ("apiVersion", "kind")
_NODE_AFFINITY: Final = "NodeAffinity"
_WIDTH: Final = 100
_HEAD: Final = """\
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata:
  {name}
spec:"""
_OF_THE_SCHEDULER: Final = "    # Scores of the scheduler itself, for the same sum of points."
_LEFT_OUT: Final = "# What this policy cannot say:"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The rules that come of a profile."""

    filters: tuple[str, ...]  # plugins, by the scheduler's names
    scores: tuple[Enabled, ...]  # plugins
    # of plugins, by the scheduler's names, as a policy has them
    args: Mapping[str, Mapping[str, Any]]
    mistaken: tuple[str, ...] = ()  # plugins that are left out, for their args have mistakes

    @property
    def shared(self) -> frozenset[str]:
        """Plugins whose args are those of a filter and of a score."""
        names = {each.name for each in self.scores} & set(self.filters)
        return frozenset(name for name in names if self.args.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Policies that rank nodes as a scheduler's configuration does.

    Attributes:
        text: YAML with comments.
        problems: mistakes in the args of plugins, which are left out, with their places in the
            configuration.
    """

    text: str
    problems: tuple[Diagnostic, ...] = ()


def imported_policies(content: bytes, file: str, *, name: str = "") -> Imported:
    """Return policies that rank nodes as a scheduler's configuration does.

    Args:
        content: of the file: a KubeSchedulerConfiguration, also in a ConfigMap, one of its
            profiles, or entries of `pluginConfig`.
        file: its name, for diagnostics and comments.
        name: of the policy; of several, what their names begin with. From the profile, if empty.

    Raises:
        InvalidFileError: it cannot be read, no part of it is a policy, or nothing else is left of
            it than mistakes in args.
    """
    found = read_profiles(content, file)
    is_alone = len(found) == 1
    problems: list[Diagnostic] = []
    rules: list[tuple[ReadProfile, _Rules]] = []
    for read in found:
        meant = _entry_rules(read) if read.is_entry else _rules(read)
        mistakes = _mistakes_in_args(read, meant)
        problems += chain.from_iterable(mistakes.values())
        rules.append((read, _without(meant, mistakes)))
    if problems and not any(each.filters or each.scores for _, each in rules):
        raise InvalidFileError(problems)
    names = [name if name and is_alone else _policy_name(name, read) for read in found]
    texts = (
        _policy(read, each, policy, is_alone=is_alone)
        for (read, each), policy in zip(rules, names, strict=True)
    )
    return Imported(text="---\n".join(texts), problems=tuple(problems))


def _mistakes_in_args(read: ReadProfile, rules: _Rules) -> dict[str, list[Diagnostic]]:
    """Return the mistakes in the args of each plugin that has any, given or missing."""
    places = {
        entry.name: read.args_at(index) for index, entry in enumerate(read.profile.plugin_config)
    }
    given = {entry.name: entry.args for entry in read.profile.plugin_config}
    found = {}
    for name in dict.fromkeys([*given, *rules.filters, *(each.name for each in rules.scores)]):
        plugin = PLUGINS.get(our_name(name))
        if plugin is None or (name in DEFAULT_WEIGHTS and not scores(name)):
            continue
        at = places.get(name) or read.place_of(name)
        args = given.get(name, {})
        if name in STRATEGIES:
            strategy = strategy_of(name, args)
            problems = validate_model(ScoringStrategy, strategy, read.document, at)[1]
        else:
            problems = validate_model(plugin.args, args, read.document, at)[1]
        if problems:
            found[name] = problems
    return found


def _without(rules: _Rules, mistaken: Mapping[str, object]) -> _Rules:
    return replace(
        rules,
        filters=tuple(name for name in rules.filters if name not in mistaken),
        scores=tuple(each for each in rules.scores if each.name not in mistaken),
        mistaken=tuple(mistaken),
    )


def _rules(read: ReadProfile) -> _Rules:
    plugins, defaults = read.profile.plugins, read.default_weights
    args = {entry.name: _written(entry.name, entry.args) for entry in read.profile.plugin_config}
    added = args.get(_NODE_AFFINITY, {}).get("addedAffinity") or {}
    is_promised = "requiredDuringSchedulingIgnoredDuringExecution" in added
    enabled = [each.name for each in enabled_at(FILTER, plugins, defaults)]
    return _Rules(
        filters=tuple(
            name for name in enabled if filters(name) or (name == _NODE_AFFINITY and is_promised)
        ),
        scores=tuple(each for each in enabled_at(SCORE, plugins, defaults) if scores(each.name)),
        args=args,
    )


def _entry_rules(read: ReadProfile) -> _Rules:
    """Return the rules of a lone entry, at every point that its plugin has."""
    (entry,) = read.profile.plugin_config
    ranks = scores(entry.name)
    weight = DEFAULT_WEIGHTS.get(entry.name, 1)
    rules = _Rules(
        filters=(entry.name,) if filters(entry.name) else (),
        scores=(Enabled(entry.name, weight, is_configured=True),) if ranks else (),
        args={entry.name: _written(entry.name, entry.args)},
    )
    if not (rules.filters or rules.scores):
        message = f"`{entry.name}` is neither a filter nor a score of a policy"
        hint = elsewhere(entry.name)
        raise InvalidFileError([read.document.problem((*read.path, "name"), message, hint=hint)])
    return rules


def _written(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return args as a policy has them."""
    if name in STRATEGIES:
        return {"scoringStrategy": strategy_of(name, args)}
    return {
        key: value for key, value in args.items() if value is not None and key not in _TYPE_META
    }


def _policy(read: ReadProfile, rules: _Rules, name: str, *, is_alone: bool) -> str:
    """Return a policy as a document of YAML."""
    lines = [_origin(read), _HEAD.format(name=yaml.safe_dump({"name": name}).strip())]
    if not is_alone and not read.is_entry:
        lines += _match(read.profile.scheduler_name)
    if rules.filters:
        lines.append("  filters:")
        for filter_name in rules.filters:
            lines += _rule(filter_name, rules, weight=None)
    if rules.scores:
        lines.append("  scores:")
        lines += _scores(rules)
    if not (rules.filters or rules.scores):
        lines.append("  scores: []")
    left_out = [f"{_quoted(each)}: its args have mistakes" for each in rules.mistaken]
    left_out += () if read.is_entry else notes(read)
    if left_out:
        lines += [_LEFT_OUT, *(f"# - {note}" for note in left_out)]
    return "\n".join(lines) + "\n"


def _origin(read: ReadProfile) -> str:
    if read.is_entry:
        (entry,) = read.profile.plugin_config
        return f"# From the args of {_quoted(entry.name)} in {_quoted(read.document.file)}."
    scheduler = read.profile.scheduler_name
    lines = f"# From the profile {_quoted(scheduler)} in {_quoted(read.document.file)}."
    if scheduler == DEFAULT_SCHEDULER:
        return lines
    return (
        f"{lines}\n# Pods that still name this scheduler are advised with"
        " `stowplan serve --scheduler-names`."
    )


def _match(scheduler: str) -> Iterator[str]:
    """Yield the match of the pods of one profile of several."""
    names = [scheduler] if scheduler != DEFAULT_SCHEDULER else ["", scheduler]
    expression = f"pod.schedulerName in {json.dumps(names)}"
    yield "  match:"
    yield "    matchConditions:"
    yield "      - name: scheduler"
    yield f"        expression: {json.dumps(expression)}"


def _scores(rules: _Rules) -> Iterator[str]:
    """Yield the scores, those that the profile configures first."""
    greatest = max(each.weight for each in rules.scores)
    of_scheduler = [each for each in rules.scores if _is_default(each, rules)]
    for each in rules.scores:
        if each not in of_scheduler:
            yield from _rule(each.name, rules, weight=_scaled(each.weight, greatest))
    if of_scheduler:
        yield _OF_THE_SCHEDULER
    for each in of_scheduler:
        yield from _rule(each.name, rules, weight=_scaled(each.weight, greatest))


def _is_default(score: Enabled, rules: _Rules) -> bool:
    return not score.is_configured and not rules.args.get(score.name)


def _scaled(weight: int, greatest: int) -> int:
    """Return a weight that a policy may have, in proportion to the others."""
    if greatest <= MOST_WEIGHT:
        return max(weight, 1)
    return max(round(weight * MOST_WEIGHT / greatest), 1)


def _rule(name: str, rules: _Rules, *, weight: int | None) -> Iterator[str]:
    """Yield the lines of a rule; `weight` is None for a filter."""
    plugin, args = our_name(name), rules.args.get(name) or {}
    if name in STRATEGIES:
        yield f"    - name: {name}"
        yield f"      plugin: {plugin}"
        args = args or _written(name, {})
    else:
        yield f"    - plugin: {plugin}"
    if weight is not None and weight != 1:
        yield f"      weight: {weight}"
    if not args:
        return
    unused = [key for key in UNUSED_ARGS.get(plugin, ()) if key in args]
    if unused:
        yield f"      # Accepted and not used: {', '.join(unused)}."
    if weight is not None and name in rules.shared:
        yield f"      args: *{plugin}"
        return
    anchor = f" &{plugin}" if name in rules.shared else ""
    yield f"      args:{anchor}"
    text = yaml.safe_dump(
        args, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
    )
    yield from (f"        {line}" for line in text.splitlines())


def _policy_name(prefix: str, read: ReadProfile) -> str:
    """Return the name of a policy, after that of its profile or plugin."""
    given = read.profile.plugin_config[0].name if read.is_entry else read.profile.scheduler_name
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", given).lower()
    name = re.sub(r"[^a-z0-9.-]+", "-", words).strip("-.") or "imported"
    return f"{prefix}-{name}" if prefix else name


def _quoted(text: str) -> str:
    return f"`{''.join(char if char.isprintable() else ' ' for char in text)}`"
