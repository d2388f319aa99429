from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.model.pod import Pod
from engine.plugins import Cycle
from engine.plugins.node_ports import PLUGIN, NodePortsFilter
from engine.view import ClusterView, WhatIf
from tests.engine.measured_cluster import NOW, cluster, node, pod
from tests.engine.plugins.neighbour_worlds import model_of, random_cluster, random_pod, state_of
from tests.engine.plugins.scheduler_oracle import PORTS, node_ports

RULE = NodePortsFilter()


def rejected(incoming: Pod, view: ClusterView) -> set[str]:
    rejects = RULE.filter(Cycle(incoming, view, NOW)).rejects
    return {view.names[row] for row in np.flatnonzero(rejects).tolist()}


def with_port(name: str, on: str = "", *, sidecar: bool = False, **port: object) -> Pod:
    container = {"name": "main", "ports": [port]}
    if not sidecar:
        return pod(name, on, containers=[container])
    return pod(name, on, initContainers=[{**container, "restartPolicy": "Always"}])


def test_a_port_without_an_address_is_taken_on_all_of_them() -> None:
    taken = [with_port("p", "a", hostPort=80), with_port("q", "b", hostPort=80, hostIP="10.0.0.1")]
    view = cluster([node("a"), node("b"), node("c")], taken)
    assert rejected(with_port("x", hostPort=80), view) == {"a", "b"}
    assert rejected(with_port("x", hostPort=80, hostIP="10.0.0.2"), view) == {"a"}
    assert rejected(with_port("x", hostPort=80, protocol="UDP"), view) == set()
    assert rejected(with_port("x", containerPort=80), view) == set()
    (used,) = RULE.inputs(Cycle(taken[0], view, NOW), view.rows["b"])
    assert used.value == 1


def test_the_ports_of_sidecars_are_taken_too() -> None:
    init = pod("i", "b", initContainers=[{"name": "once", "ports": [{"hostPort": 80}]}])
    view = cluster([node("a"), node("b")], [with_port("p", "a", sidecar=True, hostPort=80), init])
    assert rejected(with_port("x", sidecar=True, hostPort=80), view) == {"a"}


def test_a_node_takes_one_pod_of_a_template_with_a_port() -> None:
    view, incoming = cluster([node("a"), node("b")]), with_port("x", hostPort=80)
    ahead = WhatIf(view).ahead(incoming, np.array([0, 0, 1]), np.array([0, 1, 2]))
    assert RULE.filter(Cycle(incoming, ahead, NOW)).rejects.tolist() == [False, True, True]
    assert PLUGIN.concerns(Cycle(incoming, view, NOW))
    assert not PLUGIN.concerns(Cycle(pod(), view, NOW))


@given(st.randoms(use_true_random=False))
def test_the_filter_agrees_with_the_schedulers_own(random: Random) -> None:
    world, wanted = random_cluster(random), random_pod(random)
    expected = {name for name, reason in node_ports(wanted, world).items() if reason == PORTS}
    assert rejected(model_of(wanted), state_of(world).view()) == expected
