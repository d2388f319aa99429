"""Where pods were bound, as the leader counts it, against the objects of the API server."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from engine.binding import SCHEDULER_NODE_ANNOTATION, BindingCycle, BindingDecision, decide_binding
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet, load_policies
from engine.report import AuditedPolicy, OutcomeFigures, OutcomeReport
from engine.view import ClusterState
from tests.e2e.advice import advice_of
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import NAME, NAMESPACE, Installed, account, installed, leader_of
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.test_binding import binding
from tests.e2e.workloads import pod
from webhook.cluster.watch.event_applier import EventApplier

PROGRAM = Path(sys.executable).with_name("stowplan")
_COUNT = r'^stowplan_outcome_pods_total\{.*policy="packed".*\} (\d+)'
_MODE = r'^stowplan_policy_decisions_total\{mode="(\w+)",.*policy="packed"'
PODS = 24
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  scores:
    - {plugin: NodeResourcesFit, weight: 2, args: {scoringStrategy: {type: LeastAllocated}}}
    - {name: old-first, expression: "node.labels['rack'] == 'old' ? 100 : 0"}
---
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: trial}
spec:
  mode: Audit
  filters: [{name: not-old, expression: "node.labels['rack'] != 'old'"}]
  scores: [{plugin: NodeResourcesBalancedAllocation}]
"""

AT_BINDING = POLICY.replace("spec:", "spec:\n  placement: {at: Binding}")

_HOT_POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  placement: {at: Binding}
  scores: [{name: hot-first, expression: "node.labels['heat'] == 'hot' ? 100 : 0"}]
"""
_LEAST_PODS = 12
_HOT_PODS = r'^stowplan_outcome_hot_pods_total\{.*node="(\w+)".*policy="packed".*\} (\d+)'
_AUDITED = r'^stowplan_outcome_policy_audited\{policy="packed"\} 1'


async def test_the_figures_are_those_that_the_objects_of_the_api_server_give(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    for number in range(12):
        rack = "old" if number % 3 == 0 else "new"
        await nodes.add(
            f"node-{number:02}",
            {"cpu": f"{20 + number % 4 * 2}", "memory": "128Gi"},
            labels={"rack": rack},
        )  # large enough that no node lacks room for a pod that waits
    async with binding(cluster, control_plane, tmp_path, AT_BINDING, options=()) as stowplan:
        for number in range(PODS):
            requests = {"cpu": f"{200 + number % 5 * 300}m", "memory": f"{1 + number % 3}Gi"}
            await cluster.create(pod(namespace, f"p{number:02}", requests=requests))
            await eventually(partial(_counted, stowplan, number + 1), "the pod is counted")
        (replica,) = stowplan.replicas
        await asyncio.to_thread(replica.stop)
        report = await _read(account(control_plane))
        bound = sorted(
            await cluster.list_all("pods", namespace), key=lambda each: each["metadata"]["name"]
        )
        policies = load_policies([tmp_path / "policy.yaml"])
        expected = _offline(policies, await cluster.list_all("nodes"), bound)
    by_name = {each.policy: each for each in report.policies}
    for each in report.policies:
        print(each.policy, each.total)
    assert by_name["packed"].total == expected["packed"]
    assert by_name["trial"].total == expected["trial"]
    assert by_name["packed"].total.moved > 0
    (rule,) = by_name["trial"].rules
    assert rule.pods == expected["trial"].rejected


async def test_of_advised_pods_is_counted_who_landed_where_advised(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    for number in range(8):
        await nodes.add(f"node-{number}", {"cpu": f"{4 + number}"}, labels={"rack": "old"})
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY, encoding="utf-8")
    async with installed(cluster, control_plane, tmp_path, [file]) as stowplan:
        await eventually(
            lambda: cluster.get("configmaps", f"{NAME}-outcome", NAMESPACE), "the leader counts"
        )
        for number in range(8):
            await cluster.create(pod(namespace, f"p{number}", requests={"cpu": "700m"}))
            await eventually(partial(_counted, stowplan, number + 1), "the pod is counted")
        (replica,) = stowplan.replicas
        await asyncio.to_thread(replica.stop)
        (policy,) = (await _read(account(control_plane))).policies
        bound = await cluster.list_all("pods", namespace)
    landed = [
        (advice := advice_of(each)) is not None and each["spec"]["nodeName"] in advice.nodes
        for each in bound
    ]
    assert policy.policy == "packed"
    assert policy.total == OutcomeFigures(pods=8, landed=sum(landed))


async def test_audit_mode_for_what_a_policy_did_holds_on_all_replicas_until_it_is_taken_back(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name, labels={"rack": name[-1]})
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("'old'", "'a'"), encoding="utf-8")
    digests = {policy.name: policy.digest.hex() for policy in load_policies([file])}
    async with installed(cluster, control_plane, tmp_path, [file], replicas=2) as stowplan:
        await eventually(partial(_acts, stowplan), "it acts")
        await eventually(
            lambda: cluster.get("configmaps", f"{NAME}-outcome", NAMESPACE), "the leader counts"
        )
        audited = {"packed": AuditedPolicy(digest=digests["packed"], reason="for a test")}
        data = {"audited.json": msgspec.json.encode(audited).decode()}
        await cluster.patch("configmaps", f"{NAME}-outcome", {"data": data}, NAMESPACE)
        await eventually(partial(_acts, stowplan, expected=False), "it acts no more")

        first = await leader_of(cluster, stowplan)
        await asyncio.to_thread(first.stop)
        assert await _acts(stowplan, expected=False)
        await leader_of(cluster, stowplan)
        tried = await cluster.create(pod(namespace, "tried"), dry_run=True)
        assert advice_of(tried) is None

        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, "outcome", "--enforce", "packed", "--kubeconfig", account(control_plane))
        )
        assert await process.wait() == 0
        await eventually(partial(_acts, stowplan), "it acts again")


async def test_a_policy_that_fills_hot_nodes_goes_to_audit_by_itself_until_it_is_taken_back(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
    metrics_api: MetricsServer,
    tmp_path: Path,
) -> None:
    for number in range(5):
        heat, used = ("hot", "7500m") if number == 0 else ("cold", "400m")
        name = f"node-{number}"
        await nodes.add(name, {"cpu": "8"}, labels={"heat": heat})
        metrics_api.nodes[name] = {"cpu": used, "memory": "1Gi"}
    options = [("outcome-when-worse", "Audit"), ("outcome-least-pods", f"{_LEAST_PODS}")]
    async with binding(
        cluster, control_plane, tmp_path, _HOT_POLICY, replicas=2, options=options
    ) as stowplan:
        await stowplan.knows_usage(5)
        await eventually(partial(_acts, stowplan), "it acts")
        for number in range(_LEAST_PODS):
            await cluster.create(pod(namespace, f"p{number:02}", requests={"cpu": "100m"}))
        await eventually(partial(_acts, stowplan, expected=False), "it is set to Audit")

        # The figures are those of the objects: every pod went to the hot node.
        pods = await cluster.list_all("pods", namespace)
        on_hot = sum(each["spec"].get("nodeName") == "node-0" for each in pods)
        text = await _text_of_the_leader(cluster, stowplan)
        hot = {node: int(count) for node, count in re.findall(_HOT_PODS, text, re.MULTILINE)}
        assert hot["chosen"] == on_hot == _LEAST_PODS
        assert hot["stock"] < on_hot

        # Alert, Event, command and the next pods say so.
        assert re.search(_AUDITED, text, re.MULTILINE), "the alert has nothing to fire for"
        # It is written after the policy acts no more.
        event = await eventually(partial(_worse, cluster), "an Event says so")
        assert event["action"] == "SetToAudit"
        assert "% more of its pods landed on hot nodes" in event["message"]
        audited = (await _read(account(control_plane))).audited
        assert audited["packed"].reason in event["message"]

        # An operator takes it back; what it did before counts no more.
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, "outcome", "--enforce", "packed", "--kubeconfig", account(control_plane))
        )
        assert await process.wait() == 0
        await eventually(partial(_acts, stowplan), "it acts again")


async def _acts(stowplan: Installed, *, expected: bool = True) -> bool:
    """Return whether the policy acts, or not if that is expected, on every replica that runs."""
    texts = [await replica.metrics() for replica in stowplan.replicas if replica.running]
    modes = [set(re.findall(_MODE, text, re.MULTILINE)) for text in texts]
    return modes == [{"Enforce" if expected else "Audit"}] * len(texts)


async def _worse(cluster: Cluster) -> Json:
    """Return the only Event on policies that make things worse, nothing if there is none."""
    events = await cluster.list_all("events", NAMESPACE)
    found = [each for each in events if each["reason"] == "PolicyMakesThingsWorse"]
    assert len(found) <= 1
    return found[0] if found else {}


async def _text_of_the_leader(cluster: Cluster, stowplan: Installed) -> str:
    """Return the metrics of the replica that leads."""
    return await (await leader_of(cluster, stowplan)).metrics()


async def _counted(stowplan: Installed, pods: int) -> bool:
    """Return whether the leader has judged so many pods of the policy that acts."""
    (replica,) = stowplan.replicas
    counts = re.findall(_COUNT, await replica.metrics(), re.MULTILINE)
    assert sum(map(int, counts)) == pods, counts
    return True


async def _read(kubeconfig: Path) -> OutcomeReport:
    """Return what `stowplan outcome` prints."""
    process = await asyncio.create_subprocess_exec(
        *(PROGRAM, "outcome", "--json", "--kubeconfig", kubeconfig), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return msgspec.json.decode(out, type=OutcomeReport)


def _offline(
    policies: PolicySet, nodes: Sequence[Json], pods: Sequence[Json]
) -> dict[str, OutcomeFigures]:
    """Return the figures of each policy over pods that were bound in this order."""
    applier = EventApplier(ClusterState())
    for node in nodes:
        applier.node(msgspec.convert(node, api.Node))
    figures = {policy.name: OutcomeFigures() for policy in policies}
    for each in pods:
        landed = each["spec"].pop("nodeName")
        scheduler_node = each["metadata"]["annotations"][SCHEDULER_NODE_ANNOTATION]
        wire = msgspec.convert(each, api.Pod)
        request = PlacementRequest(pod=pod_of(wire), raw=msgspec.json.encode(each))
        view = applier.state.view()
        cycle = BindingCycle(request, scheduler_node, view, Micros(0), Scope())
        made = decide_binding(cycle, policies)
        assert made.audit is not None
        assert made.node_name == landed, made.message
        for name, of_mode in (("packed", made), ("trial", made.audit)):
            _add(figures[name], of_mode, landed)
        each["spec"]["nodeName"] = landed
        applier.pod(msgspec.convert(each, api.Pod))
    return figures


def _add(figures: OutcomeFigures, made: BindingDecision, landed: str) -> None:
    """Count a pod by the definitions of docs/outcome.md, node by node."""
    decision = made.decision
    assert decision is not None
    names = [decision.names[row] for row in decision.candidates.tolist()]
    totals = dict(zip(names, decision.totals.tolist(), strict=True))
    own = [score for score in decision.scores if score.policy]
    weights = sum(score.weight for score in own)
    points = {
        name: 100 * sum(score.weight * int(score.normalized[at]) for score in own) // weights
        for at, name in enumerate(names)
    }
    figures.pods += 1
    figures.decided += 1
    figures.landed += landed == made.node_name
    figures.moved += made.scheduler_node != made.node_name
    if landed in totals:
        rank = 1 + sum(total > totals[landed] for total in totals.values())
        band = [rank <= 1, rank <= 5, rank <= 20, True].index(True)
        figures.rank_total += rank
        figures.ranks = tuple(count + (at == band) for at, count in enumerate(figures.ranks))
    else:
        figures.rejected += 1
    figures.scored += 1
    figures.points += points.get(landed, 0)
    figures.best += points[names[0]]
    figures.compared += 1
    figures.compared_points += points.get(made.node_name, 0)
    figures.stock_points += points.get(made.scheduler_node, 0)
