"""Args by which each plugin is tried on random clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.engine.plugins.row_clusters import GPU, P95

_RESOURCES: Final = [{"name": "cpu"}, {"name": "memory"}, {"name": GPU}]
ARGS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "DiskIOAware": [{}, {"scoreStrategy": "LeastAllocated", "writeCoefficient": 1.5}],
    "LimitAware": [
        {"defaultLimitToAllocatableRatio": {"cpu": 120, GPU: "50%"}},
        {"defaultLimitToAllocatableRatio": {"memory": 80}},
        {"defaultLimitToAllocatableRatio": {"cpu": 120, GPU: "50%"}, "strategy": "Balanced"},
    ],
    "LoadAware": [
        {},
        {"strategy": "Balanced"},
        {"aggregated": P95, "dominantResourceWeight": 3},
        {
            "prodUsageThresholds": {"cpu": 30},
            "prodUsageIncludeSys": True,
            "scoreAccordingProdUsage": True,
            "allowCustomizeEstimation": True,
            "estimatedSecondsAfterPodScheduled": 90,
            "aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"},
        },
    ],
    "LoadVariationRiskBalancing": [{"safeVarianceSensitivity": 2}],
    "LowRiskOverCommitment": [{"riskLimitWeights": {"cpu": 0.2}}],
    "NodeAffinity": [
        {},
        {
            "addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "zone", "operator": "NotIn", "values": ["c"]}
                            ]
                        }
                    ]
                }
            }
        },
    ],
    "NodeMetadata": [
        {
            "metadataKey": "cost",
            "metadataSource": "Label",
            "metadataType": "Number",
            "scoringStrategy": "Lowest",
        },
        {
            "metadataKey": "born",
            "metadataSource": "Annotation",
            "metadataType": "Timestamp",
            "scoringStrategy": "Newest",
        },
    ],
    "NodeResourceTopologyMatch": [
        {"discardReservedNodes": True},
        *(
            {"scoringStrategy": {"type": strategy}}
            for strategy in ("BalancedAllocation", "LeastNUMANodes", "MostAllocated")
        ),
    ],
    "NodeResourcesAllocatable": [
        {},
        {"mode": "Most", "resources": [{"name": GPU, "weight": 2**62}]},
    ],
    "NodeResourcesBalancedAllocation": [
        {"resources": _RESOURCES},
        {"resources": _RESOURCES, "kubernetesVersion": "1.35"},
    ],
    "NodeResourcesFit": [
        {},
        {"scoringStrategy": {"type": "MostAllocated", "resources": _RESOURCES}},
        {"scoringStrategy": {"type": "Balanced", "resources": _RESOURCES}},
        {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": [{"name": "cpu"}, {"name": GPU, "weight": 3}],
                "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 9}]},
            }
        },
    ],
    "Peaks": [{"nodePowerModel": {f"n{i}": {"k1": 1 + i, "k2": 0.1} for i in range(2)}}],
}
"""Args of a plugin that needs some, or has more than one formula."""


def args_of(name: str) -> Mapping[str, Any]:
    """Return args that a plugin accepts."""
    return ARGS.get(name, [{}])[0]
