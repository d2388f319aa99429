from __future__ import annotations

import weakref
from pathlib import Path

from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import load_policies
from engine.view import ClusterState
from webhook.cluster.watch.known_cluster import Cluster
from webhook.placement.warm_up import warm_up


def test_trying_decisions_changes_nothing_and_holds_no_view_between_two_of_them(
    state: ClusterState, policies: Path
) -> None:
    loaded = load_policies([policies])
    state.track_sums(loaded.sum_profiles)
    cluster = Cluster(state=state, now=lambda: Micros(0), is_live=True)
    version = state.version
    steps = 0
    for _ in warm_up(loaded, cluster, Scope()):
        assert state.version == version
        seen = weakref.ref(state.view())
        state.delete_namespace("nobody")  # an event: the view of before is not the state's any more
        version = state.version
        assert seen() is None
        steps += 1
    assert steps == 2  # a pod that counts as production, and one that does not


def test_policies_that_fail_in_a_try_are_taken_up_all_the_same(
    state: ClusterState, policies: Path
) -> None:
    def now() -> Micros:
        raise ValueError("no clock")

    cluster = Cluster(state=state, now=now, is_live=False)
    assert len(list(warm_up(load_policies([policies]), cluster, Scope()))) == 2
