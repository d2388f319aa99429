from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.report import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    ArrivalsSummary,
    Crowd,
    Measure,
    SimulatedCluster,
    SimulationReport,
    Spread,
    answers,
)


def arm(name: str, placement: ArmPlacement, hot: int, fullest: float) -> ArmReport:
    spread = Spread(
        measure=Measure.LOAD, resource="cpu", mean=45, spread=4, p50=45, p90=50, max=fullest
    )
    return ArmReport(
        name=name,
        placement=placement,
        policies=(),
        landed=360,
        unplaced=6,
        refused=0,
        moves=234,
        nodes_used=60,
        crowd=Crowd(),
        hot_nodes=hot,
        spreads=(spread,),
        levels=(),
    )


STOCK = arm("stock", ArmPlacement.STOCK, 6, 104.2)
CALM = arm("calm", ArmPlacement.ADVICE, 2, 70.9)


def report(*arms: ArmReport) -> SimulationReport:
    return SimulationReport(
        cluster=SimulatedCluster(
            recorded_at="", nodes=(), zones=(), fixed_pods=0, resources=("cpu",), thresholds={}
        ),
        arrivals=ArrivalsSummary(source=ArrivalSource.RECORDING, pods=366, seconds=1),
        figures_at=0,
        seed=1,
        arms=arms,
        notes=(),
    )


@pytest.mark.parametrize(
    ("ours", "sentence"),
    [
        (
            CALM,
            (
                "calm takes hot nodes from 6 to 2 and the fullest node from 104 to 71 % of cpu in"
                " use; 234 pods of 366 elsewhere."
            ),
        ),
        (
            replace(CALM, hot_nodes=6, moves=1),
            (
                "calm takes the fullest node from 104 to 71 % of cpu in use and leaves hot nodes"
                " at 6; 1 pod of 366 elsewhere."
            ),
        ),
        (
            replace(CALM, spreads=(), unplaced=4, refused=5),
            (
                "calm takes hot nodes from 6 to 2; 234 pods of 369 elsewhere, 3 pods more without a"
                " node."
            ),
        ),
        (
            replace(CALM, spreads=(), unplaced=5),
            (
                "calm takes hot nodes from 6 to 2; 234 pods of 365 elsewhere, 1 pod fewer without a"
                " node."
            ),
        ),
    ],
)
def test_an_arm_is_compared_with_the_first_one_in_a_sentence(
    ours: ArmReport, sentence: str
) -> None:
    recorded = arm("recorded", ArmPlacement.RECORDED, 9, 99)
    assert answers(report(STOCK, ours, recorded)) == (sentence,)


def test_each_arm_with_policies_has_a_sentence() -> None:
    assert len(answers(report(STOCK, CALM, replace(CALM, name="other")))) == 2


def test_without_policies_the_first_arm_is_the_answer() -> None:
    (sentence,) = answers(report(STOCK))
    assert sentence == "360 pods would get a node, 6 would not; 6 hot nodes under stock alone."
    assert answers(report()) == ()
