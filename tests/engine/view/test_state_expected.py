"""What a pod adds to the nodes that it may be bound to at any moment."""

from __future__ import annotations

from random import Random

from engine.model.decision import Advice
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, node, pod
from tests.engine.view.objects import a_pod

CPU = 500  # of a pod


def cluster(nodes: str = "abc", **more: object) -> ClusterState:
    state = ClusterState()
    for name in nodes:
        state.set_node(node(name, cpu="8"))
    state.set_pod(a_pod(**more), seen_at=NOW)  # type: ignore[arg-type]
    return state


def counted(state: ClusterState) -> dict[str, int]:
    """Return the millicores that pods request of each node that has any."""
    view = state.view()
    cpu = view.amount(view.sums[0], "cpu")
    return {name: int(cpu[row]) for name, row in view.rows.items() if cpu[row]}


def test_it_counts_on_each_of_them_as_if_it_were_bound_there() -> None:
    state = cluster()
    state.expect_binding("default/p", ["a", "b"], at=NOW)
    assert counted(state) == {"a": CPU, "b": CPU}
    assert state.view().assumed.sum() == 2


def test_it_counts_nowhere_else() -> None:
    state = cluster(advice=Advice(nodes=("c",)))
    assert counted(state) == {"c": CPU}
    state.expect_binding("default/p", ["a"], at=NOW)
    assert counted(state) == {"a": CPU}
    state.expect_binding("default/p", [""], at=NOW)  # on no node at all
    assert counted(state) == {}
    state.expect_binding("default/p", [], at=NOW)
    assert counted(state) == {"c": CPU}


def test_it_does_whatever_is_seen_of_it() -> None:
    state = cluster()
    state.expect_binding("default/p", ["a", "b"], at=NOW)
    state.set_pod(a_pod(advice=Advice(nodes=("c",))), seen_at=NOW)
    state.nominate("default/p", "c")
    state.release_assumed(NOW)
    assert counted(state) == {"a": CPU, "b": CPU}


def test_it_grows_on_each_of_them() -> None:
    state = cluster()
    state.expect_binding("default/p", ["a", "b"], at=NOW)
    state.set_pod(a_pod(template={"requests": {"cpu": "1"}}), seen_at=NOW)
    assert counted(state) == {"a": 1000, "b": 1000}


def test_once_it_is_bound_or_gone_it_counts_there_no_more() -> None:
    state = cluster()
    state.expect_binding("default/p", ["a", "b"], at=NOW)
    state.set_pod(a_pod(on="b"), seen_at=NOW)
    assert counted(state) == {"b": CPU}
    state.expect_binding("default/p", ["a"], at=NOW)  # too late
    assert counted(state) == {"b": CPU}
    gone = cluster()
    gone.expect_binding("default/p", ["a", "b"], at=NOW)
    gone.delete_pod("default/p")
    assert counted(gone) == {}


def test_nodes_that_go_and_come_take_it_along() -> None:
    state = cluster("a")
    state.expect_binding("default/p", ["a", "b"], at=NOW)
    assert counted(state) == {"a": CPU}
    state.set_node(node("b", cpu="8"))
    state.delete_node("a")
    assert counted(state) == {"b": CPU}
    state.set_node(node("a", cpu="8"))
    assert counted(state) == {"a": CPU, "b": CPU}


def test_an_unknown_pod_is_expected_nowhere() -> None:
    state = cluster()
    state.expect_binding("default/other", ["a"], at=NOW)
    assert counted(state) == {}


def test_pods_are_counted_once_each() -> None:
    state = cluster()
    state.expect_binding("default/p", ["a", "b", "c"], at=NOW)
    assert [*state.pods_containing("p")] == [("default/p", "a")]


def test_any_order_of_events_ends_in_the_same_sums() -> None:
    random = Random(1)
    state, names = ClusterState(), ["p", "q", "r"]
    bound: dict[str, str] = {}
    expected: dict[str, list[str]] = {}
    known: set[str] = set()
    for name in "abc":
        state.set_node(node(name, cpu="8"))
    for _ in range(400):
        name = random.choice(names)
        match random.randrange(5):
            case 0:
                bound.pop(name, None)
                known.add(name)
                if name not in expected:
                    expected[name] = []
                state.set_pod(pod(name, requests={"cpu": "500m"}), seen_at=NOW)
            case 1:
                on = random.choice("abc")
                known.add(name)
                bound[name], expected[name] = on, []
                state.set_pod(pod(name, on, requests={"cpu": "500m"}), seen_at=NOW)
            case 2:
                for each in (bound, expected):
                    each.pop(name, None)
                known.discard(name)
                state.delete_pod(f"default/{name}")
            case _:
                nodes = random.sample("abc", random.randrange(4))
                if name in known and name not in bound:
                    expected[name] = nodes
                state.expect_binding(f"default/{name}", nodes, at=NOW)
        sums = dict.fromkeys("abc", 0)
        for on in (*bound.values(), *(each for nodes in expected.values() for each in nodes)):
            sums[on] += CPU
        assert counted(state) == {each: cpu for each, cpu in sums.items() if cpu}
