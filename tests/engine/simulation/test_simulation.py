from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from engine.policy import load_policies
from engine.report import (
    ArmPlacement,
    ArmReport,
    BindingCounts,
    HottestNode,
    Measure,
    SimulationReport,
)
from engine.simulation import (
    Arm,
    RecordedCluster,
    Simulation,
    generated_arrivals,
    recorded_arrivals,
    simulate,
    what_if,
)
from tests.engine.measured_cluster import GI, node, report
from tests.engine.simulation.recordings import (
    large_node,
    of_daemon_set,
    of_deployment,
    policies,
    recorded_pod,
    recording,
)

LIMITS = "{scores: [{plugin: LimitAware}]}"
NODE2 = "{filters: [{name: only-b, expression: \"node.name == 'b'\", message: not b}]}"


def replay(cluster: RecordedCluster, *arms: Arm, seed: int = 1) -> SimulationReport:
    """Return the report on the recorded pods of a cluster."""
    scenario = what_if(cluster, (), recorded_arrivals(cluster.pods))
    return simulate(Simulation(scenario=scenario, arms=arms, seed=seed))


def spread(arm: ArmReport, measure: Measure, resource: str = "cpu") -> tuple[float, float, float]:
    """Return mean, standard deviation and maximum in percent."""
    (found,) = [s for s in arm.spreads if (s.measure, s.resource) == (measure, resource)]
    return found.mean, found.spread, found.max


def arm(placement: ArmPlacement, spec: str = NODE2) -> Arm:
    """Return an arm with one policy."""
    return Arm(name=str(placement), placement=placement, policies=policies(spec))


def test_the_scheduler_spreads_what_was_recorded_on_one_node() -> None:
    pods = [recorded_pod(f"p{n}", "a", cpu="2", second=n) for n in range(4)]
    result = replay(recording([large_node("a"), large_node("b")], pods))
    stock, recorded = result.arms
    assert (stock.name, recorded.name) == ("stock", "recorded")
    assert spread(stock, Measure.REQUESTS) == (50.0, 0.0, 50.0)  # 2 pods of 2 of 8 cores each
    assert spread(recorded, Measure.REQUESTS) == (50.0, 50.0, 100.0)
    assert (stock.nodes_used, recorded.nodes_used) == (2, 1)
    assert (stock.landed, stock.unplaced, stock.refused, stock.moves) == (4, 0, 0, 0)
    assert recorded.moves == 2


def test_load_goes_with_its_pod_and_the_rest_stays() -> None:
    # a uses 5 cores: 4 by its pods, each half of it, 1 by the system.
    pods = [recorded_pod(f"p{n}", "a", cpu="2", second=n) for n in range(2)]
    usage = report("a", {"cpu": 5000, "memory": 4 * GI}, system_usage={"cpu": 1000})
    reports = [usage, report("b", {"cpu": 0, "memory": 0})]
    result = replay(recording([large_node("a"), large_node("b")], pods, reports))
    loads = {arm.name: level.percent for arm in result.arms for level in arm.levels[2:3]}
    assert loads["recorded"] == (62.5, 0.0)  # 5 of 8 cores
    assert sorted(loads["stock"]) == [25.0, 37.5]  # 2 of 8; 1 + 2 of 8


def test_pods_of_daemon_sets_stay_and_are_no_arrivals() -> None:
    pods = [of_daemon_set("agent", "a"), recorded_pod("p", "a")]
    result = replay(recording([large_node("a")], pods))
    assert (result.arrivals.pods, result.cluster.fixed_pods) == (1, 1)
    assert spread(result.arms[0], Measure.REQUESTS)[0] == 25.0  # 2 of 8 cores


def test_the_least_spread_is_beside_that_of_an_arm() -> None:
    # Of 8 cores each, 4 stay on a. Both pods, of 1 core, go to b: 50 and 25 %. Nowhere would they
    # be better, even in parts. The recording has them on a: 75 and 0 %.
    pods = [of_daemon_set("agent", "a", cpu="4"), *(recorded_pod(name, "a") for name in "pq")]
    stock, recorded = replay(recording([large_node("a"), large_node("b")], pods)).arms
    assert [(arm.spreads[0].spread, arm.spreads[0].least) for arm in (stock, recorded)] == [
        (12.5, 12.5),
        (37.5, 12.5),
    ]


def test_the_fewest_nodes_are_beside_those_of_an_arm() -> None:
    # Four pods request 2 cores each, and use 3: one node of 8 cores has room for all of them. Both
    # nodes together take 10.4 cores before any is hot, and one takes all that is more.
    pods = [recorded_pod(f"p{n}", "a", cpu="2", second=n) for n in range(4)]
    reports = [report("a", {"cpu": 12_000, "memory": 0}), report("b", {"cpu": 0, "memory": 0})]
    result = replay(recording([large_node("a"), large_node("b")], pods, reports))
    stock, recorded = result.arms
    assert (stock.nodes_used, stock.hot_nodes) == (2, 2)
    assert (recorded.nodes_used, recorded.hot_nodes) == (1, 1)
    assert {(arm.least_nodes_used, arm.least_hot_nodes) for arm in result.arms} == {(1, 1)}


def test_no_bound_is_told_of_a_cluster_that_is_overcommitted() -> None:
    pods = [recorded_pod(f"p{n}", "a", cpu="2", second=n) for n in range(5)]
    stock, recorded = replay(recording([large_node("a"), large_node("b")], pods)).arms
    assert (stock.least_nodes_used, recorded.least_nodes_used) == (2, None)


def test_a_pod_that_fits_nowhere_is_counted_with_the_reason() -> None:
    pods = [recorded_pod("p", cpu="9"), recorded_pod("q", "a")]
    stock = replay(recording([large_node("a")], pods)).arms[0]
    assert (stock.landed, stock.unplaced) == (1, 1)
    (reason,) = stock.reasons
    assert reason.reason == "0/1 nodes are available: 1 Insufficient cpu."
    assert (str(reason.example), reason.pods) == ("shop/p", 1)


@pytest.mark.parametrize("placement", [ArmPlacement.ADVICE, ArmPlacement.BINDING])
def test_policies_decide_in_their_arm(placement: ArmPlacement) -> None:
    pods = [recorded_pod(f"p{n}", "a", second=n) for n in range(3)]
    stock, ours, _ = replay(recording(map(large_node, "abc"), pods), arm(placement)).arms
    assert (ours.nodes_used, ours.policies) == (1, ("rules",))
    assert ours.landed == 3
    (rejections,) = ours.rejections
    assert (rejections.rule, rejections.pods, rejections.nodes) == ("only-b", 3, 6)
    assert rejections.example == "not b"
    assert not stock.rejections


def test_moves_are_counted_against_the_scheduler_alone() -> None:
    pods = [recorded_pod("p", "a")]
    report = replay(recording([large_node("a"), large_node("b")], pods), arm(ArmPlacement.BINDING))
    stock, ours, _ = report.arms
    landed_on_b = stock.levels[0].percent[1] > 0
    assert (stock.moves, ours.moves) == (0, int(not landed_on_b))


def test_a_pod_that_an_arm_refuses_has_not_moved() -> None:
    pods = [recorded_pod("p", "a")]
    spec = "{filters: [{name: nobody, expression: 'false'}], placement: {whenNoneFits: Deny}}"
    ours = replay(recording([large_node("a")], pods), arm(ArmPlacement.ADVICE, spec)).arms[1]
    assert (ours.refused, ours.moves) == (1, 0)


def test_a_policy_that_denies_refuses_a_pod() -> None:
    spec = (
        "{filters: [{name: nobody, expression: 'false', message: it is closed}],"
        " placement: {whenNoneFits: Deny}}"
    )
    pods = [recorded_pod("p", "a")]
    ours = replay(recording([large_node("a")], pods), arm(ArmPlacement.ADVICE, spec)).arms[1]
    assert (ours.refused, ours.unplaced, ours.landed) == (1, 0, 0)
    assert "it is closed" in ours.reasons[0].reason


def test_a_node_above_a_threshold_is_hot() -> None:
    pods = [recorded_pod("p", "a", cpu="6")]
    reports = [report("a", {"cpu": 5300, "memory": 0})]  # 66.25 % of 8 cores
    assert replay(recording([large_node("a")], pods, reports)).arms[0].hot_nodes == 1
    reports = [report("a", {"cpu": 5203, "memory": 0})]  # 65.04 %, which is shown as 65.0
    assert replay(recording([large_node("a")], pods, reports)).arms[0].hot_nodes == 0


def test_the_hottest_node_is_told_with_whose_pods_use_most_of_it() -> None:
    pods = [of_deployment("web", number, "a", cpu="1") for number in range(2)]
    pods += [recorded_pod("alone", "a", cpu="1500m"), of_deployment("web", 2, "b", cpu="6")]
    # Of 8 cores 7 are 87.5 %: by requests 4 for web and 3 for alone. 5.6 are 70 %.
    reports = [
        report("a", {"cpu": 7000, "memory": 0}),
        report("b", {"cpu": 5600, "memory": 0}),
    ]
    recorded = replay(recording(map(large_node, "ab"), pods, reports)).arms[-1]
    assert recorded.hot_nodes == 2
    assert recorded.hottest == HottestNode(
        node="a",
        resource="cpu",
        percent=87.5,
        owner="shop/web-abc",
        owner_pods=2,
        owner_percent=50.0,
    )


def test_without_a_hot_node_none_is_the_hottest() -> None:
    (stock, _) = replay(recording([large_node("a")], [recorded_pod("p", "a")])).arms
    assert stock.hottest is None


def test_a_policy_sees_the_load_of_those_before() -> None:
    # Each pod uses 3 of 4 cores though it requests 1; LoadAware keeps nodes below 60 %.
    pods = [recorded_pod(f"p{n}", n, cpu="1", second=100 * i) for i, n in enumerate("abc")]
    reports = [report(name, {"cpu": 3000, "memory": GI}) for name in "abc"]
    nodes = [node(name, cpu="4", memory="16Gi", pods="110") for name in "abc"]
    spec = "{filters: [{plugin: LoadAware, args: {usageThresholds: {cpu: 60}}}]}"
    cluster = recording(nodes, pods, reports)
    ours = replay(cluster, arm(ArmPlacement.BINDING, spec)).arms[1]
    assert ours.nodes_used == 3
    assert spread(ours, Measure.LOAD) == (75.0, 0.0, 75.0)


def test_pods_end_and_those_that_wait_are_tried_again() -> None:
    # A node for four pods; over the day there are eight, each for a day on average.
    pods = [recorded_pod(f"p{n}", "a", cpu="2") for n in range(4)]
    cluster = recording([large_node("a")], pods)
    scenario = what_if(cluster, (), generated_arrivals(pods, seed=5))
    (stock,) = simulate(Simulation(scenario=scenario)).arms
    assert stock.samples[0].running == 4
    assert stock.samples[-1].seconds == max(s.seconds for s in stock.samples)
    assert all(sample.running <= 4 for sample in stock.samples)
    assert any(sample.waiting for sample in stock.samples)
    assert 4 < stock.landed <= 8


def test_the_same_arguments_give_the_same_report() -> None:
    pods = [recorded_pod(f"p{n}", "a", second=n) for n in range(20)]
    cluster = recording(map(large_node, "abcd"), pods)
    reports = [
        msgspec.json.encode(replay(cluster, arm(ArmPlacement.ADVICE, LIMITS), seed=seed))
        for seed in (1, 1, 2)
    ]
    assert reports[0] == reports[1] != reports[2]


def test_nothing_arrives_on_nothing() -> None:
    result = replay(recording([], []))
    assert [(arm.landed, arm.nodes_used, arm.hot_nodes) for arm in result.arms] == [(0, 0, 0)] * 2


# At binding.

RANK_B = "{scores: [{name: b, expression: \"node.name == 'b' ? 1 : 0\"}]%s}"


def bindings(result: SimulationReport) -> BindingCounts:
    found = result.arms[1].bindings
    assert found is not None
    return found


def test_the_scheduler_s_node_is_kept_or_replaced_and_both_are_counted() -> None:
    pods = [recorded_pod(f"p{n}", "a", second=n) for n in range(6)]
    result = replay(recording(map(large_node, "ab"), pods), arm(ArmPlacement.BINDING, RANK_B % ""))
    stock, ours = result.arms[:2]
    # a and b differ by 100 points: every pod ends on b, moved if the scheduler took a.
    assert (ours.nodes_used, ours.landed) == (1, 6)
    counts = bindings(result)
    assert counts.moved + counts.kept == 6
    assert counts.moved > 0
    assert counts.denied == 0
    assert stock.bindings is None


def test_a_move_for_too_little_is_not_made() -> None:
    pods = [recorded_pod(f"p{n}", "a", second=n) for n in range(6)]
    # One of two scores, so b is better by 50 of 100 points.
    spec = (
        "{scores: [{name: b, expression: \"node.name == 'b' ? 1 : 0\"},"
        " {name: same, expression: '1'}], placement: {at: Binding, minGain: %d}}"
    )
    for gain, moves in ((50, True), (51, False)):
        result = replay(
            recording(map(large_node, "ab"), pods), arm(ArmPlacement.BINDING, spec % gain)
        )
        assert bool(bindings(result).moved) is moves


def test_what_filters_say_of_labels_is_promised_before_the_scheduler_looks() -> None:
    disks = {"a": "hdd", "b": "ssd"}
    nodes = [replace(large_node(name), labels={"disk": disk}) for name, disk in disks.items()]
    spec = "{filters: [{name: ssd, expression: \"node.labels['disk'] == 'ssd'\"}]}"
    pods = [recorded_pod(f"p{n}", "a", second=n) for n in range(4)]
    result = replay(recording(nodes, pods), arm(ArmPlacement.BINDING, spec))
    assert bindings(result) == BindingCounts(kept=4)
    assert result.arms[1].nodes_used == 1


def test_a_pod_that_is_let_wait_is_tried_again_when_nodes_are_measured() -> None:
    # Both pods use 5 of 8 cores, beyond 60 %; so the second waits, and for ever: nothing ends.
    # A third one comes an hour later, and both that wait are tried then.
    pods = [recorded_pod(f"p{n}", "a", cpu="2", second=3600 * n) for n in range(3)]
    reports = [report("a", {"cpu": 7500, "memory": 0})]
    spec = (
        "{filters: [{plugin: LoadAware, args: {usageThresholds: {cpu: 50}}}],"
        " placement: {at: Binding, whenNoneFits: Wait}}"
    )
    result = replay(recording([large_node("a")], pods, reports), arm(ArmPlacement.BINDING, spec))
    ours = result.arms[1]
    # The first uses 2.5 of 8 cores, 31 %; with the next one it is 62 %.
    assert (ours.landed, ours.unplaced, ours.refused) == (1, 2, 0)
    assert bindings(result).denied > 2
    assert ours.reasons[0].reason.startswith("its policies leave no node")


def test_a_policy_that_denies_at_creation_lets_wait_at_binding() -> None:
    spec = (
        "{filters: [{name: nobody, expression: 'false', message: it is closed}],"
        " placement: {whenNoneFits: Deny}}"
    )
    cluster = recording([large_node("a")], [recorded_pod("p", "a")])
    ours = replay(cluster, arm(ArmPlacement.BINDING, spec)).arms[1]
    assert (ours.refused, ours.unplaced, ours.landed) == (0, 1, 0)


def test_the_most_replicas_of_one_owner_on_one_node_are_told() -> None:
    pods = [of_deployment("web", number, "a", second=number) for number in range(3)]
    pods += [of_deployment("api", number, "b", second=number) for number in range(2)]
    pods += [of_daemon_set("agent", "b"), recorded_pod("alone", "b")]
    recorded = replay(recording(map(large_node, "ab"), pods)).arms[-1]
    assert (recorded.crowd.pods, recorded.crowd.node) == (3, "a")
    assert str(recorded.crowd.example).startswith("shop/web-abc-")


@pytest.mark.parametrize("placement", [ArmPlacement.ADVICE, ArmPlacement.BINDING])
def test_replicas_are_on_as_many_nodes_as_with_the_scheduler_alone(
    placement: ArmPlacement,
) -> None:
    """By measured load alone the idle node would be the best for nearly all of them."""
    names = [f"n{number}" for number in range(8)]
    reports = [report(name, {"cpu": 100 if name == "n3" else 3000, "memory": GI}) for name in names]
    pods = [of_deployment("web", number, cpu="100m", second=number) for number in range(6)]
    shipped = load_policies([Path(__file__).parents[3] / "policies" / "balanced"])
    ours = Arm(name="ours", placement=placement, policies=shipped)
    nodes = [replace(large_node(name), labels={"kubernetes.io/hostname": name}) for name in names]
    stock, found = replay(recording(nodes, pods, reports), ours).arms[:2]
    assert stock.nodes_used == 6
    assert found.nodes_used >= 5
    assert found.crowd.pods <= 2
