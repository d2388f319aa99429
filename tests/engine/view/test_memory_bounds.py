"""What tenants write must not grow the memory of the view, whether it is stored or refused."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from engine.model import api
from engine.view import ClusterState, Domain, label_column
from engine.view.memo import ColumnCache, is_long
from engine.view.pod_table import PodTable
from engine.view.rows import NodeRows
from engine.view.shape_contributions import LONGEST_NAME, ShapeContributions
from tests.engine.measured_cluster import NOW, node, pod
from tests.engine.model.hostile_pods import hostile_pod

KIB, MIB = 2**10, 2**20


class Traced:
    """Bytes that were allocated since it was made and are still held."""

    held = 0


@contextmanager
def traced() -> Iterator[Traced]:
    result = Traced()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield result
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        result.held = after - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("names", "containers"), [(2, 1), (100, 1), (4, 20), (0, 99)])
def test_a_shape_takes_no_more_memory_than_it_says(names: int, containers: int) -> None:
    keys = 20 * 4 * KIB  # the longest key of the cache of shapes
    undeclared = []
    for first in (0, 20, 40):
        with traced() as memory:
            pods = [hostile_pod(first + n, names=names, containers=containers) for n in range(20)]
            shapes = [pod.shape for pod in pods]
            del pods
        undeclared.append(memory.held - sum(shape.size for shape in shapes) - keys)
    # A table of the whole process that is full grows in one of the three, not in all of them.
    assert min(undeclared) <= 0


def test_contributions_of_hostile_pods_are_held_within_bounds() -> None:
    contributions = ShapeContributions(NodeRows(PodTable()), most_bytes=200 * KIB)
    with traced() as memory:
        for number in range(20):
            contributions.of(hostile_pod(number).shape)
    assert 1 < len(contributions.cached) < 10
    assert memory.held < 2 * MIB  # with all shapes in the cache of shapes


def test_a_very_long_name_of_a_resource_gets_no_column() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    for number, length in enumerate((LONGEST_NAME, LONGEST_NAME + 1)):
        name = "x" * length
        state.set_pod(pod(f"p{number}", "a", requests={name: "1"}), seen_at=NOW)
    longest = [name for name in state.view().axis.names if name.startswith("x")]
    assert [len(name) for name in longest] == [LONGEST_NAME]


def test_a_namespace_forgets_resources_that_none_of_its_pods_requests_any_more() -> None:
    state = ClusterState()
    state.set_pod(pod("stays", requests={"cpu": "1"}), seen_at=NOW)
    for number in range(50):
        passing = pod(f"p{number}", requests={f"example.com/{number}": "1", "cpu": "0"})
        state.set_pod(passing, seen_at=NOW)
        state.delete_pod(passing.key)
    assert state.view().namespaces.requested == {"default": {"cpu": 1000, "pods": 1}}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("label", "zone"), False),
        (("label", "x" * 5_000), True),
        (("codes", frozenset({("k", "x" * 5_000)}), b""), True),
        (("codes", b"x" * 5_000), True),
        (("tolerations", (api.Toleration(key="a"), api.Toleration(value="x" * 5_000))), True),
        (("tolerations", tuple(api.Toleration(key=str(n)) for n in range(3))), False),
        (("tolerations", tuple(api.Toleration() for _ in range(1_000))), True),
        ((("a", 1), (("b", 2), object)), False),
    ],
)
def test_a_key_that_a_pod_makes_long_is_known(key: object, *, expected: bool) -> None:
    assert is_long(key) is expected


def test_a_column_of_a_long_key_is_right_and_not_kept() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    view, cache = state.view(), ColumnCache(9)
    computed: list[int] = []

    def compute(_: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        computed.append(1)
        return np.arange(len(view))

    for _ in range(2):
        assert cache.get("x" * 5_000, view, (Domain.NODES,), compute).tolist() == [0]
    assert len(computed) == 2


def test_labels_that_pods_make_up_are_not_kept() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    view = state.view()
    with traced() as memory:
        for number in range(256):
            assert not label_column(view, f"{number}" * 20_000).present.any()
    assert memory.held < 1 * MIB  # the keys alone would take 12
