from __future__ import annotations

import weakref
from pathlib import Path

import jsonpatch
import msgspec
import pytest

from engine.model import api
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.placement import Advice, Patch
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState, ClusterView
from webhook.placement.placer import Placer, beyond_limits

_encode, _pod = msgspec.json.encode, msgspec.json.Decoder(api.Pod).decode


def containers(count: int) -> object:
    return {"containers": [{"name": "c"}] * count}


def amounts(count: int) -> object:
    requests = {f"example.com/r{number}": "1" for number in range(count - 2)}
    resources = {"requests": requests, "limits": {"cpu": "1"}}
    return {"containers": [{"resources": resources}], "overhead": {"cpu": "1"}}


def required(terms: list[object]) -> object:
    selector = {"nodeSelectorTerms": terms}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return {"affinity": {"nodeAffinity": affinity}}


def preferred(count: int) -> object:
    terms = [{"weight": 1, "preference": {}}] * count
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": affinity}}


def expressions(count: int, values: int = 0) -> object:
    requirement = {"key": "k", "operator": "In", "values": ["v"] * values}
    return required([{"matchExpressions": [requirement] * count}])


@pytest.mark.parametrize(
    ("allowed", "beyond", "reason"),
    [
        (containers(100), containers(101), "more than 100 containers"),
        (amounts(400), amounts(401), "more than 400 amounts of resources"),
        (required([{}] * 50), required([{}] * 51), "more than 50 node selector terms"),
        (preferred(50), preferred(51), "more than 50 node selector terms"),
        (expressions(250), expressions(251), "more than 250 node selector requirements"),
        (
            {"nodeSelector": {str(number): "" for number in range(250)}},
            {"nodeSelector": {str(number): "" for number in range(251)}},
            "more than 250 node selector requirements",
        ),
        (expressions(2, 1_000), expressions(3, 1_000), "more than 2000 node selector values"),
        ({"tolerations": [{}] * 500}, {"tolerations": [{}] * 501}, "more than 500 tolerations"),
    ],
)
def test_a_pod_gets_advice_up_to_each_limit(allowed: object, beyond: object, reason: str) -> None:
    assert beyond_limits(_pod(_encode({"spec": allowed}))) == ""
    assert reason in beyond_limits(_pod(_encode({"spec": beyond})))


def test_statuses_that_a_creator_made_up_count_too() -> None:
    status = {"containerStatuses": [{"name": "c"}] * 60, "initContainerStatuses": [{}] * 41}
    assert beyond_limits(_pod(_encode({"status": status}))) == "more than 100 container statuses"


def test_an_ordinary_pod_is_within_the_limits() -> None:
    assert beyond_limits(_pod(b"{}")) == ""
    assert beyond_limits(_pod(_encode({"spec": {"containers": None, "affinity": {}}}))) == ""


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


AT_BINDING = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: at-binding}
spec:
  filters:
    - name: pool
      expression: "'pool' in node.labels"
      message: only nodes of a pool
  placement: {at: Binding}
"""


def test_a_pod_that_is_decided_at_its_binding_gets_its_promises_once_and_no_decision(
    state: ClusterState, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(AT_BINDING)
    policies, recorder = load_policies([tmp_path]), Recorder(state)
    tested = placer(state, recorder, decides_bindings=True)
    placement = tested.place(request_in("shop"), policies)
    assert placement.verdict is Verdict.ABSTAIN
    assert placement.message.endswith("by at-binding")
    assert placement.policies == ()  # which count it at its binding
    assert recorder.assumed == []

    once = jsonpatch.apply_patch(msgspec.json.decode(RAW), list(placement.patch.operations))
    (term,) = once["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
    assert "annotations" not in once["metadata"]  # which would tell that it was advised before
    raw = msgspec.json.encode(once)
    pod = pod_of(msgspec.json.decode(raw, type=api.Pod), namespace="shop")
    again = tested.place(PlacementRequest(pod=pod, raw=raw), policies)
    assert again.patch.operations == ()


def test_where_nobody_decides_bindings_such_a_pod_is_advised(
    state: ClusterState, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(AT_BINDING.replace("'pool' in node.labels", "true"))
    policies = load_policies([tmp_path])
    placement = placer(state, Recorder(state)).place(request_in("shop"), policies)
    assert (placement.verdict, placement.policies) == (Verdict.PLACE, ("at-binding",))
