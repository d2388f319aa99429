"""What commands take as `--cluster`, and what they say of it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.eks import EksCluster
from tests.webhook.cli.running import DATA, POD, POLICIES, ROOT, Stowplan
from webhook.cli.policy_loading import SCHEMA, shipped_policies

NO_USAGE = "no usage is recorded: rules that read it, as LoadAware, abstain"


@pytest.fixture
def eks(tmp_path: Path) -> Path:
    folder = tmp_path / "eks"
    EksCluster().write(folder)
    return folder


def explained(stowplan: Stowplan, *cluster: str | Path) -> tuple[str, str]:
    pod = ("explain", "pod/web-6c5d9-03", "-n", "shop", "--policies", "balanced")
    ran = stowplan(*pod, "--cluster", *cluster)
    assert ran.status == 0
    return ran.out, ran.err


def test_several_files_may_follow_the_flag_or_each_its_own(stowplan: Stowplan, eks: Path) -> None:
    both = (eks / "objects.json", eks / "usage.json")
    folder, listed = explained(stowplan, eks), explained(stowplan, *both)
    repeated = explained(stowplan, both[0], "--cluster", both[1])
    assert folder == listed == repeated
    assert NO_USAGE not in folder[1]


def test_a_pod_that_the_flag_swallowed_is_missed_with_a_hint(stowplan: Stowplan, eks: Path) -> None:
    ran = stowplan("explain", *POLICIES, "--cluster", eks, POD)
    assert ran.status == 1
    assert "argument `POD` is missing" in ran.err
    assert "it comes before the options: `--cluster` takes all that follows it" in ran.err


def test_a_recording_without_usage_is_told_first_and_how_to_record_it(
    stowplan: Stowplan, eks: Path
) -> None:
    _, err = explained(stowplan, eks / "objects.json")
    first, second, *_ = err.splitlines()
    assert first == NO_USAGE
    assert "kubectl get nodes.metrics.k8s.io -o json > usage.json" in second


def test_nodes_without_usage_are_counted(stowplan: Stowplan, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: unmeasured}\n")
    ran = stowplan("eval", "node.name", "--cluster", DATA / "cluster.yaml", other)
    assert "of 1 of 5 nodes no usage is recorded" in ran.err


def test_what_else_is_missing_is_told(stowplan: Stowplan, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")
    ran = stowplan("eval", "node.name", "--cluster", nodes)
    assert "no pod is recorded: all nodes count as empty" in ran.err
    assert "no namespace is recorded" in ran.err


def test_of_many_mistakes_three_are_shown_and_the_others_counted(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    pod = "{{apiVersion: v1, kind: Pod, metadata: {{name: p{}}}, spec: {{containers: 1}}}}"
    pods = "\n---\n".join(map(pod.format, range(19)))
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"apiVersion: v1\nkind: Node\nmetadata: {{name: a}}\n---\n{pods}")
    err = stowplan("eval", "node.name", "--cluster", cluster).err
    assert err.count("spec.containers: expected") == 3
    assert "... and 16 more mistakes: such objects are left out" in err


def test_objects_that_are_recorded_again_are_told(stowplan: Stowplan, tmp_path: Path) -> None:
    again = tmp_path / "again.yaml"
    again.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: node1}\n")
    err = stowplan("eval", "node.name", "--cluster", DATA / "cluster.yaml", again).err
    assert "1 Node recorded again, such as `node1`: the last one counts\nhint: " in err


def test_policies_to_start_from_are_found_by_name(
    stowplan: Stowplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stowplan("lint", "balanced", "gpu-guard").out.endswith("2 policies, no mistakes\n")
    assert stowplan("test", "gpu-guard").status == 0


def test_a_file_goes_before_a_name(
    stowplan: Stowplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("balanced").mkdir()
    assert stowplan("lint", "balanced").err == "balanced: holds no policy\n"


def test_a_name_that_is_mistyped_gets_a_hint(stowplan: Stowplan) -> None:
    ran = stowplan("lint", "balancd")
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.endswith("\nhint: did you mean `balanced`?\n")
    assert stowplan("lint", "nowhere").err == "nowhere: cannot be read: no such file or directory\n"


def test_a_wheel_has_them_where_they_are_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {source: f"share/stowplan/{source}" for source in shared}
    for file in (SCHEMA, *shipped_policies().values()):
        assert any(file.is_relative_to(ROOT / source) for source in shared), file


@pytest.mark.parametrize(
    "command", [("dashboard", "--cluster", "none"), ("serve", "--cluster", "none"), ("control",)]
)
def test_what_runs_until_it_is_stopped_takes_policies_by_name_too(
    stowplan: Stowplan, command: tuple[str, ...]
) -> None:
    ran = stowplan(*command, "--policies", "balancd")
    assert ran.status == 3
    assert "hint: did you mean `balanced`?" in ran.err
