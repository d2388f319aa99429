from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from engine.cel.vector.plan import Plan
from engine.cel.vector.steps import Loop, ScalarFallback
from engine.model import api
from engine.model.decision import Decision, PlacementRequest
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.pipeline import Scope, decide
from engine.placement import Patch
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState, ClusterView
from tests.counted_calls import counted_calls
from webhook.cluster import Cluster
from webhook.placement.live_policies import WarmUp
from webhook.placement.placer import Placer

OF_THE_SHOP = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: shop}
spec:
  match:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
  filters:
    - name: by-name
      expression: node.name.matches('^node-[a-z]$')
    - name: by-label
      expression: "!has(node.labels.gpu) || node.labels.gpu.startsWith('a')"
    - name: by-condition
      expression: node.conditions.all(c, c.type != 'DiskPressure' || c.status == 'False')
  scores:
    - name: by-size
      expression: "node.allocatable.cpu > 4.0 ? 10.0 : double(size(node.name))"
"""

WITH_THE_POD = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: mixed}
spec:
  match:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: mixed}}
  filters:
    - name: by-both
      expression: pod.labels.size == 'large' || node.name.matches('^node-[ab]$')
"""


@pytest.fixture
def loaded(tmp_path: Path) -> PolicySet:
    (tmp_path / "shop.yaml").write_text(OF_THE_SHOP)
    (tmp_path / "mixed.yaml").write_text(WITH_THE_POD)
    return load_policies([tmp_path])


def cluster_of(state: ClusterState) -> Cluster:
    return Cluster(state=state, now=lambda: Micros(0), is_live=True)


def review(state: ClusterState, policies: PolicySet, namespace: str) -> None:
    """Decide for a new pod of a namespace."""
    raw = b'{"metadata": {"labels": {"size": "small"}}, "spec": {"containers": [{"name": "c"}]}}'
    pod = pod_of(msgspec.json.decode(raw, type=api.Pod), namespace=namespace)
    labels = {"kubernetes.io/metadata.name": namespace}
    request = PlacementRequest(pod=pod, raw=raw, namespace_labels=labels)
    decision = decide(request, policies, state.view(), Micros(0), scope=Scope())
    assert decision.policies
    assert not decision.errors


def warm_up(cluster: Cluster) -> WarmUp:
    placer = Placer(view=cluster.view, now=cluster.now, scope=Scope())
    return WarmUp(cluster, placer.decide)


def filled(state: ClusterState, policies: PolicySet) -> None:
    for _ in warm_up(cluster_of(state)).steps(policies):
        pass


def rename(state: ClusterState) -> None:
    """Let a node come that is like another one."""
    node = state.view().nodes[0]
    assert node is not None
    state.set_node(replace(node, name="node-n"))


def evaluated(state: ClusterState, policies: PolicySet) -> int:
    """Return how many expressions a review by rules on nodes alone evaluates."""
    with counted_calls(Plan.column) as calls:
        review(state, policies, "shop")
    return calls.count


def test_rules_on_nodes_alone_of_new_policies_are_evaluated_before_any_review(
    state: ClusterState, loaded: PolicySet
) -> None:
    # None of the pods that are tried is of the namespace that the policy is for.
    filled(state, loaded)
    assert evaluated(state, loaded) == 0


def test_without_that_the_first_review_evaluates_each_rule(
    state: ClusterState, loaded: PolicySet
) -> None:
    assert evaluated(state, loaded) == 4  # three filters and a score
    assert evaluated(state, loaded) == 0


def test_rules_on_nodes_alone_are_evaluated_for_a_new_node_before_any_review(
    state: ClusterState, loaded: PolicySet
) -> None:
    filled(state, loaded)
    rename(state)
    filled(state, loaded)
    assert evaluated(state, loaded) == 0
    rename_back = state.view().nodes[0]
    assert rename_back is not None
    state.set_node(replace(rename_back, labels={"gpu": "b100"}))
    assert evaluated(state, loaded) == 4  # each for the node that has changed


def test_of_a_rule_on_node_and_pod_the_part_on_the_node_is_evaluated_before(
    state: ClusterState, loaded: PolicySet
) -> None:
    def parts() -> int:
        with counted_calls(ScalarFallback.evaluate, Loop._evaluate) as calls:  # noqa: SLF001
            review(state, loaded, "mixed")
        return calls.count

    filled(state, loaded)
    assert parts() == 0
    rename(state)
    assert parts() == 1  # the regular expression, on the new node


def test_steps_change_nothing_and_hold_no_view_between_two_of_them(
    state: ClusterState, loaded: PolicySet
) -> None:
    cluster = cluster_of(state)
    version = state.version
    steps = 0
    for _ in warm_up(cluster).steps(loaded):
        assert state.version == version
        seen = weakref.ref(state.view())
        state.delete_namespace("nobody")  # an event: the view of before is not the state's any more
        version = state.version
        assert seen() is None
        steps += 1
    assert steps == 7  # five rules, a pod that counts as production, and one that does not


def test_policies_that_fail_in_a_trial_are_loaded_all_the_same(
    state: ClusterState, loaded: PolicySet
) -> None:
    def now() -> Micros:
        raise ValueError("no clock")

    cluster = Cluster(state=state, now=now, is_live=False)
    assert len(list(warm_up(cluster).steps(loaded))) == 7


def test_of_very_many_rules_those_of_the_first_policies_are_evaluated(
    state: ClusterState, tmp_path: Path
) -> None:
    def policies() -> Iterator[str]:
        for number in range(70):
            yield OF_THE_SHOP.replace("name: shop}", f"name: shop-{number}}}", 1)

    (tmp_path / "many.yaml").write_text("---".join(policies()))
    many = load_policies([tmp_path])
    steps = list(warm_up(cluster_of(state)).steps(many))
    assert len(steps) == 66  # of 280 rules 64, and two decisions


def test_a_patch_after_the_trial_decisions_finds_what_it_reads_of_all_nodes(
    state: ClusterState, policies: Path
) -> None:
    encoded: list[Decision] = []

    def encode(decision: Decision, request: PlacementRequest, view: ClusterView) -> Patch:
        del request, view
        encoded.append(decision)
        return Patch()

    advising = load_policies([policies])
    state.track_sums(advising.sum_profiles)
    placer = Placer(view=state.view, now=lambda: Micros(0), scope=Scope(), encode=encode)
    steps = list(WarmUp(cluster_of(state), placer.decide).steps(advising))
    assert len(steps) == 3  # one rule is an expression
    assert len(encoded) == 2
    assert all(decision.candidates.size for decision in encoded)
