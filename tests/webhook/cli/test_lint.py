from __future__ import annotations

from pathlib import Path

from tests.webhook.cli.running import CLUSTER, POLICIES, ROOT, Stowplan

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: mixed}
spec:
  mode: Audit
  priority: 7
  filters:
    - plugin: LoadAware
    - {name: same-name, expression: "node.taints.exists(t, t.key == pod.labels['a'] + node.name)"}
    - {name: zone, expression: "node.labels['zone'] == 'a'"}
  placement: {dynamicFilters: Required}
  scores:
    - {name: dense, weight: 3, expression: node.podCount}
"""


def test_every_rule_is_listed_with_what_it_does(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    ran = stowplan("lint", tmp_path)
    assert (ran.status, ran.err) == (0, "")
    words = [line.split() for line in ran.out.splitlines()]
    assert ["mixed", "Audit,", "priority", "7"] in words
    assert ["zone", "filter", "labels"] in [line[:3] for line in words]
    assert ["dense", "score", "x", "3", "advice", "only"] in [line[:6] for line in words]
    assert ran.out.endswith("1 policy, no mistakes\n")


def test_what_an_author_should_think_of_is_a_warning(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    ran = stowplan("lint", tmp_path)
    file = tmp_path / "policy.yaml"
    names, absent, slow = (line for line in ran.out.splitlines() if ": warning: " in line)
    assert names.startswith(f"{file}:12:31: warning: `dynamicFilters: Required` writes node names")
    assert absent.startswith(f"{file}:10:80: warning: same-name: for a pod without `pod.labels.a`")
    assert slow.startswith(f"{file}:10:38: warning: same-name: `node.taints.exists(t, ")
    assert "5,000 nodes" in slow
    assert f" | {'.' * 79}^\nhint: write `" in ran.out


def test_required_dynamic_filters_are_enforced_by_node_names(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = [line.split() for line in stowplan("lint", tmp_path).out.splitlines()]
    assert ["LoadAware", "filter", "node", "names", "plugin"] in words


def test_what_no_label_says_is_enforced_at_the_binding(stowplan: Stowplan) -> None:
    words = [
        line.split() for line in stowplan("lint", "arm-when-able", "balanced").out.splitlines()
    ]
    assert ["keep-off-arm", "filter", "labels"] in [each[:3] for each in words]
    assert ["arm-first", "score", "x", "10", "binding"] in [each[:5] for each in words]
    assert ["LoadAware", "filter", "binding", "plugin"] in words


def test_verbose_shows_how_each_part_is_evaluated(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    _, head, plan = stowplan("lint", tmp_path, "-v").out.partition("\nmixed: same-name\n")
    assert head
    assert plan.startswith("per row")
    assert "not by labels alone: " in plan
    assert "\nmixed: dense\ncolumns" in plan


def test_no_name_is_cut_short(stowplan: Stowplan) -> None:
    ran = stowplan("lint", ROOT / "policies")
    assert "load-aware-production" in ran.out
    assert "keep-off-gpu-nodes" in ran.out
    assert "…" not in ran.out
    count = len(list((ROOT / "policies").glob("*/policy.yaml")))
    assert ran.out.endswith(f"{count} policies, no mistakes\n")


def test_all_mistakes_are_shown_each_with_its_place(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POLICY.replace("LoadAware", "LoadAwre"))
    (tmp_path / "b.yaml").write_text(POLICY.replace("mixed", "other").replace("weight", "wait"))
    ran = stowplan("lint", tmp_path)
    assert (ran.status, ran.out) == (3, "")
    assert f"{tmp_path / 'a.yaml'}:9:15: unknown plugin `LoadAwre`" in ran.err
    assert "hint: did you mean `LoadAware`?" in ran.err
    assert f"{tmp_path / 'b.yaml'}:14:" in ran.err


def test_a_folder_that_holds_no_policy_is_a_mistake(stowplan: Stowplan, tmp_path: Path) -> None:
    ran = stowplan("lint", *POLICIES[1:], tmp_path / "nowhere")
    assert (ran.status, ran.out) == (3, "")
    assert ran.err == f"{tmp_path / 'nowhere'}: cannot be read: no such file or directory\n"
    empty = stowplan("lint", tmp_path)
    assert (empty.status, empty.err) == (3, f"{tmp_path}: holds no policy\n")


def test_policies_that_contradict_each_other_are_named_together(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    head = "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\n"
    (tmp_path / "a.yaml").write_text(
        f"{head}metadata: {{name: all}}\nspec:\n  filters:\n"
        "    - {name: here, expression: \"node.labels['zone'] == 'a'\"}\n"
    )
    web = (
        f"{head}metadata: {{name: web}}\nspec:\n"
        "  match: {objectSelector: {matchLabels: {app: web}}}\n  filters:\n"
        "    - {name: there, expression: \"node.labels['zone'] == 'b'\"}\n"
    )
    (tmp_path / "b.yaml").write_text(web)
    (line,) = (each for each in stowplan("lint", tmp_path).out.splitlines() if "warning" in each)
    assert line == (
        f"{tmp_path / 'b.yaml'}:7:34: warning: there: no node passes both this filter and `here` of"
        " policy `all`, which applies to the same pods"
    )
    (tmp_path / "b.yaml").write_text(web.replace("spec:", "spec:\n  mode: Audit"))
    assert "warning" not in stowplan("lint", tmp_path).out


def test_a_recorded_cluster_shows_words_and_rules_that_mean_nothing_there(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: here}\n"
        "spec:\n  filters:\n    - name: zone\n"
        "      expression: \"node.labels['topology.kubernetes.io/zone'] == 'eu-west-1x'\"\n"
        "    - {name: large, expression: node.allocatable.cpu > 100}\n"
    )
    assert "warning" not in stowplan("lint", file).out
    ran = stowplan("lint", file, *CLUSTER)
    assert (ran.status, ran.err) == (0, "")
    word, rule = (line for line in ran.out.splitlines() if ": warning: " in line)
    assert word.startswith(f"{file}:7:66: warning: zone: no `node.labels['topology.kubernetes.io/")
    assert "hint: did you mean `eu-west-1b`?" in ran.out
    assert rule.endswith("large: it rejects all 4 nodes of the recording, for each pod")
