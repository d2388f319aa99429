from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine.plugins.node_resource_topology_match.args import NodeResourceTopologyMatchArgs


@pytest.mark.parametrize(
    "args",
    [
        {"scoringStrategy": {"type": "Fastest"}},
        {"scoringStrategy": {}},
        {"scoringStrategy": {"type": "MostAllocated", "resources": [{"weight": 1}]}},
        {"cache": {"resyncMethod": "Sometimes"}},
        {"preemptionMode": "On"},
        {"discardReservedNodes": "yes"},
    ],
)
def test_args_are_checked(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NodeResourceTopologyMatchArgs.model_validate(args)


def test_args_have_the_upstream_defaults() -> None:
    args = NodeResourceTopologyMatchArgs()
    assert args.scoring_strategy.type == "LeastAllocated"
    assert args.weights == {"cpu": 1, "memory": 1}
    written = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}]}
    parsed = NodeResourceTopologyMatchArgs.model_validate({"scoringStrategy": written})
    assert parsed.weights == {"cpu": 1}
