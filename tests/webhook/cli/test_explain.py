from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.webhook.cli.running import CLUSTER, DATA, POD, POLICIES, QUOTA_POD, Stowplan

BLANK = str.maketrans("", "", " \n─")
EXPLAIN_POD = ("explain", POD, *CLUSTER, *POLICIES)


def policy(name: str, spec: str) -> str:
    """Return a policy; `spec` is in flow style."""
    head = "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\n"
    return f"{head}metadata: {{name: {name}}}\nspec:\n  {spec}\n"


DENYING = policy(
    "closed",
    "{filters: [{name: nobody, expression: \"node.name == 'elsewhere'\", message: it is closed}],"
    " placement: {whenNoneFits: Deny}}",
)

DAEMON = """
apiVersion: v1
kind: Pod
metadata:
  generateName: agent-
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: "1"}]
spec: {containers: [{name: agent}]}
"""


def test_the_verdict_comes_first_then_the_moment_then_the_nodes(stowplan: Stowplan) -> None:
    ran = stowplan(*EXPLAIN_POD)
    assert (ran.status, ran.err) == (0, "")
    verdict, moment, *rest = ran.out.splitlines()
    assert verdict.startswith("Place shop/checkout: 2 of 4 nodes fit, best node2")
    assert moment == "as of 2026-03-02T10:00:20Z (the latest time in the recording)"
    words = [line.split() for line in rest]
    assert ["node2", "100", "100", "(-12)"] in words
    assert ["node1", "0", "0", "(-75)"] in words
    assert words.index(["node2", "100", "100", "(-12)"]) < words.index(["node1", "0", "0", "(-75)"])
    assert "expected usage: cpu 3400m, memory 1433Mi" in rest  # 85 % of 4 and 70 % of 2Gi


def test_a_pipe_gets_no_colour_and_loses_no_reason(stowplan: Stowplan) -> None:
    ran = stowplan(*EXPLAIN_POD)
    assert "\x1b" not in ran.out
    assert "node(s) had untolerated taint {dedicated: batch}" in ran.out
    assert "…" not in ran.out


def test_a_narrow_terminal_loses_no_word(
    stowplan: Stowplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = stowplan(*EXPLAIN_POD).out
    monkeypatch.setenv("COLUMNS", "50")
    narrow = stowplan(*EXPLAIN_POD).out
    assert max(map(len, narrow.splitlines())) <= 50
    letters = sorted(wide.translate(BLANK))
    assert sorted(narrow.translate(BLANK)) == letters


def test_json_is_all_there_is_on_standard_output(stowplan: Stowplan) -> None:
    ran = stowplan(*EXPLAIN_POD, "--json", "--namespace", "unknown")
    told = json.loads(ran.out)
    assert told["verdict"] == "Place"
    assert [row["node"] for row in told["ranking"]] == ["node2", "node1"]
    assert told["quota"] == {"allowed": True, "message": "", "queues": False}
    assert [operation["path"] for operation in told["patch"]] == [
        "/metadata/annotations",
        "/spec/affinity",
    ]


def test_the_patch_is_shown_as_json_when_asked_for(stowplan: Stowplan) -> None:
    short, long = stowplan(*EXPLAIN_POD), stowplan(*EXPLAIN_POD, "--patch")
    assert long.out.startswith(short.out)
    patch = json.loads(long.out.removeprefix(short.out))
    assert patch == json.loads(stowplan(*EXPLAIN_POD, "--json").out)["patch"]


def test_a_pod_above_its_quota_is_denied_and_its_placement_is_told_all_the_same(
    stowplan: Stowplan,
) -> None:
    ran = stowplan("explain", QUOTA_POD, *CLUSTER, *POLICIES)
    assert ran.status == 2
    denial, aside, *_ = ran.out.splitlines()
    # 3500m + 1 > 4
    assert denial == (
        "Deny batch/thumbnailer: exceeded quota: batch, requested: cpu=1, used: cpu=3500m,"
        " limited: cpu=4"
    )
    assert aside.startswith("apart from its quota: Place batch/thumbnailer: 2 of 4 nodes fit")


def test_a_pod_above_the_quota_of_a_namespace_that_queues_is_said_to_wait(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    queues = tmp_path / "namespace.yaml"
    metadata = 'metadata: {name: batch, annotations: {"stowplan.dev/quota-mode": Queue}}'
    queues.write_text(f"apiVersion: v1\nkind: Namespace\n{metadata}\n")
    ran = stowplan("explain", QUOTA_POD, *CLUSTER, "--cluster", queues, *POLICIES)
    assert ran.status == 2
    assert "where `stowplan serve --hold` is on, the pod waits for its quota" in ran.out
    report = stowplan("explain", QUOTA_POD, *CLUSTER, "--cluster", queues, *POLICIES, "--json")
    quota = json.loads(report.out)["quota"]
    assert (quota["allowed"], quota["queues"]) == (False, True)


def test_a_pod_that_a_policy_denies(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "closed.yaml").write_text(DENYING)
    ran = stowplan("explain", POD, *CLUSTER, "--policies", tmp_path)
    assert ran.status == 2
    assert ran.out.startswith("Deny shop/checkout: 0 of 4 nodes fit")
    assert "it is closed" in ran.out


def test_a_pod_that_is_left_alone_says_why(stowplan: Stowplan, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(DAEMON)
    ran = stowplan("explain", pod, *CLUSTER, *POLICIES, "--patch")
    assert ran.status == 0
    assert ran.out.startswith("Abstain shop/agent-*: DaemonSet pods are pinned to their node\n")
    assert ran.out.endswith("no patch: the pod passes as it is\n")


def test_quotas_of_excluded_namespaces_are_not_enforced(stowplan: Stowplan, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        (DATA / "cluster.yaml").read_text().replace("namespace: batch", "namespace: kube-system")
    )
    pod = tmp_path / "pod.yaml"
    pod.write_text(QUOTA_POD.read_text().replace("namespace: batch", "namespace: kube-system"))
    ran = stowplan("explain", pod, "--cluster", cluster, *POLICIES)
    assert (ran.status, ran.err) == (0, "")
    assert "namespace kube-system is excluded" in ran.out


def test_a_bound_pod_is_left_alone_with_a_hint(stowplan: Stowplan, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(POD.read_text() + "  nodeName: node1\n")
    ran = stowplan("explain", pod, *CLUSTER, *POLICIES)
    assert "the pod is bound to node node1 already" in ran.out
    assert "hint: without `spec.nodeName` you see where it would go" in ran.out


def test_the_moment_can_be_chosen(stowplan: Stowplan) -> None:
    ran = stowplan(*EXPLAIN_POD, "--now", "2026-03-02T11:00:00Z")
    assert "as of 2026-03-02T11:00:00Z (as `--now` says)" in ran.out
    assert "nodeMetric expired" in ran.out


def test_a_recording_without_any_moment_is_judged_now(stowplan: Stowplan, tmp_path: Path) -> None:
    node = tmp_path / "node.yaml"
    node.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: node1}\n")
    ran = stowplan("explain", POD, "--cluster", node, *POLICIES)
    assert "now: the recording names no moment" in ran.out


def test_an_unknown_namespace_is_noted_on_standard_error(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(POD.read_text().replace("  namespace: shop\n", ""))
    ran = stowplan("explain", pod, *CLUSTER, *POLICIES, "--namespace", "nowhere", "--json")
    assert ran.err == "namespace `nowhere` is not recorded: no label of it is known\n"
    assert json.loads(ran.out)["pod"]["namespace"] == "nowhere"


def test_objects_that_are_left_out_are_told_on_standard_error(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    cluster = tmp_path / "cluster.yaml"
    text = (DATA / "cluster.yaml").read_text()
    cluster.write_text(text.replace('      cpu: "8"', "      cpu: 8x", 1))
    ran = stowplan("explain", POD, "--cluster", cluster, *POLICIES, "--json")
    assert ran.status == 0
    assert f"{cluster}:" in ran.err
    assert "`8x` is not a quantity" in ran.err
    assert "hint: Node `node1` is left out" in ran.err
    assert json.loads(ran.out)["nodes"] == 3


def test_few_nodes_are_listed_where_few_are_asked_for(stowplan: Stowplan) -> None:
    ran = stowplan(*EXPLAIN_POD, "--nodes", "1")
    assert ran.out.count("... and 1 more") == 2
    assert "node4" not in ran.out


def test_a_folder_without_policies_is_a_mistake(stowplan: Stowplan, tmp_path: Path) -> None:
    ran = stowplan("explain", POD, *CLUSTER, "--policies", tmp_path)
    assert (ran.status, ran.out, ran.err) == (3, "", f"{tmp_path}: holds no policy\n")


def test_a_policy_with_mistakes_is_told_with_place_and_hint(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    policy_file = tmp_path / "policy.yaml"
    policy_file.write_text(DENYING.replace("node.name", "node.nam"))
    ran = stowplan("explain", POD, *CLUSTER, "--policies", policy_file)
    assert (ran.status, ran.out) == (3, "")
    assert f"{policy_file}:5:" in ran.err
    assert "hint: did you mean `name`?" in ran.err


def test_a_cluster_that_is_not_there(stowplan: Stowplan) -> None:
    ran = stowplan("explain", POD, "--cluster", "nowhere.json", *POLICIES)
    assert (ran.status, ran.out) == (3, "")
    assert ran.err == "nowhere.json: cannot be read: no such file or directory\n"


def test_what_audited_policies_would_have_done_is_told_apart(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    (tmp_path / "closed.yaml").write_text(DENYING.replace("{filters", "{mode: Audit, filters"))
    ran = stowplan("explain", POD, *CLUSTER, "--policies", tmp_path)
    assert ran.status == 0
    applied, _, audited = ran.out.partition("\nNot applied: what policies in Audit mode would")
    assert applied.startswith("Abstain shop/checkout: no policy in Enforce mode matches")
    assert "Deny shop/checkout" in audited


def test_a_score_that_tells_no_nodes_apart_says_so(stowplan: Stowplan, tmp_path: Path) -> None:
    same = policy("same", "{scores: [{name: same, expression: '1'}]}")
    (tmp_path / "same.yaml").write_text(same)
    ran = stowplan("explain", POD, *CLUSTER, "--policies", tmp_path)
    assert "\nsame has no effect: " in ran.out


def test_scores_of_several_policies_are_told_apart(stowplan: Stowplan, tmp_path: Path) -> None:
    for name in ("one", "two"):
        fewest = policy(name, "{scores: [{name: fewest, expression: -node.podCount}]}")
        (tmp_path / f"{name}.yaml").write_text(fewest)
    ran = stowplan("explain", POD, *CLUSTER, "--policies", tmp_path)
    words = [line.split() for line in ran.out.splitlines()]
    assert ["one", "two"] in words
    assert ["node", "total", "fewest", "x", "1", "fewest", "x", "1"] in words


def test_a_score_without_effect_has_no_column(stowplan: Stowplan, tmp_path: Path) -> None:
    scores = "[{plugin: LimitAware}, {name: fewest, expression: -node.podCount}]"
    (tmp_path / "p.yaml").write_text(policy("p", f"{{scores: {scores}}}"))
    ran = stowplan("explain", POD, *CLUSTER, "--policies", tmp_path)
    words = [line.split() for line in ran.out.splitlines()]
    assert ["node", "total", "fewest", "x", "1"] in words
    assert "LimitAware has no effect: it gives no candidate any points" in ran.out


def test_a_rule_that_cannot_be_evaluated_is_told(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "closed.yaml").write_text(DENYING.replace("node.name ==", "node.labels['x'] =="))
    ran = stowplan("explain", POD, *CLUSTER, "--policies", tmp_path)
    assert "could not be evaluated: closed: nobody could not be evaluated" in ran.out


def test_of_the_first_nodes_it_is_shown_what_the_rules_were_given(stowplan: Stowplan) -> None:
    lines = [line.split() for line in stowplan(*EXPLAIN_POD).out.splitlines()]
    assert ["ResourceLimitAware", *["cpu", "limits:", "9", "of", "8", "cores"]] in lines
    assert ["node4", "TaintToleration", "taints:", "dedicated=batch:NoSchedule"] in lines
    assert "Inputs of the rules" not in stowplan(*EXPLAIN_POD, "--inputs", "0").out


def test_json_tells_of_all_nodes_what_the_rules_were_given(stowplan: Stowplan) -> None:
    told = json.loads(stowplan(*EXPLAIN_POD, "--json").out)
    assert told["inputs"].keys() == {"node1", "node2", "node3", "node4"}
    (given,) = told["inputs"]["node4"]
    assert given["inputs"] == [{"name": "taints", "text": "dedicated=batch:NoSchedule"}]


IN_ORDER = policy(
    "late", "{scores: [{plugin: LimitAware}], placement: {at: Binding, releaseInOrder: true}}"
)


def test_a_policy_that_has_pods_held_is_told_so(stowplan: Stowplan, tmp_path: Path) -> None:
    late = tmp_path / "late.yaml"
    late.write_text(IN_ORDER)
    given = ("explain", POD, *CLUSTER, "--policies", str(late))
    ran = stowplan(*given)
    assert ran.out.startswith("Place shop/checkout")
    assert "the pod is held before the scheduler sees it" in ran.out
    assert json.loads(stowplan(*given, "--json").out)["held"] is True
    assert "held" not in json.loads(stowplan(*EXPLAIN_POD, "--json").out)


def test_a_pod_that_is_never_held_is_not_told_to_be(stowplan: Stowplan, tmp_path: Path) -> None:
    late, pod = tmp_path / "late.yaml", tmp_path / "pod.yaml"
    late.write_text(IN_ORDER)
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\n"
        "spec: {priority: 2000000000, containers: [{name: c}]}\n"
    )
    ran = stowplan("explain", str(pod), *CLUSTER, "--policies", str(late))
    assert ran.out.startswith("Place shop/a")
    assert "the pod is held" not in ran.out


HELD = """
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-1, uid: uid-1}
spec:
  schedulingGates: [%s]
  containers: [{name: web, resources: {limits: {cpu: "1", memory: 1Gi}}}]
status: {phase: Pending%s}
"""


def _explain_held(
    stowplan: Stowplan, tmp_path: Path, pod: str, *arguments: str, late: str = IN_ORDER
) -> str:
    (tmp_path / "late.yaml").write_text(late)
    (tmp_path / "pod.yaml").write_text(pod)
    policies = ("--policies", tmp_path / "late.yaml")
    return stowplan("explain", tmp_path / "pod.yaml", *CLUSTER, *policies, *arguments).out


def test_a_held_pod_is_told_to_be_held(stowplan: Stowplan, tmp_path: Path) -> None:
    pod = HELD % ("{name: stowplan.dev/hold}", "")
    _, hold, *_ = _explain_held(stowplan, tmp_path, pod).splitlines()
    assert hold == "held, until it is its turn"
    report = json.loads(_explain_held(stowplan, tmp_path, pod, "--json"))
    assert report["hold"]["waitsFor"] == []


def test_a_held_pod_that_another_gate_keeps_is_told_so(stowplan: Stowplan, tmp_path: Path) -> None:
    pod = HELD % ("{name: stowplan.dev/hold}, {name: example.com/x}", "")
    _, release, *_ = _explain_held(stowplan, tmp_path, pod).splitlines()
    assert release == "held, and waits for others to remove example.com/x"


def test_a_member_of_a_gang_is_told_what_the_gang_waits_for(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    pod = HELD % ("{name: stowplan.dev/hold}", "")
    gang = "gang.scheduling.koordinator.sh"
    annotations = f'annotations: {{{gang}/name: train, {gang}/min-available: "8"}}'
    member = pod.replace("metadata: {", f"metadata: {{{annotations}, ", 1)
    _, release, *_ = _explain_held(stowplan, tmp_path, member).splitlines()
    waits = "held, and waits for its gang `shop/train`, of which 8 must run together"
    assert release.startswith(waits)


QUEUEING = """
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: mail}}
  - apiVersion: v1
    kind: Node
    metadata: {name: node-1}
    spec: {}
    status:
      allocatable: {cpu: "8", memory: 16Gi, pods: "110"}
      conditions: [{type: Ready, status: "True"}]
  - apiVersion: v1
    kind: Pod
    metadata: {namespace: mail, name: busy, uid: u-2}
    spec: {nodeName: node-1, containers: [{name: c, resources: {requests: {cpu: "7"}}}]}
    status: {phase: Running}
  - apiVersion: scheduling.x-k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {namespace: shop, name: team}
    spec: {min: {cpu: "1"}, max: {cpu: "%s"}}
  - apiVersion: scheduling.x-k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {namespace: mail, name: team}
    spec: {min: {cpu: "4"}, max: {cpu: "8"}}
"""
QUEUED = """
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: web-1
  uid: uid-1
  annotations: {stowplan.dev/hold-reasons: quota}
spec:
  schedulingGates: [{name: stowplan.dev/hold}]
  containers: [{name: web, resources: {requests: {cpu: "%s"}}}]
status:
  phase: Pending
  conditions:
    - type: stowplan.dev/Queued
      status: "True"
      reason: WaitingForQuota
      message: 4th of 17 in shop/team; needs cpu 2, 1 free
"""


@pytest.mark.parametrize(
    ("cpu", "most", "why"),
    [
        ("2", "8", "needs cpu 2, 1 free; mail/team borrows cpu 3"),
        (
            "2",
            "1500m",
            (
                "it alone requests more than max: it is released once max allows it; needs cpu 2,"
                " 1500m free"
            ),
        ),
        ("1", "8", "its quota has room for it"),
    ],
)
def test_a_pod_that_waits_for_quota_is_told_what_it_lacks_and_who_has_it(
    cpu: str, most: str, why: str, stowplan: Stowplan, tmp_path: Path
) -> None:
    (tmp_path / "late.yaml").write_text(IN_ORDER)
    (tmp_path / "pod.yaml").write_text(QUEUED % cpu)
    (tmp_path / "cluster.yaml").write_text(QUEUEING % most)
    given = ("--cluster", tmp_path / "cluster.yaml", "--policies", tmp_path / "late.yaml")
    ran = stowplan("explain", tmp_path / "pod.yaml", *given)
    verdict, release, *_ = ran.out.splitlines()
    assert ran.status == 0
    place = "4th of 17 in shop/team, as its condition says"
    assert release.startswith(f"held, and waits for quota: {why} ({place})")
    assert "exceeded quota" not in verdict


@pytest.mark.parametrize(
    "why",
    [
        "WaitingForReclaim: 1st of 2 in shop/team; waits for the end of `mail/a`",
        "BlockedByPDB: 1st of 2 in shop/team; PodDisruptionBudget `mail/all` protects pod `mail/a`",
    ],
)
def test_a_pod_that_others_are_evicted_for_is_told_whom(
    why: str, stowplan: Stowplan, tmp_path: Path
) -> None:
    reason, _, message = why.partition(": ")
    text = QUEUED % "2"
    for old, new in (
        ("reason: WaitingForQuota", f"reason: {reason}"),
        ("message: 4th of 17 in shop/team; needs cpu 2, 1 free", f'message: "{message}"'),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "late.yaml").write_text(IN_ORDER)
    (tmp_path / "pod.yaml").write_text(text)
    (tmp_path / "cluster.yaml").write_text(QUEUEING % "8")
    given = ("--cluster", tmp_path / "cluster.yaml", "--policies", tmp_path / "late.yaml")
    _, release, *_ = stowplan("explain", tmp_path / "pod.yaml", *given).out.splitlines()
    assert release.startswith(f"held: {why} (as its condition says)")


AS_ADMITTED = """
apiVersion: v1
kind: Node
metadata: {name: plain}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: kata, labels: {runtime: kata}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: gold}
value: 1000
---
apiVersion: v1
kind: LimitRange
metadata: {name: d, namespace: team}
spec: {limits: [{type: Container, defaultRequest: {cpu: 500m}, default: {cpu: "2"}}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
overhead: {podFixed: {cpu: 250m}}
scheduling: {nodeSelector: {runtime: kata}}
---
apiVersion: v1
kind: Pod
metadata: {name: db-0, namespace: team, uid: u-db, creationTimestamp: "2026-03-02T09:00:00Z"}
spec: {nodeName: kata, containers: [{name: db, resources: {requests: {cpu: "4"}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: web-x1, namespace: team, uid: u-web, generateName: web-}
spec: {containers: [{name: web, resources: {requests: {cpu: "1"}}}]}
status: {phase: Pending}
"""
GOLD = """
apiVersion: v1
kind: Pod
metadata: {name: w, namespace: team}
spec: {priorityClassName: gold, runtimeClassName: kata, containers: [{name: a, image: x}]}
"""


@pytest.fixture
def as_admitted(tmp_path: Path) -> tuple[str | Path, ...]:
    """Return the options of a cluster with what the API server adds to pods."""
    file = tmp_path / "as_admitted.yaml"
    file.write_text(AS_ADMITTED)
    return "--cluster", file


def test_a_pod_is_decided_as_the_api_server_would_make_it(
    stowplan: Stowplan, tmp_path: Path, as_admitted: tuple[str | Path, ...]
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(GOLD)
    ran = stowplan("explain", pod, *as_admitted, *POLICIES)
    # The class's node alone, and that has no room: db-0 takes all of it.
    assert "0 of 2 nodes fit" in ran.out
    values = {
        expression: stowplan("eval", expression, *as_admitted, "--pod", pod).out.splitlines()[0]
        for expression in ("pod.priority", "pod.requests.cpu", "pod.nodeSelector['runtime']")
    }
    # 500m of the LimitRange and 250m of overhead.
    assert list(values.values()) == ["1000", "0.75", '"kata"']


def test_what_the_api_server_would_add_and_nobody_recorded_is_told(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(GOLD)
    ran = stowplan("explain", pod, *CLUSTER, *POLICIES)
    assert "PriorityClass `gold` is not recorded: its priority counts as 0\n" in ran.err
    assert "RuntimeClass `kata` is not recorded: what it adds is not known\n" in ran.err


def test_a_recorded_pod_is_decided_as_if_it_was_created_now(
    stowplan: Stowplan, as_admitted: tuple[str | Path, ...]
) -> None:
    ran = stowplan("explain", "pod/db-0", *as_admitted, *POLICIES, "-n", "team")
    assert "it runs on kata, and is decided as if it was created now\n" in ran.err
    # It asks for 4 cores of 4: so its own node fits only where it is not counted itself.
    assert "Place team/db-0: 2 of 2 nodes fit" in ran.out


def test_a_pod_as_kubectl_prints_it_is_decided_as_if_it_was_created_now(
    stowplan: Stowplan, tmp_path: Path, as_admitted: tuple[str | Path, ...]
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(AS_ADMITTED.split("---\n")[-2])
    ran = stowplan("explain", pod, *as_admitted, *POLICIES)
    assert "Place team/db-0: 2 of 2 nodes fit" in ran.out


def test_a_generated_name_is_empty_as_at_admission(
    stowplan: Stowplan, as_admitted: tuple[str | Path, ...]
) -> None:
    ran = stowplan("explain", "pod/web-x1", *as_admitted, *POLICIES, "-n", "team")
    assert "Place team/web-*: 1 of 2 nodes fit, best plain" in ran.out


def test_a_generated_name_is_known_to_policies_that_decide_later(
    stowplan: Stowplan, tmp_path: Path, as_admitted: tuple[str | Path, ...]
) -> None:
    policy = tmp_path / "policy.yaml"
    written = (DATA / "policies" / "limits-and-load.yaml").read_text()
    policy.write_text(f"{written}  placement: {{ at: Binding }}\n")
    ran = stowplan("explain", "pod/web-x1", *as_admitted, "--policies", policy, "-n", "team")
    assert "Place team/web-x1: 1 of 2 nodes fit, best plain" in ran.out


@pytest.mark.parametrize("rest", ["", "metadata: {uid: u}", "spec: {}", "metadata: {name: w}"])
def test_a_pod_that_says_nearly_nothing_is_decided(
    stowplan: Stowplan, tmp_path: Path, rest: str
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(f"apiVersion: v1\nkind: Pod\n{rest}\n")
    ran = stowplan("explain", pod, *CLUSTER, *POLICIES)
    assert ran.out.startswith("Place default/")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("pod/db-1", "no pod `db-1` is recorded in namespace `team`\nhint: did you mean `db-0`?"),
        ("pod/checkout", "hint: name its namespace with --namespace"),
        (
            "svc/db",
            "there is no file `svc/db`, and `svc` makes no pods\nhint: the types are pods, ",
        ),
    ],
)
def test_a_pod_that_is_not_recorded_is_an_error_with_a_hint(
    stowplan: Stowplan, as_admitted: tuple[str | Path, ...], target: str, message: str
) -> None:
    ran = stowplan("explain", target, *as_admitted, *POLICIES, "-n", "team")
    assert ran.status == 1
    assert message in ran.err


def test_a_pod_of_another_namespace_is_named(
    stowplan: Stowplan, as_admitted: tuple[str | Path, ...]
) -> None:
    ran = stowplan("explain", "pod/db-0", *as_admitted, *POLICIES)
    assert "hint: it is in team: name it with --namespace" in ran.err


WORKLOADS = """
apiVersion: v1
kind: Node
metadata: {name: plain, labels: {kubernetes.io/hostname: plain}}
status:
  allocatable: {cpu: "8", memory: 8Gi, pods: "10"}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
"""
OWNED = """
---
apiVersion: v1
kind: Pod
metadata:
  name: %(name)s
  namespace: team
  uid: u-%(name)s
  generateName: %(generate)s
  creationTimestamp: "2026-03-02T0%(hour)s:00:00Z"
  labels: {pod-template-hash: 6d4cf56db6}
  ownerReferences: [{apiVersion: %(api)s, kind: %(kind)s, name: %(owner)s, uid: o}]
spec: {nodeName: plain, containers: [{name: app, resources: {requests: {cpu: "%(hour)s"}}}]}
status: {phase: Running}
"""
TEMPLATE = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: idle, namespace: team}
spec:
  replicas: 0
  template: {spec: {containers: [{name: app, resources: {requests: {cpu: "9"}}}]}}
"""


@pytest.fixture
def with_workloads(tmp_path: Path) -> tuple[str | Path, ...]:
    """Return the options of a cluster in which workloads have pods, and one has none."""
    pods = [
        ("web-6d4cf56db6-new", "web-6d4cf56db6-", 2, "apps/v1", "ReplicaSet", "web-6d4cf56db6"),
        ("web-6d4cf56db6-old", "web-6d4cf56db6-", 1, "apps/v1", "ReplicaSet", "web-6d4cf56db6"),
        ("db-0", "db-", 3, "apps/v1", "StatefulSet", "db"),
        ("agent-x", "agent-", 4, "apps/v1", "DaemonSet", "agent"),
        ("backup-29123456-x", "backup-29123456-", 5, "batch/v1", "Job", "backup-29123456"),
    ]
    keys = ("name", "generate", "hour", "api", "kind", "owner")
    owned = [OWNED % dict(zip(keys, pod, strict=True)) for pod in pods]
    file = tmp_path / "workloads.yaml"
    file.write_text("".join([WORKLOADS, *owned, TEMPLATE]))
    return "--cluster", file, *POLICIES, "-n", "team"


@pytest.mark.parametrize(
    ("target", "pod"),
    [
        ("deploy/web", "web-6d4cf56db6-new"),
        ("Deployment.apps/web", "web-6d4cf56db6-new"),
        ("rs/web-6d4cf56db6", "web-6d4cf56db6-new"),
        ("sts/db", "db-0"),
        ("ds/agent", "agent-x"),
        ("job/backup-29123456", "backup-29123456-x"),
        ("cronjob/backup", "backup-29123456-x"),
    ],
)
def test_a_workload_of_a_recording_is_explained_by_its_newest_pod(
    stowplan: Stowplan, with_workloads: tuple[str | Path, ...], target: str, pod: str
) -> None:
    ran, of_pod = (stowplan("explain", each, *with_workloads) for each in (target, f"pod/{pod}"))
    assert f"stands for its newest pod, {pod}\n" in ran.err
    assert ran.out == of_pod.out


def test_a_workload_without_pods_is_explained_by_its_recorded_template(
    stowplan: Stowplan, with_workloads: tuple[str | Path, ...]
) -> None:
    ran = stowplan("explain", "deploy/idle", *with_workloads)
    assert "Deployment `idle` stands for a pod of its template\n" in ran.err
    assert "team/idle-*: 0 of 1 nodes fit" in ran.out  # it asks for 9 cores of 8


@pytest.mark.parametrize(
    ("target", "namespace", "message"),
    [
        (
            "deploy/wed",
            "team",
            "is recorded, and not its template, in namespace `team`\nhint: did you mean `web`?",
        ),
        ("sts/db", "default", "hint: it is in team: name it with --namespace"),
        ("job/backup-29123457", "team", "hint: did you mean `backup-29123456`?"),
        ("sts/agent", "team", "hint: name its namespace with --namespace"),
    ],
)
def test_a_workload_that_is_not_recorded_is_an_error_with_a_hint(
    stowplan: Stowplan,
    with_workloads: tuple[str | Path, ...],
    target: str,
    namespace: str,
    message: str,
) -> None:
    ran = stowplan("explain", target, *with_workloads[:-1], namespace)
    assert (ran.status, ran.out) == (1, "")
    assert message in ran.err
