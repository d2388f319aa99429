from __future__ import annotations

import numpy as np
import pytest

from engine.plugins.node_resource_topology_match.numa_zones import (
    ABSENT,
    ZoneTables,
    container_requests,
    first_of,
    is_host_level,
    is_native,
    is_shared,
    whole_units,
)
from engine.view import ClusterState
from tests.engine.topology_cluster import GPU, cluster, node, pod, zones


def test_tables_are_as_high_as_the_node_with_the_most_zones() -> None:
    view = cluster(
        [node("one"), node("two"), node("none")],
        [zones("one", {"cpu": "1500m"}), zones("two", {"cpu": "2"}, {"memory": "1Gi"})],
    )
    tables = ZoneTables.of(view)
    assert tables.available("cpu").tolist() == [[1500, 2000, ABSENT], [ABSENT, ABSENT, ABSENT]]
    assert tables.whole_units("cpu").tolist() == [[2, 2, 1], [1, 1, 1]]  # in cores, rounded up
    assert tables.exist().tolist() == [[True, True, False], [False, True, False]]


def test_a_node_that_tells_of_more_zones_makes_all_tables_higher() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_extra(zones("a", {"cpu": "1"}))
    assert ZoneTables.of(state.view()).available("cpu").shape == (1, 1)
    state.set_node(node("b"))
    state.set_extra(zones("b", *[{"cpu": "1"}] * 3))
    view = state.view()
    assert ZoneTables.of(view).available("cpu").shape == (3, 2)
    some = ZoneTables.of(view.take(np.array([0])))
    assert some.available("cpu").tolist() == [[1000], [ABSENT], [ABSENT]]


def test_nodes_are_found_by_what_their_kubelet_does() -> None:
    told = [zones("a", scope="pod"), zones("b"), zones("c", policy="none")]
    tables = ZoneTables.of(cluster(map(node, "abcd"), told))
    assert tables.has("single-numa-node", "pod").tolist() == [True, False, False, False]
    assert tables.has("single-numa-node", "container").tolist() == [False, True, False, False]
    assert not tables.has("restricted", "pod").any()
    assert sorted(int(row) for _, rows in tables.rows_by_layout() for row in rows) == [0, 1, 2]


def test_a_node_offers_what_it_lists_and_four_resources_always() -> None:
    view = cluster([node("a", **{GPU: "0", "gpu": "2"}), node("b")])
    offered = {name: ZoneTables.of(view).is_offered(name).tolist() for name in (GPU, "gpu")}
    assert offered == {GPU: [True, False], "gpu": [False, False]}
    assert ZoneTables.of(view).is_offered("ephemeral-storage").all()


def test_a_node_lists_what_any_of_its_zones_lists() -> None:
    tables = ZoneTables.of(
        cluster(map(node, "abc"), [zones("a", {"cpu": "1"}, {GPU: "0"}), zones("b", {"cpu": "1"})])
    )
    assert tables.is_listed([GPU]).tolist() == [True, False, False]
    assert tables.is_listed([GPU, "cpu"]).tolist() == [True, True, False]
    assert not tables.is_listed([]).any()


def test_the_most_of_some_zones_is_that_of_those_that_list_all_the_rest() -> None:
    told = zones("a", {"cpu": "1", GPU: "1"}, {"cpu": "8"}, {"cpu": "4", GPU: "0"})
    tables = ZoneTables.of(cluster([node("a")], [told]))
    assert tables.most_in("cpu", frozenset(["cpu"])).T.tolist() == [[8000, 12000, 13000]]
    one, two, three = tables.most_in("cpu", frozenset(["cpu", GPU]))[:, 0].tolist()
    assert (one, two) == (4000, 5000)
    assert three < 0  # one of three lists no GPU


def test_the_first_of_each_column_is_found_among_as_many_as_255() -> None:
    suitable = np.zeros((255, 3), np.bool_)
    suitable[[0, 254, 254], [0, 0, 1]] = True
    assert first_of(suitable).tolist() == [0, 254, 255]


@pytest.mark.parametrize(
    ("resource", "native", "host_level", "shared"),
    [
        ("cpu", True, False, True),
        ("hugepages-2Mi", True, False, True),
        ("ephemeral-storage", True, True, False),
        ("kubernetes.io/x", True, False, False),
        (GPU, False, True, False),
    ],
)
def test_resources_belong_to_zones_in_three_ways(
    resource: str,
    native: bool,  # noqa: FBT001 (a parameter)
    host_level: bool,  # noqa: FBT001 (a parameter)
    shared: bool,  # noqa: FBT001 (a parameter)
) -> None:
    assert is_native(resource) is native
    assert is_host_level(resource) is host_level
    assert is_shared(resource, "Burstable") is shared
    assert not is_shared(resource, "Guaranteed")


def test_only_cpu_has_parts_of_a_whole() -> None:
    assert whole_units("cpu", 1001) == 2
    assert whole_units("memory", 1001) == 1001


def test_what_containers_request_is_bounded() -> None:
    one = pod({"cpu": "1", "memory": "9E"}, {}, init=[{GPU: "2"}])
    assert container_requests(one) == ([{GPU: 2}], [{"cpu": 1000, "memory": 2**48}, {}])
