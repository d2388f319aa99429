from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.model import api
from engine.model.pod import pod_of
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts

RAW = b'{"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}'

WATCHING = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: watching}
spec:
  mode: Audit
  filters:
    - name: second-zone
      expression: "node.labels['topology.kubernetes.io/zone'] == 'zone-2'"
      message: another zone
"""


@pytest.fixture
def loaded(state: ClusterState, policies: Path) -> PolicySet:
    (policies / "watching.yaml").write_text(WATCHING)
    policy_set = load_policies([policies])
    state.track_sums(policy_set.sum_profiles)
    return policy_set


def place(state: ClusterState, counts: PolicyCounts, policies: PolicySet, namespace: str) -> None:
    placer = Placer(view=state.view, now=lambda: Micros(0), scope=Scope())
    pod = pod_of(msgspec.json.decode(RAW, type=api.Pod), namespace=namespace)
    counts.count(placer.place(PlacementRequest(pod=pod, raw=RAW), policies), policies)


def seen(counts: PolicyCounts, policies: PolicySet) -> dict[tuple[str, str, str], int]:
    """Return the decisions that there were."""
    return {key: count for key, count in counts.decisions(policies).items() if count}


def test_each_policy_that_takes_part_is_counted_with_its_mode_and_the_outcome(
    state: ClusterState, loaded: PolicySet
) -> None:
    counts = PolicyCounts()
    place(state, counts, loaded, "shop")
    place(state, counts, loaded, "closed")
    assert seen(counts, loaded) == {
        ("balance-limits", "Enforce", "placed"): 1,
        ("balance-limits", "Enforce", "denied"): 1,  # with `closed`, all of whose filters apply
        ("closed", "Enforce", "denied"): 1,
        ("watching", "Audit", "placed"): 2,
    }
    # All 3 nodes in `closed`; of those in both zones, the 2 of the first one, twice.
    assert counts.rejections(loaded) == {
        ("closed", "Enforce", "nobody"): 3,
        ("watching", "Audit", "second-zone"): 4,
    }


def test_a_decision_that_is_not_encoded_is_counted_the_same(
    state: ClusterState, loaded: PolicySet
) -> None:
    # The first zone's 2 nodes are rejected.
    counts = PolicyCounts()
    placer = Placer(view=state.view, now=lambda: Micros(0), scope=Scope())
    pod = pod_of(msgspec.json.decode(RAW, type=api.Pod), namespace="shop")
    decision, _ = placer.decide(PlacementRequest(pod=pod, raw=RAW), loaded)
    counts.count_release(decision, decision.verdict, loaded)
    assert seen(counts, loaded) == {
        ("balance-limits", "Enforce", "placed"): 1,
        ("watching", "Audit", "placed"): 1,
    }
    assert counts.rejections(loaded)["watching", "Audit", "second-zone"] == 2


def test_what_is_in_force_starts_at_nothing_and_what_is_not_is_forgotten(
    state: ClusterState, loaded: PolicySet
) -> None:
    counts = PolicyCounts()
    assert len(counts.decisions(loaded)) == 3 * 3  # policies, outcomes
    place(state, counts, loaded, "shop")
    audited = loaded.in_audit_mode()
    assert seen(counts, audited) == {("watching", "Audit", "placed"): 1}
    assert {mode for _, mode, _ in counts.decisions(audited)} == {"Audit"}
    assert seen(counts, PolicySet()) == {}
    assert counts.rejections(PolicySet()) == {}
