"""NodeResourcesFit: what a pod requests must be free; score how full the node would be.

Source: pkg/scheduler/framework/plugins/noderesources/{fit,resource_allocation,least_allocated,
most_allocated,requested_to_capacity_ratio}.go, .../helper/shape_score.go. Args are validated as
they are written: an explicit weight of 0 is refused, and with an explicit empty list of resources
nothing is scored; the scheduler's own configuration would insert its defaults.

Pod-level resources count in the filter, and on the node once the pod runs there. The score of an
incoming pod uses its containers, as in Kubernetes 1.36.
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
