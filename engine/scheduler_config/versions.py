"""Earlier versions of the configuration: what a profile has by default, and scores of old names.

Source: Kubernetes 1.22, pkg/scheduler/apis/config/v1beta1/default_plugins.go and .../v1beta2, and
staging/src/k8s.io/kube-scheduler/config/v1beta1/types_pluginargs.go. Version v1beta3 has the
defaults of v1. NodePreferAvoidPods, of weight 10000 in v1beta1, is left out: no node says any more
what it preferred to avoid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
