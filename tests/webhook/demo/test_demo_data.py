"""The embedded example tells the story that its comments promise."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

import webhook.demo
from engine.model.decision import Decision, PlacementRequest
from engine.pipeline import decide
from engine.plugins import PLUGINS, Cycle
from engine.policy import load_policies
from engine.quota import judge
from engine.report import decision_report
from engine.view import ClusterView, IntColumn, Sum, counted_requests
from tests.builders import pod_from
from webhook.cluster import load_recorded

DATA = Path(webhook.demo.__file__).parent
RECORDING = load_recorded([DATA / "cluster.yaml"])
POLICIES = load_policies([DATA / "policies"])


def view() -> ClusterView:
    RECORDING.state.track_sums(POLICIES.sum_profiles)
    return RECORDING.state.view()


def submitted(file: str) -> PlacementRequest:
    manifest = yaml.safe_load((DATA / "pods" / file).read_text())
    pod = pod_from(manifest)
    return PlacementRequest(pod=pod, raw=msgspec.json.encode(manifest))


def decided(file: str) -> Decision:
    return decide(submitted(file), POLICIES, view(), RECORDING.recorded_at)


def by_node(column: IntColumn) -> dict[str, int]:
    return {name: int(column[row]) for name, row in view().rows.items()}


def test_all_of_it_is_read() -> None:
    assert not RECORDING.problems
    assert not RECORDING.skipped
    assert RECORDING.loaded == {
        "Node": 4, "Pod": 8, "Namespace": 2, "ElasticQuota": 1, "NodeMetric": 4
    }  # fmt: skip


def test_the_table_in_its_first_lines_is_right() -> None:
    cpu = view().axis.find("cpu")
    assert by_node(view().allocatable[cpu]) == dict.fromkeys(view().rows, 8000)
    requests, limits = (by_node(view().sums[one, cpu]) for one in (Sum.REQUESTS, Sum.LIMITS))
    assert requests == {"node1": 4000, "node2": 5000, "node3": 500, "node4": 3000}
    assert limits == {"node1": 10000, "node2": 5000, "node3": 0, "node4": 3000}
    used = {one.node_name: (one.usage or {})["cpu"] for one in view().usages if one is not None}
    assert used == {"node1": 1500, "node2": 1600, "node3": 7200, "node4": 1500}


def test_requests_alone_favour_the_busy_node_and_then_the_overcommitted_one() -> None:
    plugin = PLUGINS["NodeResourcesFit"]
    assert plugin.score is not None
    scorer = plugin.score(plugin.args())
    scores = by_node(
        scorer.score(Cycle(submitted("1-limits.yaml").pod, view(), RECORDING.recorded_at)).values
    )
    assert scores["node3"] > scores["node1"] > scores["node2"]


def test_the_policy_favours_the_node_with_room_for_the_limits() -> None:
    decision = decided("1-limits.yaml")
    names = [decision.names[row] for row in decision.candidates.tolist()]
    # The example of KEP-217: -12 and -75, normalised over the two.
    assert names == ["node2", "node1"]
    assert decision.scores[0].raw.tolist() == [-12, -75]
    assert decision.scores[0].normalized.tolist() == [100, 0]
    rejected = decision_report(decision).rejected
    left_out = {node: reasons[0].rule for node, reasons in rejected.items()}
    assert left_out == {"node3": "LoadAware", "node4": "TaintToleration"}


def test_the_quota_has_no_room_for_one_more_core() -> None:
    requests = counted_requests(submitted("2-quota.yaml").pod.shape)
    verdict = judge(
        requests, view().namespaces.requested["batch"], view().namespaces.quotas["batch"]
    )
    assert verdict.message == (
        "exceeded quota: batch, requested: cpu=1, used: cpu=3500m, limited: cpu=4"
    )
