"""Args of NodeResourceTopologyMatch.

Source: scheduler-plugins, apis/config/types.go and apis/config/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from engine.model.resource_names import CPU, MEMORY
from engine.plugins.base import Args


def _at_least_one(weight: int) -> int:
    return max(weight, 1)


class WeightedResource(Args):
    """A resource that counts, and how much; a weight below 1 counts as 1."""

    name: str
    weight: Annotated[int, Field(strict=True), AfterValidator(_at_least_one)] = 1


class ScoringStrategy(Args):
    """By what nodes are ranked."""

    type: Literal["BalancedAllocation", "LeastAllocated", "LeastNUMANodes", "MostAllocated"]
    resources: tuple[WeightedResource, ...] = ()


class CacheArgs(Args):
    """Upstream's cache of the zones; accepted and not used."""

    foreign_pods_detect: Literal["All", "None", "OnlyExclusiveResources"] = "All"
    resync_method: Literal["All", "Autodetect", "OnlyExclusiveResources"] = "Autodetect"
    informer_mode: Literal["Dedicated", "Shared"] = "Dedicated"
    resync_scope: Literal["All", "OnlyResources"] = "All"


class NodeResourceTopologyMatchArgs(Args):
    """NodeResourceTopologyMatchArgs, with upstream's defaults.

    Attributes:
        scoring_strategy: by what nodes are ranked; LeastAllocated if not given.
        cache_resync_period_seconds: accepted and not used: zones are watched.
        discard_reserved_nodes: whether to reject a node as long as a pod is expected there that is
            not bound yet, for its zones do not show that pod.
        cache: accepted and not used.
        preemption_mode: accepted and not used: nothing is preempted here.
    """

    scoring_strategy: ScoringStrategy = ScoringStrategy(
        type="LeastAllocated",
        resources=(WeightedResource(name=CPU), WeightedResource(name=MEMORY)),
    )
    cache_resync_period_seconds: Annotated[int, Field(strict=True)] = 0
    discard_reserved_nodes: Annotated[bool, Field(strict=True)] = False
    cache: CacheArgs = CacheArgs()
    preemption_mode: Literal["Disabled", "Enabled"] = "Disabled"

    @cached_property
    def weights(self) -> Mapping[str, int]:
        """The weights of resources; one that is not listed weighs 1."""
        return {resource.name: resource.weight for resource in self.scoring_strategy.resources}
