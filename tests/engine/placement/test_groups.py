from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement.exclusion import Rejections
from engine.placement.groups import MAX_VALUES, Groups
from engine.view import ClusterView
from tests.engine.placement.cluster import Json, Labels, decided, view_of

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
    """Return what is said of some nodes that are ranked before all others."""
    scores = {name: int(name in names) for name in view.names if name}
    decision = decided(view, scores, unfit=unreachable)
    groups = Groups(view, labels, decision.ranking, Rejections(decision))
    requirement = groups.describe(0, len(names))
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


FATES = ("placed",) * 6 + ("rejected", "unfit")
CLUSTERS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([*"0123456789", None]),
        st.sampled_from(FATES),
    ),
    min_size=1,
    max_size=12,
)
REPEATED = st.sampled_from([1, 7, 25])  # few nodes are all in a sample, of many only some


def labels_of(zone: str | None, pool: str | None) -> Labels:
    return {key: value for key, value in [(ZONE, zone), (POOL, pool)] if value is not None}


def described_one_by_one(
    nodes: dict[str, Labels], part: set[str], reachable: set[str], labels: tuple[str, ...]
) -> Json | None:
    """Return what `describe` does, by looking at every label of every node."""
    for key in labels:
        values = {nodes[name].get(key) for name in part}
        like_them = {name for name in reachable if nodes[name].get(key) in values}
        if None not in values and len(values) <= MAX_VALUES and like_them == part:
            return {"key": key, "operator": "In", "values": sorted(map(str, values))}
    return None


@given(
    CLUSTERS,
    REPEATED,
    st.sampled_from([ZONE, POOL]),
    st.permutations([ZONE, POOL, SPOT]),
    st.data(),
)
def test_every_part_of_a_ranking_is_described_just_as_by_a_look_at_each_node(
    some: list[tuple[str | None, str | None, str]],
    repeated: int,
    by: str,
    keys: list[str],
    data: st.DataObject,
) -> None:
    drawn = some * repeated
    nodes = {f"n{i}": labels_of(zone, pool) for i, (zone, pool, _) in enumerate(drawn)}
    fates = {f"n{i}": fate for i, (*_, fate) in enumerate(drawn)}
    # Ranked by a label, so that there are groups, and one node somewhere, which may spoil one.
    scores = {name: ord(own.get(by, "-")) for name, own in nodes.items()}
    scores[data.draw(st.sampled_from(sorted(nodes)))] = data.draw(st.integers(40, 100))
    view = view_of(nodes)
    rejected, unfit = (
        {name for name, one in fates.items() if one == fate} for fate in ("rejected", "unfit")
    )
    decision = decided(view, scores, rejected=rejected, unfit=unfit)
    groups = Groups(view, keys, decision.ranking, Rejections(decision))
    ranked = [view.names[row] for row in decision.candidates]
    ends = [i for i, pair in enumerate(pairwise(decision.totals.tolist()), 1) if pair[0] != pair[1]]
    for start in (0, *ends):
        for end in (*ends, len(ranked)):
            if start < end:
                expected = described_one_by_one(
                    nodes, set(ranked[start:end]), nodes.keys() - unfit, tuple(keys)
                )
                assert groups.describe(start, end) == expected
