"""One module per plugin, each with its `STAGES`: stage name to the function that runs a case.

A new plugin is one file here and one line in the table below. What decides, explains or reads files
does not belong here: a stage turns the JSON of a case into a call of the engine and compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.stages import (
    balancedallocation,
    capacityscheduling,
    cel,
    coscheduling,
    crossnodepreemption,
    diskio,
    imagelocality,
    koordinator_elasticquota,
    limitaware,
    loadaware,
    loadvariation,
    lowrisk,
    networkoverhead,
    nodeaffinity,
    noderesources,
    noderesourcesallocatable,
    noderesourcetopology,
    peaks,
    podrequests,
    podstate,
    preemptiontoleration,
    quantity,
    queuesort,
    resourcelimitaware,
    targetloadpacking,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage

PLUGINS: Mapping[str, Mapping[str, Stage]] = {
    "CapacityScheduling": capacityscheduling.STAGES,
    "CEL": cel.STAGES,
    "Coscheduling": coscheduling.STAGES,
    "CrossNodePreemption": crossnodepreemption.STAGES,
    "DiskIOAware": diskio.STAGES,
    "ElasticQuota": koordinator_elasticquota.STAGES,
    "ElasticQuotaController": capacityscheduling.STAGES,
    "ImageLocality": imagelocality.STAGES,
    "LimitAware": limitaware.STAGES,
    "LoadAware": loadaware.STAGES,
    "LoadVariationRiskBalancing": loadvariation.STAGES,
    "LowRiskOverCommitment": lowrisk.STAGES,
    "NetworkOverhead": networkoverhead.STAGES,
    "NodeAffinity": nodeaffinity.STAGES,
    "NodeResourcesAllocatable": noderesourcesallocatable.STAGES,
    "NodeResourcesBalancedAllocation": balancedallocation.STAGES,
    "NodeResourcesFit/LeastAllocated": noderesources.STAGES,
    "NodeResourcesFit/MostAllocated": noderesources.STAGES,
    "NodeResourcesFit/RequestedToCapacityRatio": noderesources.STAGES,
    "NodeResourceTopologyMatch": noderesourcetopology.STAGES,
    "Peaks": peaks.STAGES,
    "PodGroupController": coscheduling.STAGES,
    "PodRequests/PodLimits": podrequests.STAGES,
    "PodState": podstate.STAGES,
    "PreemptionToleration": preemptiontoleration.STAGES,
    "PrioritySort": queuesort.STAGES,
    "QOSSort": queuesort.STAGES,
    "resource.Quantity": quantity.STAGES,
    "ResourceLimitAware": resourcelimitaware.STAGES,
    "TargetLoadPacking": targetloadpacking.STAGES,
    "TopologicalSort": queuesort.STAGES,
}
"""The plugin that a case or its group names, to its stages."""

__all__ = ["PLUGINS"]
