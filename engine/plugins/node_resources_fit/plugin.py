"""NodeResourcesFit: whether what a pod requests is free, and how full a node would be with it.

Source: pkg/scheduler/framework/plugins/noderesources/{fit,resource_allocation,least_allocated,
most_allocated,requested_to_capacity_ratio}.go, .../helper/shape_score.go. Args are validated as
they are written: an explicit weight of 0 is refused and an explicit empty list of resources
leaves nothing to score by, where the scheduler's own configuration would put its defaults.

Resources that a pod names for all its containers together count in the filter, and on its node once
the pod runs there. As in Kubernetes 1.36, the score of an incoming pod goes by its containers.
"""

from __future__ import annotations

from engine.plugins.base import Plugin, Score
from engine.plugins.node_resources_fit.args import NodeResourcesFitArgs
from engine.plugins.node_resources_fit.filter import NodeResourcesFitFilter
from engine.plugins.node_resources_fit.score import NodeResourcesFitBalance, NodeResourcesFitScore
from engine.view import Domain


def _score(args: NodeResourcesFitArgs) -> Score:
    is_balanced = args.scoring_strategy.type == "Balanced"
    return NodeResourcesFitBalance(args) if is_balanced else NodeResourcesFitScore(args)


PLUGIN = Plugin(
    args=NodeResourcesFitArgs,
    filter=NodeResourcesFitFilter,
    score=_score,
    reads=(Domain.NODES, Domain.PODS),
)
