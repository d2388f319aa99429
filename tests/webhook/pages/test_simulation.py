from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from engine.report import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    ArrivalsSummary,
    BindingCounts,
    Crowd,
    HottestNode,
    Measure,
    NodeLevels,
    PodFate,
    PodName,
    PodOutcome,
    RuleRejections,
    Sample,
    SimulatedCluster,
    SimulationReport,
    Spread,
    UnplacedReason,
    Victim,
)
from tests.webhook.pages.reports import HOSTILE
from webhook.pages import report_page

LOADS = {"stock": (10.0, 95.0, 30.0), "calm": (40.0, 45.0, 50.0)}


def arm(name: str, **more: Any) -> ArmReport:  # noqa: ANN401 (any part of an arm)
    loads = LOADS.get(name, (1.0, 2.0, 3.0))
    level = NodeLevels(measure=Measure.LOAD, resource="cpu", percent=loads)
    spread = Spread(
        measure=Measure.LOAD, resource="cpu", mean=45.0, spread=4.1, p50=45.0, p90=50.0, max=50.0
    )
    given: dict[str, Any] = {
        "name": name,
        "placement": ArmPlacement.ADVICE,
        "policies": (),
        "landed": 12_345,
        "unplaced": 0,
        "refused": 0,
        "moves": 3,
        "nodes_used": 3,
        "crowd": Crowd(),
        "hot_nodes": 1,
        "spreads": (spread,),
        "levels": (level,),
    }
    return ArmReport(**{**given, **more})


def report(*arms: ArmReport, text: str = "text") -> SimulationReport:
    return SimulationReport(
        cluster=SimulatedCluster(
            recorded_at=text,
            nodes=(text, "node2", "node3"),
            zones=("a", "a", text),
            fixed_pods=2,
            resources=("cpu",),
            thresholds={"cpu": 65.0},
        ),
        arrivals=ArrivalsSummary(source=ArrivalSource.RECORDING, pods=12_345, seconds=60),
        changes=(text,),
        figures_at=60,
        seed=1,
        arms=arms,
        notes=(text,),
    )


def figures_in(text: str) -> dict[str, Any]:
    start = text.index('id="figures">') + len('id="figures">')
    found: dict[str, Any] = msgspec.json.decode(text[start : text.index("</script>", start)])
    return found


def test_each_arm_has_a_heat_map_and_all_share_a_distribution() -> None:
    figures = figures_in(report_page(report(arm("stock"), arm("calm"))))
    assert {"heat-map-0", "heat-map-1", "distribution-0"} <= set(figures)
    stock, calm = figures["distribution-0"]["data"]
    # bins of 10 %: stock has 10, 95 and 30 %, calm 40, 45 and 50 %
    assert [i for i, count in enumerate(stock["y"]) if count] == [1, 3, 9]
    assert calm["y"][4:6] == [2, 1]
    names = {trace["name"] for trace in figures["heat-map-0"]["data"]}
    assert "above the threshold (1)" in names


def test_the_heat_maps_are_a_table_too() -> None:
    text = report_page(report(arm("stock"), arm("calm")))
    row = text[text.index('title="node2">node2</span></th>') :]
    row = row[: row.index("</tr>")]
    assert row.count("<td") == 3  # its zone, and a level per arm
    assert ">95.0<" in row


def test_what_each_rule_turned_away_is_drawn_and_listed() -> None:
    rejected = RuleRejections(policy="calm", rule="busy", pods=4, nodes=40, example="too busy")
    text = report_page(report(arm("stock"), arm("calm", rejections=(rejected,))))
    (bars,) = figures_in(text)["rejections-1"]["data"]
    assert (bars["y"], bars["x"], bars["text"]) == (["calm: busy"], [40], ["4 pods"])
    assert "too busy" in text


def test_samples_are_drawn_over_hours() -> None:
    samples = [Sample(seconds=s, running=1, waiting=2, hot_nodes=s, spreads=()) for s in (0, 7200)]
    figures = figures_in(report_page(report(arm("stock", samples=tuple(samples)))))
    (line,) = figures["time-hot_nodes"]["data"]
    assert (line["x"], line["y"]) == ([0.0, 2.0], [0, 7200])


def test_figures_of_arms_stand_side_by_side() -> None:
    text = report_page(report(arm("stock"), arm("calm")))
    assert "12,345" in text
    assert ">cpu load, %</th>" in text
    assert ">4.1, 50.0<" in text  # the spread, and the fullest node


def test_bounds_stand_beside_the_figures_where_there_are_any() -> None:
    page = report_page(report(arm("stock", least_nodes_used=2, least_hot_nodes=0)))
    assert "3 (&gt;= 2)" in page
    assert "(&gt;= 0)" not in page


def test_the_most_replicas_on_one_node_and_bindings_are_figures() -> None:
    crowd = Crowd(pods=7, node="node2", example=PodName("shop", "web-1"))
    bindings = BindingCounts(moved=1_234, kept=5, denied=6)
    text = report_page(report(arm("stock"), arm("calm", crowd=crowd, bindings=bindings)))
    assert "calm: 7, as shop/web-1 on node2" in text
    assert "1,234, 5, 6" in text
    assert "which count as other node than stock too" in text
    assert "bindings moved" not in report_page(report(arm("stock")))


def test_a_simulation_without_levels_is_a_table_alone() -> None:
    assert not figures_in(report_page(report(arm("stock", levels=(), spreads=()))))


def test_a_what_if_says_what_becomes_of_each_pod() -> None:
    victim = Victim(pod=PodName("a", "old"), node="node2", reason="lower priority")
    outcome = PodOutcome(
        pod=PodName("a", "new"), fate=PodFate.RECLAIMED, node="node2", victims=(victim,)
    )
    text = report_page(report(arm("stock", outcomes=(outcome,))))
    assert "evicts a/old from node2: lower priority" in text


def test_texts_of_the_cluster_are_escaped_everywhere() -> None:
    name = PodName(HOSTILE, HOSTILE)
    hostile = arm(
        HOSTILE,
        crowd=Crowd(pods=2, node=HOSTILE, example=name),
        policies=(HOSTILE,),
        rejections=(
            RuleRejections(policy=HOSTILE, rule=HOSTILE, pods=1, nodes=1, example=HOSTILE),
        ),
        reasons=(UnplacedReason(reason=HOSTILE, pods=1, example=name),),
        outcomes=(PodOutcome(pod=name, fate=PodFate.NOWHERE, message=HOSTILE),),
    )
    text = report_page(report(hostile, text=HOSTILE))
    assert "<img" not in text
    for figure in figures_in(text).values():
        for trace in figure["data"]:
            assert "<" not in trace["name"]


def test_the_answer_comes_first_and_what_was_asked_about_before_the_plots() -> None:
    waits = PodOutcome(
        pod=PodName("data", "w-1"),
        fate=PodFate.NOWHERE,
        owner="data/w",
        waited=True,
        message="full",
    )
    moved = PodOutcome(
        pod=PodName("shop", "web-1"),
        fate=PodFate.PLACED,
        owner="shop/web",
        moved_from="node2",
        node="node3",
    )
    stock = arm("stock", placement=ArmPlacement.STOCK, hot_nodes=6, outcomes=(waits, moved))
    calm = arm("calm", hot_nodes=2, outcomes=(waits, moved))
    text = report_page(report(stock, calm))
    places = [
        text.index(part)
        for part in (
            "With calm, hot nodes fall from 6 to 2",
            "<dt>Hot nodes</dt>",
            '<td class="name">shop/web</td>\n<td>all</td>',
            '<td class="name">data/w</td>\n<td>all</td>',
            'id="heat-map-0"',
            ">hot nodes (cpu &gt; 65 %)</th>",
            "<summary>Distributions</summary>",
            "<summary>How to read this</summary>",
        )
    ]
    assert places == sorted(places)


def test_hot_nodes_as_recorded_stand_in_the_tile_where_they_differ() -> None:
    stock = arm("stock", placement=ArmPlacement.STOCK, hot_nodes=6)
    calm = arm("calm", hot_nodes=2)
    recorded = arm("recorded", placement=ArmPlacement.RECORDED, hot_nodes=9)
    text = report_page(report(stock, calm, recorded))
    assert "<dt>Hot nodes (9 as recorded)</dt><dd>6 " in text
    same = report_page(report(stock, calm, arm("r", placement=ArmPlacement.RECORDED, hot_nodes=6)))
    assert "<dt>Hot nodes</dt><dd>6 " in same


def test_a_tile_of_what_stays_as_it_is_has_one_number() -> None:
    text = report_page(report(arm("stock", placement=ArmPlacement.STOCK), arm("calm")))
    assert "<dt>Fullest node, cpu load</dt><dd>50 %</dd>" in text


def test_a_what_if_begins_with_how_many_pods_get_a_node() -> None:
    def outcome(name: str, node: str = "", **more: Any) -> PodOutcome:  # noqa: ANN401
        fate = PodFate.PLACED if node else PodFate.NOWHERE
        return PodOutcome(pod=PodName("shop", name), fate=fate, node=node, **more)

    moved = outcome("moved", "node2", moved_from="node1")
    outcomes = (outcome("waits", waited=True), moved, outcome("new", "node2"), outcome("other"))
    stock = arm("stock", placement=ArmPlacement.STOCK, outcomes=outcomes)
    told = report(stock, arm("calm", outcomes=outcomes), text="drain node1")
    arrivals = ArrivalsSummary(source=ArrivalSource.CHANGES, pods=4, seconds=0, waiting=1, moved=1)
    sentence = (
        "Drain node1: 1 of 2 new and 1 of 1 moved and 0 of 1 pending pods get a node with stock and"
        " calm."
    )
    assert sentence in report_page(replace(told, arrivals=arrivals))
    many = replace(arrivals, pods=5)  # one is not told of
    assert "pods get a node with" not in report_page(replace(told, arrivals=many))


def test_the_answer_and_its_tiles_come_before_costs_and_hot_nodes_and_names_are_short() -> None:
    suffix = ".eu-central-1.compute.internal"
    hottest = HottestNode(node=f"node2{suffix}", resource="cpu", percent=66)
    calm = arm("calm", crowd=Crowd(pods=9), least_hot_nodes=0, hottest=hottest)
    told = report(arm("stock", placement=ArmPlacement.STOCK), calm)
    nodes = tuple(f"node{number}{suffix}" for number in (1, 2, 3))
    text = report_page(replace(told, cluster=replace(told.cluster, nodes=nodes)))
    places = [
        text.index(part)
        for part in (
            "With calm, hot nodes stay at 1",
            "<dt>Hot nodes</dt>",
            "Worse under calm: most replicas of one owner on one node from 0 to 9.",
            "Still hot under calm: node2, 66 % of cpu in use.",
        )
    ]
    assert places == sorted(places)
