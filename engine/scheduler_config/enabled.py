"""The plugins that a profile enables as filters and as scores, in order, with their weights.

Source: Kubernetes, pkg/scheduler/apis/config/v1/default_plugins.go (getDefaultPlugins,
mergePlugins) and pkg/scheduler/framework/runtime/framework.go (expandMultiPointPlugins).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.scheduler_config.configuration import PluginSet
from engine.scheduler_config.versions import DEFAULT_WEIGHTS

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
