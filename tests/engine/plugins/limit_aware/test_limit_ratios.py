from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.plugins.limit_aware.limit_ratios import (
    LIMIT_TO_ALLOCATABLE,
    MOST_CAPACITY,
    MOST_PERCENT,
    NodeRatios,
    Written,
    read,
)
from tests.engine.measured_cluster import cluster, node

BY_CLUSTER: Written = {"cpu": 150, "memory": "50%"}


def _capacity(name: str, own: str | None, **allocatable: str) -> tuple[bool, int]:
    view = cluster([node("a", {} if own is None else {LIMIT_TO_ALLOCATABLE: own}, **allocatable)])
    covered, amounts = NodeRatios(BY_CLUSTER).capacity(view, name)
    return bool(covered[0]), int(amounts[0])


def _fault(own: str, **allocatable: str) -> str:
    one = node("a", {LIMIT_TO_ALLOCATABLE: own}, **allocatable)
    ratios, view = NodeRatios(BY_CLUSTER), cluster([one])
    assert ratios.faulty(view).tolist() == [bool(ratios.fault_of(one))]
    return ratios.fault_of(one)


def test_a_ratio_scales_what_a_node_offers_and_truncates() -> None:
    assert _capacity("cpu", None, cpu="7m") == (True, 10)  # 7 * 150 / 100 = 10.5
    assert _capacity("memory", None, memory="101") == (True, 50)
    assert _capacity("ephemeral-storage", None, **{"ephemeral-storage": "9"}) == (False, 9)


def test_an_annotation_replaces_all_ratios_of_the_cluster() -> None:
    assert _capacity("cpu", '{"memory":200}', cpu="8") == (False, 8000)
    assert _capacity("memory", '{"memory":"200%"}', memory="8") == (True, 16)
    assert _capacity("cpu", "{}", cpu="8") == (False, 8000)
    assert _capacity("cpu", "null", cpu="8") == (False, 8000)
    assert _capacity("cpu", '{"cpu":null}', cpu="8") == (True, 0)


@pytest.mark.parametrize("text", ["150", "1.5%", "%", "x%", " 5%", "5 %", ""])
def test_a_text_that_is_not_a_whole_percentage_is_a_fault(text: str) -> None:
    faults = read({"cpu": text}).faults
    assert faults == {"cpu": f"the ratio of cpu, `{text}`, is neither an integer nor a percentage"}


@pytest.mark.parametrize(("text", "percent"), [("5%", 5), ("+5%", 5), ("-5%", -5), ("007%", 7)])
def test_a_percentage_is_read_as_go_reads_it(text: str, percent: int) -> None:
    assert read({"cpu": text}).percents == {"cpu": percent}


@pytest.mark.parametrize(
    "own", ["", "{", "[]", "5", '{"cpu":1.5}', '{"cpu":3000000000}', '{"cpu":true}']
)
def test_a_malformed_annotation_is_a_fault_of_its_node(own: str) -> None:
    assert _fault(own) == f"annotation `{LIMIT_TO_ALLOCATABLE}` is not a JSON map of ratios"


def test_a_fault_in_a_scalar_ratio_harms_only_nodes_that_offer_the_resource() -> None:
    own = '{"x.com/gpu":"many"}'
    assert _fault(own, cpu="1") == ""
    assert "`many`" in _fault(own, cpu="1", **{"x.com/gpu": "0"})
    assert "`all`" in _fault('{"ephemeral-storage":"all"}', cpu="1")
    assert _fault('{"gpu":"many"}', gpu="1") == ""  # counted nowhere


@given(st.integers(0, 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_no_capacity_wraps(amount: int, percent: int) -> None:
    covered, capacity = _capacity("memory", f'{{"memory":{percent}}}', memory=str(amount))
    assert covered
    bounded = max(-MOST_PERCENT, min(percent, MOST_PERCENT))
    exact = min(amount, 2**48) * abs(bounded) // 100
    assert abs(capacity) == min(exact, MOST_CAPACITY)
    assert capacity * percent >= 0
