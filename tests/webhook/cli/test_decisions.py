"""Recorded situations, and what the scheduler and the API server make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.webhook.cli.running import Stowplan

DECISIONS = Path(__file__).parent / "decisions"


def explained(stowplan: Stowplan, name: str) -> dict[str, Any]:
    """Return the explanation of the pod of a situation."""
    folder = DECISIONS / name
    arguments = ("--cluster", folder / "cluster.json", "--policies", folder / "policy.yaml")
    ran = stowplan("explain", folder / "pod.json", *arguments, "--json")
    assert ran.err == ""
    told: dict[str, Any] = json.loads(ran.out)
    return told


def test_a_resize_that_its_node_calls_infeasible_leaves_the_node_its_room(
    stowplan: Stowplan,
) -> None:
    # n1 has 8 cores and runs a pod that was allocated 1 and asks for 100: 1 + 3 of 8.
    told = explained(stowplan, "infeasible_resize")
    assert [row["node"] for row in told["ranking"]] == ["n1"]
