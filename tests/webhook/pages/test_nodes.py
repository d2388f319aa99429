from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from engine.report import Crowd, Measure, PodName, Threshold
from tests.webhook.pages.reports import HOSTILE, busy, nodes_of
from webhook.pages import nodes_page, update


def test_the_heat_map_tells_nodes_apart_by_symbol_too() -> None:
    report = nodes_of({"a": 100, "b": 900, "c": None}, threshold=busy(65))
    traces = nodes_page(report, {"measure": "load"}).figures["heat-map"]["data"]
    found = {trace["text"][0]: (trace["name"], trace["marker"]["symbol"]) for trace in traces}
    assert found == {
        "a": ("below 20 % (1)", "square"),
        "b": ("above the threshold (1)", "x"),
        "c": ("unknown (1)", "circle-open"),
    }


def test_load_alone_is_in_percent_of_what_a_node_has_before_amplification() -> None:
    report = nodes_of({"a": 400})
    columns = replace(report.resources["cpu"], raw_allocatable=[500])
    amplified = replace(report, resources={"cpu": columns})
    # 400 of 500 are used; 100 of 1000 are requested.
    assert "<dd>80.0 %</dd>" in nodes_page(amplified, {"measure": "load"}).body
    assert "<dd>10.0 %</dd>" in nodes_page(amplified, {"measure": "requests"}).body


def test_each_zone_begins_a_row() -> None:
    report = nodes_of({"a": 1, "b": 1, "c": 1}, zones=("z1", "z2", "z1"))
    figure = nodes_page(report, {}).figures["heat-map"]
    (trace,) = figure["data"]
    places = dict(zip(trace["text"], zip(trace["x"], trace["y"], strict=True), strict=True))
    assert places == {"a": (0, 0), "c": (1, 0), "b": (0, 1)}
    assert figure["layout"]["yaxis"]["ticktext"] == ["z1", "z2"]


@pytest.mark.parametrize(("pods", "shown"), [(12, True), (1, False)])
def test_the_most_replicas_on_one_node_are_a_fact(*, pods: int, shown: bool) -> None:
    crowd = Crowd(pods=pods, node="a", example=PodName("shop", "web-1"))
    page = nodes_page(replace(nodes_of({"a": 1}), crowd=crowd), {})
    assert ("Most replicas on one node" in page.body) is shown
    assert ('<a href="pod?namespace=shop&amp;name=web-1">shop/web-1</a>' in page.body) is shown


def test_scales_reach_to_the_threshold_and_to_the_maximum() -> None:
    limits = Threshold(
        measure=Measure.LIMITS, resource="cpu", percent=400, policy="calm", rule="limits"
    )
    report = nodes_of({"a": 1, "b": 1, "c": 1}, threshold=limits)
    columns = replace(report.resources["cpu"], limits=[500, 3_900, 4_260])
    page = nodes_page(replace(report, resources={"cpu": columns}), {"measure": "limits"})
    # 426 % in 12 bins of a round width: 50, so 9 bins, the last from 400 %.
    bars = page.figures["distribution"]["data"][0]
    assert (bars["x"][0], bars["x"][-1], len(bars["x"])) == ("0", "400+", 9)
    assert [bars["x"][i] for i, count in enumerate(bars["y"]) if count] == ["50", "350", "400+"]
    # Five steps of 100 % reach 426 %.
    names = [trace["name"] for trace in page.figures["heat-map"]["data"]]
    assert names == ["below 100 % (1)", "300 to 400 % (1)", "above the threshold (1)"]
    # A bar is full at 426 %: 50 % is 11.7 of it, and the threshold is at 93.9.
    assert 'width="11.7"' in page.body
    assert 'width="100.0"' in page.body
    assert 'x1="93.9"' in page.body


def test_the_suffix_that_all_nodes_share_is_said_once() -> None:
    report = nodes_of(
        {"ip-1.eu-central-1.compute.internal": 1, "ip-2.eu-central-1.compute.internal": 1}
    )
    body = nodes_page(report, {}).body
    assert ">ip-1</a>" in body
    assert body.count("names of nodes end with .eu-central-1.compute.internal") == 1


def test_facts_are_of_the_measure_that_is_shown() -> None:
    # 10 %, 30 % and 80 %: mean 40; deviations 30, 10, 40 -> sqrt(2600 / 3) = 29.4
    body = nodes_page(nodes_of({"a": 100, "b": 300, "c": 800}), {"measure": "load"}).body
    assert "<dd>40.0 %</dd>" in body
    assert "<dd>29.4 points</dd>" in body
    assert "<dd>80.0 %</dd>" in body


def test_the_table_is_sorted_as_chosen_and_what_is_unknown_comes_last() -> None:
    report = nodes_of({"a": 100, "b": None, "c": 800})
    by_load = nodes_page(report, {"sort": "load"}).body
    assert by_load.index(">c<") < by_load.index(">a<") < by_load.index(">b<")
    by_name = nodes_page(report, {"sort": "name"}).body
    assert by_name.index(">a<") < by_name.index(">b<") < by_name.index(">c<")


def test_a_long_table_comes_in_parts_that_keep_the_choice() -> None:
    report = nodes_of({f"node{i:03}": i for i in range(250)})
    query = {"sort": "name", "part": "2", "find": "node"}
    body = nodes_page(report, query).body
    assert ">node100<" in body
    assert ">node099<" not in body
    assert "find=node&amp;sort=name&amp;part=3" in body


@pytest.mark.parametrize("part", ["0", "99", "-1", "x", "9" * 400, "١"])  # noqa: RUF001
def test_any_number_of_a_part_shows_some_part(part: str) -> None:
    assert ">a<" in nodes_page(nodes_of({"a": 100}), {"part": part}).body


def test_any_query_is_safe() -> None:
    query = dict.fromkeys(("resource", "measure", "find", "sort", "part"), HOSTILE)
    page = nodes_page(nodes_of({"a": 100}), query)
    assert "<img" not in page.body
    assert "no node" in page.body


def test_texts_of_the_cluster_are_escaped_in_the_table_and_in_the_plot() -> None:
    page = nodes_page(nodes_of({HOSTILE: 100, "b": 100}, zones=(HOSTILE, "z")), {})
    assert "<img" not in page.body
    assert "&lt;img" in page.body
    heat_map = page.figures["heat-map"]
    assert "<" not in heat_map["data"][0]["text"][0]
    assert "<" not in heat_map["layout"]["yaxis"]["ticktext"][0]


def test_no_node_and_no_usage_are_shown_as_such() -> None:
    assert "no node" in nodes_page(nodes_of({}), {}).body
    unknown = nodes_page(nodes_of({"a": None}), {"measure": "load"})
    assert "<dt>Unknown</dt><dd>1</dd>" in unknown.body


def test_an_update_has_the_same_parts_as_the_page() -> None:
    page = nodes_page(nodes_of({"a": 100}), {})
    found = msgspec.json.decode(update(page))
    assert (found["name"], found["body"]) == ("nodes", page.body)
    assert set(found["figures"]) == {"heat-map", "distribution"}
