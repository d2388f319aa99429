"""What a profile says and a policy cannot, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.plugins import PLUGINS, UPSTREAM_NAMES
from engine.scheduler_config.configuration import Profile, ReadProfile
from engine.scheduler_config.enabled import (
    FILTER,
    SCORE,
    enabled_at,
    names_anywhere,
)
from engine.scheduler_config.versions import DEFAULT_WEIGHTS, FIT, STRATEGIES

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
