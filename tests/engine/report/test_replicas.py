from __future__ import annotations

from msgspec import structs

from engine.model.pod import Pod
from engine.report import Crowd, PodName, Replicas
from tests.engine.simulation.recordings import of_daemon_set, of_deployment, recorded_pod


def web(number: int, on: str) -> Pod:
    return of_deployment("web", number, on).pod


def test_the_most_pods_of_one_owner_on_one_node_are_found() -> None:
    replicas = Replicas()
    pods = [web(1, "b"), web(2, "b"), web(3, "a"), of_deployment("api", 1, "b").pod]
    for pod in pods:
        replicas.set(pod)
    assert replicas.crowd() == Crowd(pods=2, node="b", example=PodName("shop", "web-abc-1"))


def test_of_two_nodes_with_as_many_it_is_the_first_by_name() -> None:
    replicas = Replicas()
    for pod in (web(1, "b"), web(2, "a")):
        replicas.set(pod)
    assert (replicas.crowd().node, replicas.crowd().pods) == ("a", 1)


def test_pods_that_move_end_or_go_no_longer_count_where_they_were() -> None:
    replicas = Replicas()
    for pod in (web(1, "a"), web(2, "a"), web(3, "a")):
        replicas.set(pod)
    replicas.set(web(1, "b"))
    replicas.set(structs.replace(web(2, "a"), phase="Succeeded"))
    replicas.delete("shop/web-abc-3")
    replicas.delete("shop/nobody")
    assert replicas.crowd() == Crowd(pods=1, node="b", example=PodName("shop", "web-abc-1"))


def test_pods_without_an_owner_or_a_node_and_those_of_daemon_sets_do_not_count() -> None:
    replicas = Replicas()
    for each in (recorded_pod("alone", "a"), of_daemon_set("agent", "a"), of_deployment("web", 1)):
        replicas.set(each.pod)
    assert replicas.crowd() == Crowd()
