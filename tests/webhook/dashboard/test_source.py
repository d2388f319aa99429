from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.decision import PlacementRequest, Verdict
from engine.model.pod import Pod, pod_of
from engine.pipeline import Scope, decide
from engine.policy import PolicySet, load_policies
from engine.report import DecisionReport, PodName, excerpt_of
from engine.view import ClusterState
from tests.webhook.dashboard.serving import NOW
from webhook.cluster import Cluster
from webhook.dashboard import PodDecisions
from webhook.placement.explanations import Explanations

BALANCE = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: room}
spec:
  filters:
    - name: room
      expression: "node.requested.cpu < 3.0"
      message: three cores are requested
"""


def stored(name: str, **spec: object) -> bytes:
    requests = {"cpu": "3", "memory": "1Gi"}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    wire: dict[str, Any] = {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": name,
            "annotations": {"stowplan.dev/reason": "2 of 3 nodes fit", "team": "a"},
        },
        "spec": {"containers": containers, **spec},
        "status": {"phase": "Running"},
    }
    return msgspec.json.encode(wire)


def model(raw: bytes) -> Pod:
    return pod_of(msgspec.json.decode(raw, type=api.Pod))


@pytest.fixture
def decisions(state: ClusterState, tmp_path: Path) -> PodDecisions:
    (tmp_path / "room.yaml").write_text(BALANCE)
    policies = load_policies([tmp_path / "room.yaml"])
    state.track_sums(policies.sum_profiles)
    return PodDecisions(
        cluster=Cluster(state=state, now=lambda: NOW, is_live=True),
        policies=lambda: policies,
        scope=Scope(),
        explanations=Explanations(8),
        clock=time.monotonic,
    )


def rejected(decisions: PodDecisions, raw: bytes) -> set[str]:
    """Return the nodes that a decision for a pod rejects now."""
    now = decisions.report(raw).now
    assert now is not None
    assert now.verdict is not Verdict.DENY
    return set(now.rejected)


def test_a_pod_competes_with_others_and_not_with_itself(
    state: ClusterState, decisions: PodDecisions
) -> None:
    on_a, on_b = stored("one", nodeName="node-a"), stored("two", nodeName="node-b")
    for raw in (on_a, on_b):
        state.set_pod(model(raw), seen_at=NOW)
    version = state.version
    assert rejected(decisions, on_a) == {"node-b"}
    assert rejected(decisions, on_b) == {"node-a"}
    assert rejected(decisions, stored("new")) == {"node-a", "node-b"}
    assert state.version == version  # there is no trace of a decision


def test_a_report_says_where_a_pod_is_and_what_is_noted_on_it(
    state: ClusterState, decisions: PodDecisions
) -> None:
    raw = stored("one", nodeName="node-a")
    state.set_pod(model(raw), seen_at=NOW)
    report = decisions.report(raw)
    assert (str(report.pod), report.node, report.expected_node) == ("shop/one", "node-a", "")
    assert (report.noted, report.is_held, report.problem) == ("2 of 3 nodes fit", False, "")


def test_a_held_pod_is_decided_as_if_it_was_released(
    state: ClusterState, decisions: PodDecisions
) -> None:
    raw = stored("one", schedulingGates=[{"name": "stowplan.dev/hold"}])
    state.set_pod(model(raw), seen_at=NOW)
    state.nominate("shop/one", "node-c")
    report = decisions.report(raw)
    assert (report.is_held, report.expected_node) == (True, "node-c")
    assert rejected(decisions, raw) == set()


def test_the_decision_that_was_recorded_is_that_of_the_very_pod(
    state: ClusterState, decisions: PodDecisions
) -> None:
    made = excerpt_of(
        decide(PlacementRequest(pod=model(stored("one")), raw=b""), PolicySet(), state.view(), NOW)
    )
    for name in ("one", "one-more"):
        excerpt = msgspec.structs.replace(made, pod=PodName("shop", name), message=name)
        decisions.explanations.offer(lambda excerpt=excerpt: excerpt)  # type: ignore[misc]
    recorded = decisions.report(stored("one")).recorded
    assert isinstance(recorded, DecisionReport)
    assert recorded.message == "one"
    assert decisions.report(stored("on")).recorded is None


@pytest.mark.parametrize(("scheduler_node", "action"), [("node-b", "Move"), ("node-a", "Keep")])
def test_what_became_of_a_pod_at_its_binding_is_read_from_the_pod(
    decisions: PodDecisions, scheduler_node: str, action: str
) -> None:
    bound = msgspec.json.decode(stored("one", nodeName="node-a"))
    bound["metadata"]["annotations"] |= {
        "stowplan.dev/scheduler-node": scheduler_node,
        "stowplan.dev/binding": "BetterNode",
    }
    binding = decisions.report(msgspec.json.encode(bound)).binding
    assert binding is not None
    assert (binding.action, binding.reason) == (action, "BetterNode")
    assert (binding.scheduler_node, binding.node) == (scheduler_node, "node-a")
    assert binding.message == "2 of 3 nodes fit"
    assert decisions.report(stored("two", nodeName="node-a")).binding is None


def test_a_pod_that_is_too_large_is_not_decided(decisions: PodDecisions) -> None:
    many = [{"name": f"c{number}"} for number in range(101)]
    report = decisions.report(stored("one", containers=many))
    assert (report.now, report.problem) == (None, "it has more than 100 containers")


def test_what_is_no_pod_is_told_from_one(decisions: PodDecisions) -> None:
    with pytest.raises(ValueError, match="Expected `object`"):
        decisions.report(b"[]")
