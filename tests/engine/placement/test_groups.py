from __future__ import annotations

import numpy as np
import pytest

from engine.placement.groups import Groups
from engine.view import ClusterView
from tests.engine.placement.cluster import Json, view_of

ZONE, POOL, SPOT = "topology.kubernetes.io/zone", "pool", "spot"
NODES = {
    "a1": {ZONE: "a", POOL: "x"},
    "a2": {ZONE: "a", POOL: "y"},
    "b1": {ZONE: "b", POOL: "x", SPOT: ""},
    "c1": {ZONE: "c"},
    "c2": {ZONE: "c"},
}


def described(
    view: ClusterView, *names: str, labels: tuple[str, ...], unreachable: tuple[str, ...] = ()
) -> Json | None:
    full = np.array([name in unreachable for name in view.names])
    groups = Groups(view, labels, full)
    requirement = groups.describe(np.array([view.rows[name] for name in names]))
    return None if requirement is None else dict(requirement)


def test_a_label_stands_for_all_the_nodes_that_have_a_value() -> None:
    expected = {"key": ZONE, "operator": "In", "values": ["a", "b"]}
    assert described(view_of(NODES), "b1", "a2", "a1", labels=(ZONE,)) == expected


@pytest.mark.parametrize(
    "names",
    [("a1",), ("a1", "b1"), ("c1", "a1", "a2"), ("a1", "a2", "c1")],
)
def test_a_label_does_not_stand_for_a_part_of_the_nodes_that_have_a_value(
    names: tuple[str, ...],
) -> None:
    assert described(view_of(NODES), *names, labels=(ZONE,)) is None


@pytest.mark.parametrize("names", [("a1", "c1", "c2"), ("c1", "c2"), ("b1", "a1", "c1")])
def test_nodes_without_the_label_are_no_group(names: tuple[str, ...]) -> None:
    assert described(view_of(NODES), *names, labels=(POOL,)) is None


def test_a_lone_node_without_the_label_is_no_group() -> None:
    assert described(view_of({"n": {}}), "n", labels=(POOL,)) is None


def test_a_node_that_the_scheduler_rejects_does_not_spoil_its_group() -> None:
    expected = {"key": ZONE, "operator": "In", "values": ["a"]}
    view = view_of(NODES)
    assert described(view, "a1", labels=(ZONE,)) is None
    assert described(view, "a1", labels=(ZONE,), unreachable=("a2", "c1")) == expected


def test_an_empty_value_is_a_value_and_not_a_missing_label() -> None:
    expected = {"key": SPOT, "operator": "In", "values": [""]}
    assert described(view_of(NODES), "b1", labels=(SPOT,)) == expected
    assert described(view_of(NODES), "b1", "a1", labels=(SPOT,)) is None


def test_the_first_label_that_fits_is_taken() -> None:
    requirement = described(view_of(NODES), "a1", "b1", labels=("unknown", ZONE, POOL))
    assert requirement == {"key": POOL, "operator": "In", "values": ["x"]}


def test_a_handful_of_values_at_most() -> None:
    view = view_of({f"n{i}": {POOL: f"p{i}"} for i in range(9)})
    assert described(view, *(f"n{i}" for i in range(8)), labels=(POOL,)) is not None
    assert described(view, *(f"n{i}" for i in range(9)), labels=(POOL,)) is None
