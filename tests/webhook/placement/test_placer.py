from __future__ import annotations

import weakref
from pathlib import Path

import msgspec
import pytest

from engine.model import api
from engine.model.decision import Decision, Verdict
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.placement import Advice, Patch
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState, ClusterView
from webhook.cluster import Cluster
from webhook.placement.placer import Placer

RAW = b'{"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}'


def request_in(namespace: str) -> PlacementRequest:
    pod = pod_of(msgspec.json.decode(RAW, type=api.Pod), namespace=namespace)
    return PlacementRequest(pod=pod, raw=RAW, request={"uid": "u-1"})


@pytest.fixture
def loaded(state: ClusterState, policies: Path) -> PolicySet:
    policy_set = load_policies([policies])
    state.track_sums(policy_set.sum_profiles)
    return policy_set


class Recorder:
    """Assumed pods, each of which checks that no view is alive: the change would copy it."""

    def __init__(self, state: ClusterState) -> None:
        self.assumed: list[tuple[str, Advice]] = []
        self._state = state
        self.views: list[weakref.ref[ClusterView]] = []

    def view(self) -> ClusterView:
        view = self._state.view()
        self.views.append(weakref.ref(view))
        return view

    def assume(self, pod: Pod, advice: Advice) -> None:
        self._state.delete_namespace("nobody")  # an event: from here on the state has another view
        assert not any(view() for view in self.views)
        self.assumed.append((pod.namespace, advice))

    def withdraw(self, pod: Pod) -> Advice | None:
        del pod
        return None


def placer(state: ClusterState, recorder: Recorder, **given: object) -> Placer:
    del state
    return Placer(
        view=recorder.view,
        now=lambda: Micros(0),
        scope=Scope(),
        assumed=recorder,
        **given,  # type: ignore[arg-type]
    )


def test_a_placement_has_the_decision_and_its_patch_and_keeps_no_view_alive(
    state: ClusterState, loaded: PolicySet
) -> None:
    recorder = Recorder(state)

    def preferring(decision: Decision, request: PlacementRequest, view: ClusterView) -> Patch:
        del request
        assert decision.view_version == view.version
        return Patch(advice=Advice(nodes=("node-a",)), warnings=("encoded",))

    placement = placer(state, recorder, encode=preferring).place(request_in("shop"), loaded)
    assert placement.verdict is Verdict.PLACE
    assert placement.policies == ("balance-limits",)
    assert placement.candidates == 3
    assert placement.patch.warnings == ("encoded",)
    assert recorder.assumed == [("shop", Advice(nodes=("node-a",)))]


def test_a_dry_run_and_a_denied_pod_are_not_assumed(state: ClusterState, loaded: PolicySet) -> None:
    recorder = Recorder(state)
    tested = placer(state, recorder)
    assert tested.place(request_in("shop"), loaded, dry_run=True).verdict is Verdict.PLACE
    # The policy `closed` selects the namespace by the label that every namespace has.
    assert tested.place(request_in("closed"), loaded).verdict is Verdict.DENY
    assert recorder.assumed == []


def test_trial_decisions_change_nothing_and_hold_no_view_between_two_of_them(
    state: ClusterState, loaded: PolicySet
) -> None:
    cluster = Cluster(state=state, now=lambda: Micros(0), is_live=True)
    tested = Placer(view=cluster.view, now=cluster.now, scope=Scope())
    version = state.version
    steps = 0
    for _ in tested.warm_up(loaded):
        assert state.version == version
        seen = weakref.ref(state.view())
        state.delete_namespace("nobody")  # an event: the view of before is not the state's any more
        version = state.version
        assert seen() is None
        steps += 1
    assert steps == 2  # a pod that counts as production, and one that does not


def test_a_patch_after_the_trial_decisions_finds_what_it_reads_of_all_nodes(
    state: ClusterState, loaded: PolicySet
) -> None:
    encoded: list[Decision] = []

    def encode(decision: Decision, request: PlacementRequest, view: ClusterView) -> Patch:
        del request, view
        encoded.append(decision)
        return Patch()

    tested = Placer(view=state.view, now=lambda: Micros(0), scope=Scope(), encode=encode)
    assert len(list(tested.warm_up(loaded))) == len(encoded)
    assert all(decision.candidates.size for decision in encoded)


def test_policies_that_fail_in_a_trial_are_loaded_all_the_same(
    state: ClusterState, policies: Path
) -> None:
    def now() -> Micros:
        raise ValueError("no clock")

    tested = Placer(view=state.view, now=now, scope=Scope())
    assert len(list(tested.warm_up(load_policies([policies])))) == 2
