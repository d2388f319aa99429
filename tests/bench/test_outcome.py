"""What the outcome benchmark draws and what it makes of where pods are, without a control plane."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from engine.model.policy_resource import WISH_WEIGHTS
from engine.policy import load_policies
from tests.e2e.outcome_arms import ADVICE, ADVICE_BY_LOAD, policy_of
from tests.e2e.outcome_cluster import ideal, pods_of
from tests.e2e.outcome_figures import IDEAL, STOCK, Figures, Places, places_of, tables_of
from tests.e2e.outcome_workload import (
    SMALL,
    WORKLOADS,
    ZONED,
    Ask,
    Load,
    Machine,
    Workload,
    apps_of,
    asks_of,
    loads_of,
    machines_of,
)

MACHINES = [
    Machine("hot", 10, "zone-0"),
    Machine("small", 10, "zone-0"),
    Machine("large", 20, "zone-1", tainted=True),
]
LOADS = {
    "hot": Load(used=7_500, requested=0, hot=True),
    "small": Load(used=2_000, requested=8_000, hot=False),
    "large": Load(used=5_000, requested=0, hot=False),
}


def test_by_load_alone_the_scores_of_the_scheduler_do_not_count(tmp_path: Path) -> None:
    for arm, weights in ((ADVICE, WISH_WEIGHTS), (ADVICE_BY_LOAD, ())):
        (policy,) = load_policies([policy_of(arm, tmp_path)])
        assert tuple(each for each in policy.placement.scheduler_scores if each[1]) == weights


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_same_seed_gives_the_same_workload(workload: Workload) -> None:
    machines = machines_of(workload, 60)
    assert machines == machines_of(workload, 60)
    assert loads_of(workload, machines, 1) == loads_of(workload, machines, 1)
    assert loads_of(workload, machines, 1) != loads_of(workload, machines, 2)
    assert asks_of(workload, 100, 1) == asks_of(workload, 100, 1)
    assert asks_of(workload, 100, 1) != asks_of(workload, 100, 2)
    assert {ask.app for ask in asks_of(workload, 100, 1)} <= set(apps_of(workload))


def test_uneven_nodes_have_three_sizes_and_hot_ones_that_look_empty() -> None:
    machines = machines_of("uneven", 200)
    assert Counter(one.cores for one in machines) == {8: 100, 16: 70, 48: 30}
    assert sum(one.tainted for one in machines) == 10
    loads = loads_of("uneven", machines, 3)
    hot = [one for one in machines if loads[one.name].hot]
    assert len(hot) == 30
    assert not any(one.tainted for one in hot)
    for one in machines:
        load = loads[one.name]
        assert (load.requested == 0) == load.hot
        assert (load.used >= 0.7 * one.millicores) == load.hot


@pytest.mark.parametrize("seed", range(3))
def test_uneven_pods_are_of_fifty_deployments_and_of_all_sizes(seed: int) -> None:
    asks = asks_of("uneven", 400, seed)
    assert len(asks) == 400
    replicas = Counter(ask.app for ask in asks)
    assert len(replicas) == 50
    assert replicas[SMALL] == replicas[ZONED] == 12
    assert max(replicas.values()) > 3 * min(replicas.values())
    assert {ask.zone for ask in asks} == {"", "zone-0"}
    assert [min(ask.millicores for ask in asks), max(ask.millicores for ask in asks)] == [20, 6_000]
    # Neighbours are of one Deployment by chance alone: one in 40.
    pairs = pairwise(asks)
    assert sum(one.app == other.app for one, other in pairs) < 40
    # What they ask for is an eighth of what 200 nodes have, whatever the seed.
    cores = sum(one.cores for one in machines_of("uneven", 200))
    assert 0.07 < sum(ask.millicores for ask in asks) / cores / 1_000 < 0.18


def test_places_are_counted_by_hand() -> None:
    asks = [
        Ask(SMALL, 1_000),
        Ask(SMALL, 1_000),
        Ask(SMALL, 1_000),
        Ask(ZONED, 2_000, zone="zone-0"),
        Ask("app-00", 100),
    ]
    there = places_of(MACHINES, LOADS, asks, ["hot", "small", "small", "large", ""])
    # hot 7.5 + 0.85 of 10, small 2 + 1.7 of 10, large 5 + 1.7 of 20: .835, .370, .335. Their mean
    # is .51333; squared distances .10347, .02054, .03180; a third of their sum is .05194.
    assert there.spread == pytest.approx(0.22791, abs=1e-5)
    # The hot one stays at .75, and x of small and y of large have 10 x + 20 y = 11.25 together: the
    # derivative 28 / 3 y - 3.25 of their squared distances is 0 at y = .34821, x = .42857.
    assert there.least_spread == pytest.approx(0.17359, abs=1e-5)
    assert there == Places(
        spread=there.spread,
        least_spread=there.least_spread,
        over=1,
        least_over=1,  # the hot one
        used=3,
        least_used=1,  # 5 of 20 cores of the large one
        on_hot=1,
        overfilled=0,  # small has 8 + 2 of 10 cores, which is all of them
        crowd=2,
        nodes_of_small=2,
        wrong_zone=1,
        tainted=1,
        unbound=1,
    )
    assert places_of(MACHINES, LOADS, asks[:3], ["small"] * 3).overfilled == 1


def test_tables_compare_with_stock_and_ideal_of_the_same_pods() -> None:
    figures = [
        of_arm(IDEAL, seed=0, spread=0.1, load="any"),
        of_arm(STOCK, seed=0, spread=0.3, cpu=10, seconds=4),
        of_arm(ADVICE, seed=0, spread=0.2, cpu=15, seconds=5),
        of_arm(IDEAL, seed=1, spread=0.1, load="any"),
        of_arm(STOCK, seed=1, spread=0.5, cpu=20, seconds=4),
        of_arm(ADVICE, seed=1, spread=0.2, cpu=20, seconds=3),
    ]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in tables_of(figures).splitlines()
        if f"| {ADVICE} |" in line
    ]
    # Half of the way from 0.3 to 0.1, and three quarters of that from 0.5.
    assert rows[0][:4] == ["burst", ADVICE, "0.2000 (>= 0.0500)", "0.500 / 0.750"]
    assert rows[0][-1] == "2 moved"
    # Medians of 5 and 3 s, of 15 and 20 ms; of 1.25 and 0.75, of 1.5 and 1 times stock's.
    assert rows[1][3:6] == ["4.0 (1.00)", "17.5 (1.25)", "scheduler 16.5, etcd 1.0"]


def test_the_ideal_keeps_off_the_hot_node_and_counts_each_pod_for_the_next(tmp_path: Path) -> None:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    recording = tmp_path / "recording.json"
    items: list[object] = []
    for one in MACHINES[:2]:
        amounts = {"cpu": f"{one.cores}", "memory": "64Gi", "pods": "250"}
        status = {"allocatable": amounts, "capacity": amounts}
        metadata = {"name": one.name}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
        usage = {"cpu": f"{LOADS[one.name].used}m", "memory": "4Gi"}
        metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics"}
        items += [node, {**metrics, "metadata": metadata, "timestamp": at, "usage": usage}]
    recording.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    pods = pods_of("shop", "burst", [Ask("app-00", 3_000)] * 3, {"app-00": {}})
    # 2 cores of 10, and 2.55 more with each pod: 4.55, 7.1 (over 65 %), so only one fits.
    assert ideal(recording, policy_of(ADVICE, tmp_path), pods) == ["small", "", ""]


def of_arm(
    arm: str, *, seed: int, spread: float, load: str = "burst", cpu: float = 0, seconds: float = 0
) -> Figures:
    there = Places(
        spread=spread,
        least_spread=0.05,
        over=0,
        least_over=0,
        used=2,
        least_used=1,
        on_hot=0,
        overfilled=0,
        crowd=1,
        nodes_of_small=0,
        wrong_zone=0,
        tainted=0,
        unbound=0,
    )
    return Figures(
        nodes=3,
        seed=seed,
        arm=arm,
        load=load,
        places=there,
        counts={"moved": 1} if arm == ADVICE else {},
        seconds=seconds,
        cpu_ms={"scheduler": cpu - 1, "etcd": 1.0} if cpu else {},
    )
