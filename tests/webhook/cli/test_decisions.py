"""Recorded situations, and what the scheduler and the API server make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from engine.report import SimulationReport
from tests.webhook.cli.running import Stowplan

DECISIONS = Path(__file__).parent / "decisions"


def mistakes(stderr: str) -> list[str]:
    """Return what is said beside what a situation does not record."""
    notes = ("hint: `kubectl get ", "no pod is recorded", "no usage is recorded")
    return [line for line in stderr.splitlines() if not line.startswith(notes)]


def explained(stowplan: Stowplan, name: str) -> dict[str, Any]:
    """Return the explanation of the pod of a situation."""
    folder = DECISIONS / name
    arguments = ("--cluster", folder / "cluster.json", "--policies", folder / "policy.yaml")
    ran = stowplan("explain", folder / "pod.json", *arguments, "--json")
    assert mistakes(ran.err) == []
    told: dict[str, Any] = json.loads(ran.out)
    return told


def simulated(stowplan: Stowplan, name: str) -> SimulationReport:
    """Return what becomes of the pod of a situation under the scheduler and under the policy."""
    folder = DECISIONS / name
    arguments = ("--cluster", folder / "cluster.json", "--arm", folder / "policy.yaml")
    ran = stowplan("simulate", *arguments, "--arrivals", folder / "pod.json", "--json")
    assert (ran.status, mistakes(ran.err)) == (0, [])
    return msgspec.json.decode(ran.out, type=SimulationReport)


def test_load_is_a_share_of_what_a_node_has_before_amplification(stowplan: Stowplan) -> None:
    # Node big offers 32 cores, has 16, and uses 13: 81.25 %, more than the 65 % of LoadAware. The
    # scheduler adds a pod of 1 core there, 850m of load: 13.85 / 16 = 86.6 %.
    stock, policy = simulated(stowplan, "hot_by_raw_allocatable").arms
    assert (stock.hot_nodes, policy.hot_nodes) == (1, 1)
    greatest = [
        spread.max
        for arm in (stock, policy)
        for spread in arm.spreads
        if (spread.measure, spread.resource) == ("load", "cpu")
    ]
    assert greatest == [86.6, 81.2]


def test_devices_of_a_class_may_be_on_any_node_that_has_no_plugin_for_them(
    stowplan: Stowplan,
) -> None:
    # The policy rejects the node of the device plugin. Whether the other has the devices, of the
    # class and of the one that is named, the scheduler knows: the pod is not denied.
    told = explained(stowplan, "device_class")
    assert [row["node"] for row in told["ranking"]] == ["by-devices"]


def test_pods_are_spread_over_the_zones_that_a_promise_leaves(stowplan: Stowplan) -> None:
    # Zone b is promised away, so a and c count: one pod in c, the fewest; 1 + 1 - 1 <= maxSkew.
    told = explained(stowplan, "spread_among_promised_zones")
    assert (told["verdict"], [row["node"] for row in told["ranking"]]) == ("Place", ["c1"])


def test_a_resize_that_its_node_calls_infeasible_leaves_the_node_its_room(
    stowplan: Stowplan,
) -> None:
    # n1 has 8 cores and runs a pod that was allocated 1 and asks for 100: 1 + 3 of 8.
    told = explained(stowplan, "infeasible_resize")
    assert [row["node"] for row in told["ranking"]] == ["n1"]


def test_a_manifest_is_decided_as_the_api_server_would_have_made_it(stowplan: Stowplan) -> None:
    # RuntimeClass kata has a selector for n2 and an overhead of 250m, the LimitRange 500m.
    told = explained(stowplan, "as_admitted")
    assert [row["node"] for row in told["ranking"]] == ["n2"]
    folder = DECISIONS / "as_admitted"
    given = ("--cluster", folder / "cluster.json", "--pod", folder / "pod.json", "--json")
    asked = {
        "pod.requests.cpu": 0.75,
        "pod.priority": 1000,
        "pod.schedulerName": "default-scheduler",
        "has(object.spec.containers[0].resources)": True,
        "pod.nodeSelector.size()": 1,
    }
    for expression, value in asked.items():
        assert json.loads(stowplan("eval", expression, *given).out)["value"] == value


def test_a_pod_of_the_host_network_takes_the_ports_of_its_containers(stowplan: Stowplan) -> None:
    # On z1a port 8080 of the host is taken.
    told = explained(stowplan, "ports_of_the_host")
    assert (told["verdict"], len(told["ranking"])) == ("Place", 2)
    assert "z1a" not in [row["node"] for row in told["ranking"]]
