"""The policies of a scheduler's configuration, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import yaml

from engine.documents import validate_model
from engine.errors import Diagnostic, InvalidFileError
from engine.plugins import PLUGINS
from engine.plugins.node_resources_fit.args import ScoringStrategy
from engine.scheduler_config.configuration import DEFAULT_SCHEDULER, ReadProfile, read_profiles
from engine.scheduler_config.enabled import FILTER, SCORE, Enabled, enabled_at
from engine.scheduler_config.notes import (
    MOST_WEIGHT,
    UNUSED_ARGS,
    elsewhere,
    filters,
    notes,
    our_name,
    scores,
)
from engine.scheduler_config.versions import DEFAULT_WEIGHTS, STRATEGIES, strategy_of

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
    """The rules that come of a profile.

    Attributes:
        filters: plugins, by the scheduler's names.
        scores: plugins.
        args: of plugins, by the scheduler's names, as a policy has them.
        mistaken: plugins that are left out, for their args have mistakes.
    """

    filters: tuple[str, ...]
    scores: tuple[Enabled, ...]
    args: Mapping[str, Mapping[str, Any]]
    mistaken: tuple[str, ...] = ()

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
    """Return the rules of a lone entry, at every point that its plugin has.

    Raises:
        InvalidFileError: it has none.
    """
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
