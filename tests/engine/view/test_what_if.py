from __future__ import annotations

import gc
import weakref

import numpy as np

from engine.model.scheduler_plugins import APP_GROUP_LABEL, WORKLOAD_LABEL
from engine.model.usage import PodUsage
from engine.plugins.load_aware.plugin import LoadAwareArgs
from engine.view import ClusterState, ClusterView, Domain, IntColumn, PodTransitions, Sum, WhatIf
from tests.engine.measured_cluster import NOW, node, pod, report
from tests.engine.view_facts import traits_on

_WORKLOAD = {"labels": {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: "front"}}
PROFILE = LoadAwareArgs().load_profile


def _state() -> ClusterState:
    state = ClusterState()
    state.track_sums([PROFILE])
    for name in ("a", "b"):
        state.set_node(node(name, cpu="4", memory="8Gi"))
        state.set_usage(report(name, {"cpu": 100}))
    return state


def _sums(view: ClusterView) -> tuple[object, ...]:
    return (
        view.sums.tolist(),
        [sorted(traits_on(view, row)) for row in range(len(view))],
        view.assumed.tolist(),
        [sums.tolist() for sums in view.pod_sums.values()],
        dict(view.workloads),
    )


def test_a_pod_counts_as_if_it_were_nominated() -> None:
    held = pod("p", schedulingGates=[{"name": "stowplan.dev/hold"}], requests={"cpu": "1"})
    state = _state()
    state.set_pod(held, seen_at=NOW)
    what_if = WhatIf(state.view())
    what_if.place(held, state.view().rows["b"])
    state.nominate(held.key, "b")
    assert _sums(what_if.view) == _sums(state.view())
    assert what_if.view.transitions == state.view().transitions == {"b": PodTransitions(0, 1)}


def test_pods_that_are_removed_count_as_if_they_were_deleted() -> None:
    state = _state()
    for name in ("n", "m"):
        on_b = pod(
            name,
            "b",
            requests={"cpu": "1"},
            metadata={**_WORKLOAD, "name": name, "namespace": "default"},
        )
        state.set_pod(on_b, seen_at=NOW)
    state.set_usage(report("b", {"cpu": 100}, pods={"n": PodUsage({"cpu": 400}, is_prod=True)}))
    before = _sums(state.view())
    removed = [(key, entry) for key in ("default/n", "default/m") if (entry := state.entry(key))]
    what_if = WhatIf(state.view())
    what_if.remove(removed)
    gone = _sums(what_if.view)
    what_if.restore(removed[:1])
    state.delete_pod("default/m")
    assert _sums(what_if.view) == _sums(state.view())
    state.delete_pod("default/n")
    assert gone == _sums(state.view())
    what_if.restore(removed[1:])
    assert _sums(what_if.view) == before


def test_pods_ahead_count_as_if_they_were_placed_one_by_one() -> None:
    incoming, what_if = (
        pod(requests={"cpu": "1"}, limits={"memory": "1Gi"}),
        WhatIf(_state().view()),
    )
    ahead = what_if.ahead(incoming, np.array([1, 1, 0]), np.array([2, 0, 1]))
    before = what_if.view.sums[:, :, 1].tolist()
    for row in (1, 1, 0):
        what_if.place(incoming, row)
    for at, row in ((0, 1), (2, 0)):
        assert ahead.sums[:, :, at].tolist() == what_if.view.sums[:, :, row].tolist()
        assert ahead.assumed[at] == what_if.view.assumed[row]
        for profile, sums in ahead.pod_sums.items():
            assert sums[:, at].tolist() == what_if.view.pod_sums[profile][:, row].tolist()
    assert ahead.sums[:, :, 1].tolist() == before


def test_the_view_it_begins_with_stays_as_it_is() -> None:
    state = _state()
    view = state.view()
    before, incoming = _sums(view), pod(requests={"cpu": "1"})

    def column(rows: ClusterView) -> IntColumn:
        return np.array(rows.sums[Sum.REQUESTS, 0])

    what_if = WhatIf(view)
    what_if.place(incoming, 1)
    assert what_if.view.node_column("cpu", (Domain.PODS,), column).tolist() == [0, 1000]
    assert view.node_column("cpu", (Domain.PODS,), column).tolist() == [0, 0]
    assert _sums(view) == before
    assert state.view() is view


def test_nothing_of_it_lasts() -> None:
    state = _state()
    what_if = WhatIf(state.view())
    what_if.place(pod(requests={"cpu": "1"}), 1)
    what_if.take(np.array([1])).view.node_aggregate("any", (Domain.PODS,), len)
    left = weakref.ref(what_if.view)
    gc.disable()
    try:
        del what_if
        assert left() is None
    finally:
        gc.enable()
