from __future__ import annotations

from pathlib import Path

import pytest

from engine.policy import load_policies
from engine.report import ArmPlacement
from engine.simulation import Arm
from tests.bench.consolidation import day, recorded

POLICY = Path(__file__).parents[2] / "policies" / "consolidate"


@pytest.mark.parametrize("placement", [ArmPlacement.ADVICE, ArmPlacement.BINDING])
def test_consolidate_gives_nodes_back_and_with_a_buffer_nobody_waits(
    placement: ArmPlacement,
) -> None:
    cluster = recorded(nodes=24, sizes=[8, 16], seed=6, karpenter=False)
    arm = Arm(name="consolidate", placement=placement, policies=load_policies([POLICY]))
    stock, ours = (each.node_time for each in day(cluster, [arm], 6, spare=1))
    assert stock is not None
    assert ours is not None
    assert ours.node_hours < 0.85 * stock.node_hours
    assert ours.core_hours < 0.9 * stock.core_hours
    assert ours.evictions <= stock.evictions
    assert ours.longest_wait <= stock.longest_wait
