"""Scheduling algorithms, one file or folder each, and the table by which policies name them.

A plugin is what upstream schedulers call one: its args, its filter and its score, in integers and
with upstream's rounding. Nothing about policies, expressions or admission belongs here, and no
plugin uses another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from engine.errors import did_you_mean
from engine.plugins import (
    disk_io_aware,
    image_locality,
    inter_pod_affinity,
    limit_aware,
    load_aware,
    load_variation_risk_balancing,
    low_risk_over_commitment,
    network_overhead,
    node_affinity,
    node_metadata,
    node_ports,
    node_resource_topology_match,
    node_resources_allocatable,
    node_resources_balanced_allocation,
    node_resources_fit,
    node_unschedulable,
    peaks,
    pod_state,
    pod_topology_spread,
    resource_limit_aware,
    taint_toleration,
    target_load_packing,
)
from engine.plugins.base import (
    FAULT,
    MAX_SCORE,
    PASS,
    Args,
    Cycle,
    Filter,
    Named,
    Plugin,
    ReadBy,
    ReadsAllNodes,
    Score,
    ScoreAmong,
    Scores,
    result_of,
)
from engine.plugins.lib.constraints import allowed_by_labels
from engine.plugins.limit_aware import LIMIT_TO_ALLOCATABLE
from engine.plugins.load_aware.estimation import RAW_ALLOCATABLE
from engine.plugins.load_aware.plugin import USAGE_THRESHOLDS

PLUGINS: Final[Mapping[str, Plugin]] = MappingProxyType(
    {
        "DiskIOAware": disk_io_aware.PLUGIN,
        "ImageLocality": image_locality.PLUGIN,
        "InterPodAffinity": inter_pod_affinity.PLUGIN,
        "LimitAware": limit_aware.PLUGIN,
        "LoadAware": load_aware.PLUGIN,
        "LoadVariationRiskBalancing": load_variation_risk_balancing.PLUGIN,
        "LowRiskOverCommitment": low_risk_over_commitment.PLUGIN,
        "NetworkOverhead": network_overhead.PLUGIN,
        "NodeAffinity": node_affinity.PLUGIN,
        "NodeMetadata": node_metadata.PLUGIN,
        "NodePorts": node_ports.PLUGIN,
        "NodeResourceTopologyMatch": node_resource_topology_match.PLUGIN,
        "NodeResourcesAllocatable": node_resources_allocatable.PLUGIN,
        "NodeResourcesBalancedAllocation": node_resources_balanced_allocation.PLUGIN,
        "NodeResourcesFit": node_resources_fit.PLUGIN,
        "NodeUnschedulable": node_unschedulable.PLUGIN,
        "Peaks": peaks.PLUGIN,
        "PodState": pod_state.PLUGIN,
        "PodTopologySpread": pod_topology_spread.PLUGIN,
        "ResourceLimitAware": resource_limit_aware.PLUGIN,
        "TaintToleration": taint_toleration.PLUGIN,
        "TargetLoadPacking": target_load_packing.PLUGIN,
    }
)
"""Every plugin, by the name a policy uses."""

UPSTREAM_NAMES: Final[Mapping[str, str]] = MappingProxyType({"LoadAwareScheduling": "LoadAware"})
"""Our names of plugins by those in a scheduler's configuration, where they differ."""

_SPREAD: Final = "`plugin: PodTopologySpread`"
_INSTEAD_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{
            name: f"`plugin: NodeResourcesFit` with `args: {{ scoringStrategy: {{ type: {of} }} }}`"
            for name, of in (
                ("LeastAllocated", "LeastAllocated"),
                ("MostAllocated", "MostAllocated"),
                ("NodeResourcesLeastAllocated", "LeastAllocated"),
                ("NodeResourcesMostAllocated", "MostAllocated"),
                ("RequestedToCapacityRatio", "RequestedToCapacityRatio"),
            )
        },
        "BalancedResourceAllocation": "`plugin: NodeResourcesBalancedAllocation`",
        "CapacityScheduling": "an `ElasticQuota` for each namespace, which needs no rule",
        "Coscheduling": "a `PodGroup` for the pods of a gang, which needs no rule",
        "ElasticQuota": "an `ElasticQuota` for each namespace, which needs no rule",
        "LowNodeUtilization": "`plugin: LoadAware`",
        "NodeLabel": "an expression such as `'gpu' in node.labels`",
        "PodFitsResources": "`plugin: NodeResourcesFit`",
        **dict.fromkeys(("DefaultPodTopologySpread", "EvenPodsSpread", "SelectorSpread"), _SPREAD),
        "Trimaran": "`plugin: TargetLoadPacking` or `plugin: LoadVariationRiskBalancing`",
    }
)
"""What does the same as a plugin of other or earlier schedulers, by its name."""

_LEFT_TO_THE_SCHEDULER: Final = frozenset(
    {
        *("DefaultBinder", "DefaultPreemption", "DynamicResources", "EBSLimits", "GCEPDLimits"),
        *("NodeName", "NodeVolumeLimits", "PrioritySort", "SchedulingGates", "VolumeBinding"),
        *("VolumeRestrictions", "VolumeZone", "AzureDiskLimits", "NodeDeclaredFeatures"),
    }
)
"""Plugins of the scheduler whose work it does by itself, whatever policies say."""


def instead_of(name: str, known: Iterable[str]) -> str:
    """Return the hint for the name of a plugin that there is not, "" where there is none.

    Args:
        name: as it is written.
        known: the plugins that could be meant.
    """
    if name in _LEFT_TO_THE_SCHEDULER:
        return "drop it: the scheduler does that itself"
    return f"write {_INSTEAD_OF[name]}" if name in _INSTEAD_OF else did_you_mean(name, known)


NODE_ANNOTATIONS: Final = (LIMIT_TO_ALLOCATABLE, RAW_ALLOCATABLE, USAGE_THRESHOLDS)
"""Annotations of nodes that plugins read beside their args."""

__all__ = [
    "FAULT",
    "MAX_SCORE",
    "NODE_ANNOTATIONS",
    "PASS",
    "PLUGINS",
    "UPSTREAM_NAMES",
    "Args",
    "Cycle",
    "Filter",
    "Named",
    "Plugin",
    "ReadBy",
    "ReadsAllNodes",
    "Score",
    "ScoreAmong",
    "Scores",
    "allowed_by_labels",
    "instead_of",
    "result_of",
]
