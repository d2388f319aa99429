from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from engine.report import ArmPlacement, PodFate, SimulationReport
from tests.eks import SUFFIX, EksCluster
from tests.webhook.cli.running import CLUSTER, DATA, POD, Stowplan

ARM = ("--arm", f"ours={DATA / 'policies'}")

WORKLOADS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  replicas: 3
  template:
    spec:
      containers: [{name: api, resources: {limits: {cpu: "1"}}}]
---
apiVersion: v1
kind: Service
metadata: {name: api}
---
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: batch}
spec:
  containers: [{name: large, resources: {requests: {cpu: "1"}}}]
"""

DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  template:
    spec:
      containers: [{name: agent, resources: {requests: {cpu: 10m}}}]
"""


def report(stowplan: Stowplan, *arguments: str | Path) -> SimulationReport:
    """Return the report on the recorded cluster."""
    ran = stowplan("simulate", *CLUSTER, *arguments, "--json")
    assert (ran.status, ran.err) == (0, "")
    return msgspec.json.decode(ran.out, type=SimulationReport)


def test_one_command_compares_policies_with_the_scheduler(stowplan: Stowplan) -> None:
    ran = stowplan("simulate", *CLUSTER, *ARM)
    assert (ran.status, ran.err) == (0, "")
    words = [line.split() for line in ran.out.splitlines()]
    assert words[0][:2] == ["With", "ours,"]
    assert ["landed", "8", "8", "8"] in words
    assert ["nodes", "used", *("4", "(>=", "2)") * 3] in words
    assert any(line[:2] == ["limits-and-load", "LoadAware"] for line in words)


def test_bindings_and_the_most_replicas_on_one_node_are_told(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    manifests = tmp_path / "pods.yaml"
    manifests.write_text(WORKLOADS)
    arguments = (*CLUSTER, "--arrivals", manifests, "--arm", f"b={DATA / 'policies'},binding")
    words = [line.split() for line in stowplan("simulate", *arguments).out.splitlines()]
    (crowd,) = [line for line in words if line[:5] == ["most", "replicas", "of", "one", "owner"]]
    # Three replicas on four nodes, of which one is hot and one is tainted.
    assert all(1 <= int(figure) <= 3 for figure in crowd[8:])
    assert len(crowd[8:]) == 2
    assert any(line[:4] == ["bindings", "moved,", "kept,", "denied"] for line in words)


def test_policies_that_decide_at_binding_do_so_in_their_arm(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    written = (DATA / "policies" / "limits-and-load.yaml").read_text()
    policy.write_text(f"{written}  placement: {{ at: Binding }}\n")
    ours = report(stowplan, "--arm", policy).arms[1]
    assert ours.placement is ArmPlacement.BINDING
    assert ours.bindings is not None


def test_the_report_as_json_has_the_same_figures_each_time(stowplan: Stowplan) -> None:
    first, second = report(stowplan, *ARM), report(stowplan, *ARM)
    assert first == second
    assert [arm.name for arm in first.arms] == ["stock", "ours", "recorded"]
    assert first.arms[1].policies == ("limits-and-load",)


def test_limits_are_more_even_under_the_policy_for_limits(stowplan: Stowplan) -> None:
    stock, ours, bound, _ = report(stowplan, *ARM, "--arm", f"h={DATA / 'policies'},binding").arms
    spreads = [
        spread.spread
        for arm in (stock, ours, bound)
        for spread in arm.spreads
        if (spread.measure, spread.resource) == ("limits", "cpu")
    ]
    assert spreads[2] <= spreads[1] < spreads[0]


def test_the_html_report_is_one_file_and_its_address_is_printed(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    ran = stowplan("simulate", *CLUSTER, *ARM, "--html", page)
    assert ran.err == f"report: {page.as_uri()}\n"
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")


def test_what_a_drain_would_do(stowplan: Stowplan) -> None:
    ran = stowplan("simulate", *CLUSTER, "--drain", "node1")
    assert ran.out.startswith("Drain node1: 2 of 2 moved pods get a node with stock.\n")
    assert "\n2 pods to place (2 moved, 0 new, 0 pending) on 4 nodes" in ran.out
    # What was asked about comes before the figures.
    assert ran.out.index("What becomes of the pods") < ran.out.index("\nlanded")


def test_a_mistyped_node_is_told_its_name(stowplan: Stowplan, tmp_path: Path) -> None:
    EksCluster().write(tmp_path)
    ran = stowplan("simulate", "--cluster", tmp_path, "--drain", "ip-10-0-1-36")
    assert ran.status == 1
    assert "hint: did you mean `ip-10-0-" in ran.err


def test_a_deployment_of_a_recording_is_scaled(stowplan: Stowplan, tmp_path: Path) -> None:
    EksCluster().write(tmp_path)
    ran = stowplan("simulate", "--cluster", tmp_path, "--scale", "shop/web=63")
    sentence = "Scale shop/web from 60 to 63: 3 of 3 new and 0 of 6 pending pods get a node with"
    assert ran.out.startswith(sentence)


def test_pods_that_wait_come_last_and_once_for_all_arms(stowplan: Stowplan, tmp_path: Path) -> None:
    EksCluster().write(tmp_path)
    drained = "ip-10-0-1-35"  # as the tables have it
    ran = stowplan("simulate", "--cluster", tmp_path, "--arm", "balanced", "--drain", drained)
    out = ran.out
    assert out.startswith("Drain ip-10-0-1-35: 5 of 5 moved and 0 of 6 pending pods get a node")
    assert out.count(SUFFIX) == 1  # said once
    # Six pods, two arms: a row and the reason.
    assert out.count("data/rebuild-7f4b8") == 2
    assert out.index("shop/web-6c5d9") < out.index("data/rebuild-7f4b8")


def test_on_a_narrow_terminal_no_name_of_a_node_is_broken(
    stowplan: Stowplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    EksCluster().write(tmp_path)
    pod = ("pod/web-6c5d9-03", "--namespace", "shop")
    given = ("--cluster", tmp_path, "--policies", "balanced")
    monkeypatch.setenv("COLUMNS", "80")
    out = stowplan("explain", *pod, *given).out
    assert "ip-10-0-1-44  " in out
    assert f"names of nodes end with {SUFFIX}" in out
    assert max(map(len, out.splitlines())) <= 80


def test_one_pod_is_not_several(stowplan: Stowplan) -> None:
    ran = stowplan("simulate", *CLUSTER, "--arrivals", POD)
    assert ran.out.startswith("1 pod would get a node, 0 would not;")
    assert "\n1 pod of manifests on 4 nodes" in ran.out


def test_what_a_larger_deployment_would_meet(stowplan: Stowplan) -> None:
    told = report(stowplan, "--scale", "batch/encoder=5")
    fates = [str(outcome.fate) for outcome in told.arms[0].outcomes]
    assert fates == ["refused", "refused"]  # the quota has 0.5 of 4 cores left, each needs 1
    assert told.arms[0].outcomes[0].message.startswith("exceeded quota: batch, requested: cpu=1")


def test_nodes_are_added_like_one_of_the_recording(stowplan: Stowplan) -> None:
    told = report(stowplan, "--add-nodes", "2=node1")
    assert told.changes == ("add 2 nodes like node1",)
    assert "node1-added-2" in told.cluster.nodes


def test_pods_of_manifests_arrive(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(WORKLOADS)
    told = report(stowplan, "--arrivals", tmp_path)
    names = [(outcome.pod.name, str(outcome.fate)) for outcome in told.arms[0].outcomes]
    assert names == [
        ("api-0", "placed"),
        ("api-1", "placed"),
        ("api-2", "placed"),
        ("large", "refused"),
    ]


def test_a_daemon_set_has_a_pod_on_every_node_whose_taints_it_tolerates(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(DAEMON_SET)
    (arm,) = report(stowplan, "--arrivals", file).arms
    assert [(each.pod.name, each.node) for each in arm.outcomes] == [
        ("agent-0", "node1"),
        ("agent-1", "node2"),
        ("agent-2", "node3"),
    ]
    file.write_text(f"{DAEMON_SET}      tolerations: [{{operator: Exists}}]\n")
    (arm,) = report(stowplan, "--arrivals", file).arms
    assert [each.node for each in arm.outcomes] == ["node1", "node2", "node3", "node4"]


def test_the_least_spread_is_told_where_it_is_not_nothing(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    # On the cluster as it is, no new pods can make up for what runs already.
    (tmp_path / "pods.yaml").write_text(WORKLOADS)
    arguments = ("--arrivals", tmp_path)
    spreads = report(stowplan, *arguments).arms[0].spreads
    known = [each for each in spreads if each.least]
    assert known
    assert all(each.least <= each.spread for each in known if each.least is not None)
    shown = stowplan("simulate", *CLUSTER, *arguments).out
    assert f"{known[0].spread:.1f} (>= {known[0].least:.1f}), {known[0].max:.1f}" in shown


def test_nodes_go_and_come_on_a_generated_day(stowplan: Stowplan) -> None:
    arguments = ("--arrivals", "generated", "--autoscale")
    found = report(stowplan, *ARM, *arguments)
    assert found == report(stowplan, *ARM, *arguments)
    stock, ours = (arm.node_time for arm in found.arms)
    assert stock is not None
    assert ours is not None
    day = found.arrivals.seconds / 3_600
    for each in (stock, ours):
        assert 0 < each.node_hours <= round(len(found.cluster.nodes) * day, 1)
    assert any("Karpenter" in note for note in found.notes)
    shown = stowplan("simulate", *CLUSTER, *ARM, *arguments).out
    words = [" ".join(line.split()) for line in shown.splitlines()]
    assert f"node hours {stock.node_hours} {ours.node_hours}" in words


def test_a_generated_day_depends_on_its_seed(stowplan: Stowplan) -> None:
    days = [report(stowplan, "--arrivals", "generated", "--seed", seed) for seed in ("1", "2")]
    assert all(day.arms[0].samples for day in days)
    assert days[0].arms[0].samples != days[1].arms[0].samples
    assert days[0].arrivals.pods == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scale", "web=3"), "--scale: expected `NAMESPACE/DEPLOYMENT=N`, not `web=3`"),
        (("--scale", "a/b=x"), "--scale: expected `NAMESPACE/DEPLOYMENT=N`, not `a/b=x`"),
        (("--add-nodes", "many"), "--add-nodes: expected `N` or `N=NODE`, not `many`"),
        (("--arm", "=x"), "--arm: expected `[NAME=]PATH[,advice|,binding]`, not `=x`"),
        (
            ("--arm", "balanced", "--arm", "balanced,advice"),
            "--arm: two arms are named `balanced`: name one of them, as `NAME=PATH`",
        ),
        (
            ("--arm", "stock=balanced"),
            "--arm: two arms are named `stock`: name one of them, as `NAME=PATH`",
        ),
        (("--arm", "policies,releas"), "--arm: `releas` is none of `advice`, `binding`"),
        (("--add-nodes", "100000"), "--add-nodes: at most 99999, not `100000`"),
        (("--drain", "node9"), "no node `node9` is recorded"),
        (("--capacity-buffer", "a/b=1"), "--capacity-buffer: it needs `--autoscale`"),
        (
            ("--arrivals", "generated", "--autoscale", "--capacity-buffer", "a/b=1"),
            "no pod of Deployment `a/b` is recorded",
        ),
        (("--autoscale",), "--autoscale: it needs `--arrivals generated`, a day of pods"),
        (("--html", "/nowhere/report.html"), "there is no folder `/nowhere`"),
    ],
)
def test_a_mistake_is_named(stowplan: Stowplan, arguments: tuple[str, ...], message: str) -> None:
    ran = stowplan("simulate", *CLUSTER, *arguments)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(message)


def test_a_folder_without_pods_is_a_bad_file(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: api}\n")
    ran = stowplan("simulate", *CLUSTER, "--arrivals", tmp_path)
    assert (ran.status, ran.out) == (3, "")
    assert "no pod, and none of CronJob, DaemonSet" in ran.err


def test_json_is_valid_however_names_look(stowplan: Stowplan) -> None:
    ran = stowplan("simulate", *CLUSTER, "--arm", f"[red]</script>={DATA / 'policies'}", "--json")
    assert json.loads(ran.out)["arms"][1]["name"] == "[red]</script>"


def test_pods_that_have_no_node_for_one_reason_are_one_row(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    manifests = tmp_path / "pods.yaml"
    manifests.write_text(WORKLOADS.replace('{cpu: "1"}', '{cpu: "100"}'))
    out = stowplan("simulate", *CLUSTER, "--arrivals", manifests).out
    words = [" ".join(line.split()) for line in out.splitlines()]
    assert any(line.startswith("3 shop/api stock no node fits") for line in words)
    assert ".; nobody" not in " ".join(words)


RESOURCE_QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: budget, namespace: shop}
spec: {hard: {requests.cpu: "11"}}
"""


def test_a_resource_quota_of_the_recording_refuses_what_is_too_much(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    cluster, manifests = tmp_path / "cluster.yaml", tmp_path / "pods.yaml"
    recorded = (DATA / "cluster.yaml").read_text()
    cluster.write_text(f"{recorded}\n---\n{RESOURCE_QUOTA}")
    manifests.write_text(WORKLOADS)
    ran = stowplan("simulate", "--cluster", cluster, "--arrivals", manifests, "--json")
    (stock,) = msgspec.json.decode(ran.out, type=SimulationReport).arms
    # Pods of shop request 4 + 5 = 9 of 11 cores: so 2 of the 3 replicas are created.
    refused = [
        outcome
        for outcome in stock.outcomes
        if outcome.pod.namespace == "shop" and outcome.fate is PodFate.REFUSED
    ]
    assert [str(outcome.pod) for outcome in refused] == ["shop/api-2"]
    assert refused[0].message == (
        "exceeded quota: budget, requested: requests.cpu=1, used: requests.cpu=11,"
        " limited: requests.cpu=11"
    )
