from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.namespace import ResourceQuota, resource_quota_of
from engine.report import ArmReport, ArrivalSource, PodFate, SimulationReport
from engine.simulation import (
    AddNodes,
    Change,
    ChangeError,
    DrainNode,
    RecordedCluster,
    RecordedPod,
    ScaleDeployment,
    Simulation,
    manifest_arrivals,
    recorded_arrivals,
    simulate,
    what_if,
)
from tests.builders import elastic_quota
from tests.engine.measured_cluster import GI, report, seconds_ago
from tests.engine.simulation.recordings import (
    large_node,
    of_daemon_set,
    of_deployment,
    recorded_pod,
    recording,
)


def answer(cluster: RecordedCluster, *changes: Change) -> SimulationReport:
    """Return the report on changes."""
    return simulate(Simulation(scenario=what_if(cluster, changes)))


def fates(arm: ArmReport) -> dict[str, tuple[str, str, str]]:
    """Return fate, old and new node by name of pods."""
    return {
        outcome.pod.name: (outcome.fate, outcome.moved_from, outcome.node)
        for outcome in arm.outcomes
    }


def shop(*pods: RecordedPod, nodes: Iterable[str] = "ab", **limits: int) -> RecordedCluster:
    """Return nodes of 8 cores, and a quota for namespace shop if it has limits."""
    quota = elastic_quota("shop", least={}, most=limits)
    return recording(map(large_node, nodes), pods, quotas=[quota] if limits else [])


def test_the_pods_of_a_drained_node_go_elsewhere_and_those_of_daemon_sets_stay() -> None:
    cluster = shop(recorded_pod("p", "a"), recorded_pod("q", "b"), of_daemon_set("agent", "a"))
    result = answer(cluster, DrainNode("a"))
    assert result.changes == ("drain a",)
    assert result.arrivals.source is ArrivalSource.CHANGES
    (stock,) = result.arms
    assert fates(stock) == {"p": (PodFate.PLACED, "a", "b")}
    assert [level.percent for level in stock.levels[:1]] == [(12.5, 25.0)]  # 1 and 2 of 8 cores


def test_a_drain_that_does_not_fit_says_so() -> None:
    cluster = shop(recorded_pod("p", "a", cpu="5"), recorded_pod("q", "b", cpu="5"))
    (stock,) = answer(cluster, DrainNode("a")).arms
    (outcome,) = stock.outcomes
    assert (outcome.fate, outcome.node, outcome.victims) == (PodFate.NOWHERE, "", ())
    assert "1 Insufficient cpu" in outcome.message
    assert "nobody is evicted" in outcome.message


def test_pods_that_wait_go_to_nodes_that_are_added() -> None:
    cluster = shop(recorded_pod("p", "a", cpu="6"), recorded_pod("w", cpu="4"), nodes="a")
    assert answer(cluster).arms[0].outcomes[0].fate is PodFate.NOWHERE
    result = answer(cluster, AddNodes(2))
    assert result.changes == ("add 2 nodes like a",)
    assert result.cluster.nodes == ("a", "a-added-1", "a-added-2")
    assert fates(result.arms[0])["w"][2].startswith("a-added-")


def test_an_added_node_has_the_pods_of_daemon_sets_and_their_load_alone() -> None:
    pods = [of_daemon_set("agent", "a", cpu="2"), recorded_pod("p", "a", cpu="2")]
    reports = [report("a", {"cpu": 4000, "memory": GI})]
    result = answer(recording([large_node("a")], pods, reports), AddNodes(1, like="a"))
    (stock,) = result.arms
    requests, _, load = stock.levels[:3]
    assert requests.percent == (50.0, 25.0)
    assert load.percent == (50.0, 25.0)  # half of the usage of a is that of its agent


def test_a_deployment_grows_by_pods_like_its_newest() -> None:
    pods = [of_deployment("web", 1, "a"), of_deployment("web", 2, "b", cpu="3", second=9)]
    result = answer(shop(*pods), ScaleDeployment("shop", "web", 4))
    assert result.changes == ("scale shop/web from 2 to 4",)
    (stock,) = result.arms
    assert [outcome.fate for outcome in stock.outcomes] == [PodFate.PLACED] * 2
    assert sum(stock.levels[0].percent) == 125.0  # 1 + 3 + 2 * 3 of 8 cores


def test_a_deployment_shrinks_by_its_newest_pods() -> None:
    pods = [of_deployment("web", n, "a", second=n) for n in range(3)]
    cluster = recording([large_node("a")], pods, [report("a", {"cpu": 6000, "memory": 0})])
    (stock,) = answer(cluster, ScaleDeployment("shop", "web", 1)).arms
    assert stock.levels[0].percent == (12.5,)
    assert stock.levels[2].percent == (25.0,)  # a third of 6 of 8 cores
    assert not stock.outcomes


def test_what_exceeds_a_quota_is_refused() -> None:
    cluster = shop(of_deployment("web", 1, "a"), cpu=2000)
    (stock,) = answer(cluster, ScaleDeployment("shop", "web", 3)).arms
    assert [outcome.fate for outcome in stock.outcomes] == [PodFate.PLACED, PodFate.REFUSED]
    assert stock.outcomes[1].message == (
        "exceeded quota: shop, requested: cpu=1, used: cpu=2, limited: cpu=2"
    )
    assert (stock.refused, stock.unplaced) == (1, 0)


def two_queues(*pods: RecordedPod, least: int = 0, most: int = 8000) -> RecordedCluster:
    """Return a node of 8 cores, and queues of shop and of lab, which is guaranteed nothing.

    Args:
        pods: that run or wait.
        least: millicores that shop is guaranteed.
        most: millicores that it may use.
    """
    limits = {"shop": ({"cpu": least}, {"cpu": most}), "lab": ({"cpu": 0}, {"cpu": 8000})}
    quotas = [
        elastic_quota(name, namespace=name, least=low, most=high)
        for name, (low, high) in limits.items()
    ]
    modes = dict.fromkeys(limits, "Queue")
    return recording([large_node("a")], pods, quotas=quotas, quota_modes=modes)


def of_lab(name: str, cpu: str) -> RecordedPod:
    """Return a pod of lab that runs."""
    return recorded_pod(name, "a", cpu=cpu, metadata={"namespace": "lab"})


def test_what_exceeds_the_quota_of_a_queue_waits() -> None:
    cluster = two_queues(of_deployment("web", 1, "a"), most=2000)
    (stock,) = answer(cluster, ScaleDeployment("shop", "web", 3)).arms
    assert [outcome.fate for outcome in stock.outcomes] == [PodFate.PLACED, PodFate.NOWHERE]
    assert stock.outcomes[1].message.startswith("waits for quota: ")
    assert (stock.refused, stock.unplaced) == (0, 1)


def test_what_others_borrow_is_taken_back_for_a_pod_within_its_min() -> None:
    pods = [of_lab("x", "3"), of_lab("y", "5"), recorded_pod("w", cpu="4")]
    (stock,) = answer(two_queues(*pods, least=4000)).arms
    (outcome,) = stock.outcomes
    assert (outcome.fate, outcome.node) == (PodFate.RECLAIMED, "a")
    assert [str(victim.pod) for victim in outcome.victims] == ["lab/y"]
    assert stock.levels[0].percent == (87.5,)  # 3 + 4 of 8 cores


def test_nothing_is_taken_back_for_a_pod_beyond_its_min() -> None:
    pods = [of_lab("x", "3"), of_lab("y", "5"), recorded_pod("w", cpu="4")]
    (stock,) = answer(two_queues(*pods, least=3000)).arms
    (outcome,) = stock.outcomes
    assert (outcome.fate, outcome.victims) == (PodFate.NOWHERE, ())
    assert outcome.message.startswith("waits for quota: ")


def test_others_of_lower_priority_are_evicted() -> None:
    low = recorded_pod("low", "a", cpu="6")
    urgent = recorded_pod("urgent", cpu="6", priority=100)
    (stock,) = answer(shop(low, urgent, nodes="a")).arms
    (outcome,) = stock.outcomes
    assert (outcome.fate, outcome.node) == (PodFate.RECLAIMED, "a")
    assert [str(victim.pod) for victim in outcome.victims] == ["shop/low"]
    assert stock.levels[0].percent == (75.0,)


def test_manifests_arrive_on_the_changed_cluster() -> None:
    cluster = shop(recorded_pod("p", "a", cpu="6"), nodes="a")
    new = manifest_arrivals([recorded_pod("new", cpu="4")])
    (stock,) = simulate(Simulation(scenario=what_if(cluster, [AddNodes(1)], new))).arms
    assert fates(stock) == {"new": (PodFate.PLACED, "", "a-added-1")}


def test_a_recording_is_replayed_on_the_changed_cluster() -> None:
    pods = [recorded_pod(f"p{n}", "a", second=n) for n in range(4)]
    cluster = shop(*pods, nodes="a")
    scenario = what_if(cluster, [AddNodes(1)], recorded_arrivals(pods))
    (stock,) = simulate(Simulation(scenario=scenario)).arms
    assert stock.levels[0].percent == (25.0, 25.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (DrainNode("z"), "no node `z` is recorded"),
        (AddNodes(1, like="z"), "no node `z` is recorded"),
        (ScaleDeployment("shop", "api", 1), "no pod of Deployment `shop/api` is recorded"),
        (ScaleDeployment("shop", "wbe", 1), "known by its pods; did you mean `shop/web`?"),
    ],
)
def test_a_change_to_what_is_not_there_is_an_error(change: Change, message: str) -> None:
    with pytest.raises(ChangeError, match=message):
        answer(shop(recorded_pod("p", "a"), of_deployment("web", 1, "a")), change)


def test_a_node_may_be_named_without_its_domain_where_one_has_it() -> None:
    pod = recorded_pod("p", "a.example")
    (stock,) = answer(shop(pod, nodes=("a.example", "b.example")), DrainNode("a")).arms
    assert fates(stock) == {"p": (PodFate.PLACED, "a.example", "b.example")}
    with pytest.raises(ChangeError, match="did you mean"):
        answer(shop(pod, nodes=("a.example", "a.test")), DrainNode("a"))


# Quotas and ages.


def resource_quota(hard: dict[str, str], **spec: Any) -> ResourceQuota:  # noqa: ANN401
    meta = {"name": "budget", "namespace": "shop"}
    wire = {"metadata": meta, "spec": {"hard": hard, **spec}}
    return resource_quota_of(msgspec.convert(wire, api.ResourceQuota))


def scope(name: str, operator: str, *values: str) -> dict[str, Any]:
    """Return a selector of scopes."""
    return {"matchExpressions": [{"scopeName": name, "operator": operator, "values": [*values]}]}


def with_quota(cluster: RecordedCluster, quota: ResourceQuota) -> RecordedCluster:
    return replace(cluster, extras=(*cluster.extras, quota))


@pytest.mark.parametrize(
    ("hard", "message"),
    [
        (
            {"requests.cpu": "3", "limits.cpu": "9"},
            (
                "exceeded quota: budget, requested: requests.cpu=1, used: requests.cpu=3,"
                " limited: requests.cpu=3"
            ),
        ),
        (
            {"pods": "3", "memory": "3Gi"},
            (
                "exceeded quota: budget, requested: memory=1Gi,pods=1, used: memory=3Gi,pods=3,"
                " limited: memory=3Gi,pods=3"
            ),
        ),
        (
            {"limits.memory": "8Gi"},
            "failed quota: budget: must specify limits.memory for: c",
        ),
        ({"services": "0", "requests.cpu": "4"}, ""),
    ],
)
def test_a_resource_quota_refuses_new_pods_as_the_api_server_does(
    hard: dict[str, str], message: str
) -> None:
    # One runs, one waits and counts too, one is created: the second of the new ones is too much.
    pods = [of_deployment("web", 1, "a"), of_deployment("web", 2)]
    cluster = with_quota(shop(*pods), resource_quota(hard))
    (stock,) = answer(cluster, ScaleDeployment("shop", "web", 4)).arms
    assert stock.outcomes[-1].message == message
    assert stock.outcomes[0].fate is PodFate.PLACED  # it exists, so no quota judges it


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"scopes": ["BestEffort"]}, 0),
        ({"scopes": ["NotBestEffort"]}, 1),
        ({"scopeSelector": scope("PriorityClass", "In", "gold")}, 0),
        ({"scopeSelector": scope("PriorityClass", "DoesNotExist")}, 1),
        ({"scopes": ["Terminating"]}, 0),  # not known of a recorded pod
    ],
)
def test_a_resource_quota_counts_the_pods_of_its_scopes(spec: dict[str, Any], refused: int) -> None:
    cluster = with_quota(shop(of_deployment("web", 1, "a")), resource_quota({"pods": "1"}, **spec))
    (stock,) = answer(cluster, ScaleDeployment("shop", "web", 2)).arms
    assert stock.refused == refused


def test_a_drained_pod_is_created_again_within_the_quota_that_it_leaves() -> None:
    cluster = with_quota(shop(recorded_pod("p", "a")), resource_quota({"pods": "1"}))
    (stock,) = answer(cluster, DrainNode("a")).arms
    assert fates(stock) == {"p": (PodFate.PLACED, "a", "b")}


def test_a_pod_that_waits_is_not_refused_by_the_quota_that_let_it_in() -> None:
    """What was lowered later, or is full with it, says nothing of whether more nodes would help."""
    cluster = shop(recorded_pod("p", "a", cpu="6"), recorded_pod("w", cpu="4"), nodes="a", cpu=8000)
    (stock,) = answer(cluster, AddNodes(1)).arms
    assert fates(stock)["w"][::2] == (PodFate.PLACED, "a-added-1")


def test_a_pod_that_waits_takes_of_its_quota_what_a_new_one_cannot_have() -> None:
    pods = [of_deployment("web", 1, "a"), of_deployment("web", 2, cpu="100")]
    (stock,) = answer(shop(*pods, cpu=101_000), ScaleDeployment("shop", "web", 3)).arms
    assert [outcome.fate for outcome in stock.outcomes] == [PodFate.NOWHERE, PodFate.REFUSED]


def ran_since(pod: RecordedPod, seconds: int) -> RecordedPod:
    """Return a pod that was scheduled so many seconds ago."""
    return RecordedPod(msgspec.structs.replace(pod.pod, scheduled_at=seconds_ago(seconds)), pod.raw)


@pytest.mark.parametrize(
    ("seconds", "victims"),
    [((9_000, 3_000, 6_000), ["lab/1"]), ((90, 60, 120), ["lab/1"])],
)
def test_the_newest_is_evicted_however_young_it_is(
    seconds: tuple[int, ...], victims: list[str]
) -> None:
    pods = [
        ran_since(recorded_pod(str(number), "a", cpu="2", metadata={"namespace": "lab"}), age)
        for number, age in enumerate(seconds)
    ]
    cluster = two_queues(*pods, recorded_pod("w", cpu="4"), least=4000)
    (outcome,) = answer(cluster).arms[0].outcomes
    assert [str(victim.pod) for victim in outcome.victims] == victims
