from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine.report import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    ArrivalsSummary,
    Crowd,
    HottestNode,
    Measure,
    NodeTime,
    SimulatedCluster,
    SimulationReport,
    Spread,
    answers,
    remarks,
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
                "With calm, hot nodes fall from 6 to 2, the fullest node falls from 104 to 71 % of"
                " cpu in use, and 234 of 366 pods go elsewhere."
            ),
        ),
        (
            replace(CALM, hot_nodes=6, moves=1),
            (
                "With calm, hot nodes stay at 6, the fullest node falls from 104 to 71 % of cpu in"
                " use, and 1 of 366 pods goes elsewhere."
            ),
        ),
        (
            arm("calm", ArmPlacement.ADVICE, 8, 104.4),
            (
                "With calm, hot nodes rise from 6 to 8, the fullest node stays at 104 % of cpu in"
                " use, and 234 of 366 pods go elsewhere."
            ),
        ),
        (
            replace(CALM, hot_nodes=0, spreads=(), moves=0),
            "With calm, hot nodes fall from 6 to 0, and no pod goes elsewhere.",
        ),
        (
            replace(CALM, hot_nodes=6, spreads=(), moves=0),
            "With calm, hot nodes stay at 6, and no pod goes elsewhere.",
        ),
        (
            replace(CALM, spreads=(), unplaced=4, refused=5),
            (
                "With calm, hot nodes fall from 6 to 2, 234 of 369 pods go elsewhere, and 3 more"
                " pods have no node."
            ),
        ),
        (
            replace(CALM, spreads=(), unplaced=5),
            (
                "With calm, hot nodes fall from 6 to 2, 234 of 365 pods go elsewhere, and 1"
                " fewer pod has no node."
            ),
        ),
    ],
)
def test_an_arm_is_compared_with_the_first_one_in_a_sentence(
    ours: ArmReport, sentence: str
) -> None:
    recorded = arm("recorded", ArmPlacement.RECORDED, 6, 99)
    assert answers(report(STOCK, ours, recorded)) == (sentence,)


RECORDED = arm("recorded", ArmPlacement.RECORDED, 9, 99)


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ((CALM,), "hot nodes fall from 6 (stock; 9 as recorded) to 2, "),
        ((replace(CALM, hot_nodes=6),), "hot nodes stay at 6 (stock; 9 as recorded), "),
        ((), "6 hot nodes under stock alone, 9 as recorded."),
    ],
)
def test_hot_nodes_of_the_recording_are_told_where_they_differ(
    arms: tuple[ArmReport, ...], words: str
) -> None:
    (sentence,) = answers(report(STOCK, *arms, RECORDED))
    assert words in sentence


def requests(resource: str, spread: float) -> Spread:
    return Spread(
        measure=Measure.REQUESTS, resource=resource, mean=45, spread=spread, p50=45, p90=50, max=60
    )


def limits(resource: str, spread: float) -> Spread:
    return replace(requests(resource, spread), measure=Measure.LIMITS)


def test_what_becomes_worse_by_more_than_a_little_is_told() -> None:
    # cpu requests: by 6.5 points; its limits: by 3 points, 10 %; memory: both by the same 3 of 5.
    before = (
        requests("cpu", 5.5),
        limits("cpu", 30),
        requests("memory", 5),
        limits("memory", 5),
    )
    after = (requests("cpu", 12), limits("cpu", 33), requests("memory", 8), limits("memory", 8))
    ours = replace(CALM, spreads=after, crowd=Crowd(pods=5))
    assert remarks(report(replace(STOCK, spreads=before, crowd=Crowd(pods=2)), ours)) == (
        (
            "Worse under calm: spread of cpu requests from 5.5 to 12, spread of memory requests"
            " and limits from 5 to 8, most replicas of one owner on one node from 2 to 5."
        ),
    )


def test_an_arm_that_makes_nothing_worse_has_no_remark() -> None:
    better = replace(STOCK, spreads=(requests("cpu", 12),), crowd=Crowd(pods=5))
    assert not remarks(report(better, replace(CALM, spreads=(requests("cpu", 13.9),))))
    assert not remarks(report(STOCK))


def test_a_spread_is_no_cost_where_fewer_nodes_are_used() -> None:
    stock = replace(STOCK, spreads=(requests("cpu", 5),))
    packed = replace(CALM, nodes_used=40, spreads=(requests("cpu", 30),))
    assert not remarks(report(stock, packed))


def test_nodes_that_come_and_go_have_costs() -> None:
    none = NodeTime(node_hours=100, core_hours=800, evictions=0, waiting_hours=0, longest_wait=0)
    some = replace(none, evictions=3, node_hours=110)
    assert remarks(report(replace(STOCK, node_time=none), replace(CALM, node_time=some))) == (
        "Worse under calm: pods evicted as nodes went from 0 to 3.",
    )


HOTTEST = HottestNode(
    node="node1", resource="cpu", percent=66, owner="shop/web", owner_pods=2, owner_percent=41.2
)


@pytest.mark.parametrize(
    ("ours", "sentences"),
    [
        (
            {"hot_nodes": 1},
            (
                (
                    "Still hot under calm: node1, 66 % of cpu in use, the most by shop/web"
                    " (2 pods, 41.2 %)."
                ),
            ),
        ),
        (
            {"hot_nodes": 3, "hottest": replace(HOTTEST, owner="")},
            ("Still hot under calm: node1, 66 % of cpu in use; and 2 more nodes.",),
        ),
        ({"hot_nodes": 1, "least_hot_nodes": 1}, ()),
        ({"hot_nodes": 1, "least_hot_nodes": None}, ()),
        ({"hot_nodes": 0, "hottest": None}, ()),
    ],
)
def test_the_hottest_node_is_told_where_fewer_could_be_hot(
    ours: dict[str, Any], sentences: tuple[str, ...]
) -> None:
    calm = replace(CALM, **{"least_hot_nodes": 0, "hottest": HOTTEST, **ours})
    assert remarks(report(STOCK, calm)) == sentences


def test_each_arm_with_policies_has_a_sentence() -> None:
    assert len(answers(report(STOCK, CALM, replace(CALM, name="other")))) == 2


def test_without_policies_the_first_arm_is_the_answer() -> None:
    (sentence,) = answers(report(STOCK))
    assert sentence == "360 pods would get a node, 6 would not; 6 hot nodes under stock alone."
    assert answers(report()) == ()
