from __future__ import annotations

from typing import Any

import pytest

from engine.model.time import Micros
from engine.quota import (
    StatusCounts,
    mode_of,
    status_used,
)
from engine.view import ClusterState, ClusterView
from tests.builders import elastic_quota, pod_from

QUOTA = elastic_quota(least={"memory": 1}, most={"cpu": 8000, "pods": 9})


def pod(name: str, phase: str, *, cpu: str, node: str = "node-a") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "nodeName": node,
            "overhead": {"cpu": "50m"},
            "containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase},
    }


@pytest.fixture
def view() -> ClusterView:
    """One pod of each kind."""
    state = ClusterState()
    for written in (
        pod("runs", "Running", cpu="1"),
        pod("starts", "Pending", cpu="2"),
        pod("waits", "Pending", cpu="4", node=""),
        pod("lost", "Unknown", cpu="500m"),
        pod("done", "Succeeded", cpu="9"),
    ):
        state.set_pod(pod_from(written), seen_at=Micros(0))
    return state.view()


@pytest.mark.parametrize(
    ("count", "used"),
    [
        # 1, without overhead; the number of pods is not counted.
        ("Running", {"cpu": 1000, "memory": 0, "pods": 0}),
        # 1 + 2 and overhead of 50m each.
        ("Scheduled", {"cpu": 3100, "memory": 0, "pods": 2}),
        # 1 + 2 + 4 + 0.5 and overhead of 50m each.
        ("NonTerminal", {"cpu": 7700, "memory": 0, "pods": 4}),
    ],
)
def test_the_status_counts_the_pods_of_its_rule(
    view: ClusterView, count: StatusCounts, used: dict[str, int]
) -> None:
    assert status_used(QUOTA, view, count) == used


def test_a_resource_that_no_pod_holds_any_more_is_not_in_the_status() -> None:
    state = ClusterState()
    for name, amount in (("a", "1"), ("b", "0")):
        written = pod(name, "Running", cpu=amount)
        written["spec"]["containers"][0]["resources"]["requests"]["example.com/fpga"] = amount
        state.set_pod(pod_from(written), seen_at=Micros(0))
    assert status_used(QUOTA, state.view(), "Running")["example.com/fpga"] == 1
    state.delete_pod("shop/a")
    assert "example.com/fpga" not in status_used(QUOTA, state.view(), "Running")


def test_a_namespace_overrides_the_mode() -> None:
    state = ClusterState()
    state.set_namespace("shop", {}, quota_mode="Audit")
    state.set_namespace("mill", {}, quota_mode="audit")  # an unknown mode
    state.set_namespace("bank", {})
    view = state.view()
    assert mode_of(view, "shop", "Enforce") == "Audit"
    assert mode_of(view, "mill", "Enforce") == "Enforce"
    assert mode_of(view, "bank", "Off") == "Off"
    state.set_namespace("shop", {})
    assert mode_of(state.view(), "shop", "Enforce") == "Enforce"
    assert mode_of(view, "shop", "Enforce") == "Audit"  # a view stays as it was
