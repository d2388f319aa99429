"""`stowplan init --from-cluster`: policies that a recorded cluster gives reason for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.eks import EksCluster
from tests.webhook.cli.running import CLUSTER, ROOT, Stowplan

_NAMES = (
    "away-from-hot-nodes",
    "limits-in-bounds",
    "off-soft-taints",
    "keep-off-gpu-nodes",
    "pack-gpus",
    "spot-for-batch",
    "spread-over-zones",
)


def _node(name: str, zone: str, usage: str = "1", **more: object) -> list[dict[str, object]]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    labels = {"topology.kubernetes.io/zone": zone}
    spec: dict[str, object] = {}
    match more:
        case {"gpus": str(gpus)}:
            amounts["nvidia.com/gpu"] = gpus
            labels["nvidia.com/gpu.present"] = "true"
        case {"spot": True}:
            labels["karpenter.sh/capacity-type"] = "spot"
        case {"taint": str(key)}:
            spec = {"taints": [{"key": key, "effect": "PreferNoSchedule"}]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": amounts},
        },
        {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "NodeMetrics",
            "metadata": {"name": name},
            "timestamp": "2026-01-01T00:00:00Z",
            "window": "30s",
            "usage": {"cpu": usage, "memory": "4Gi"},
        },
    ]


def _pod(name: str, node: str, owner: str, *, limit: str = "", gpu: str = "") -> dict[str, object]:
    kind, _, owner_name = owner.partition("/")
    gpus = {"nvidia.com/gpu": gpu} if gpu else {}
    limits = {"cpu": limit} if limit else {}
    resources = {"requests": {"cpu": "100m", **gpus}, "limits": {**limits, **gpus}}
    reference = {"apiVersion": "v1", "kind": kind, "name": owner_name, "uid": owner_name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "labels": {"app": owner_name},
            "ownerReferences": [{**reference, "controller": True}],
            "creationTimestamp": "2025-12-31T00:00:00Z",
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Return a cluster that gives reason for each policy there is."""
    items = [
        *_node("hot", "a", usage="7500m"),
        *_node("cool", "b"),
        *_node("soft", "b", taint="example.com/kept"),
        *_node("spot", "b", spot=True),
        *_node("gpu1", "a", gpus="4"),
        *_node("gpu2", "b", gpus="4"),
        *(_pod(f"web-{n}", "hot", "ReplicaSet/web") for n in range(3)),
        _pod("large", "hot", "ReplicaSet/large", limit="20"),
        _pod("kept", "soft", "ReplicaSet/kept"),
        _pod("stray", "spot", "ReplicaSet/stray"),
        _pod("report", "cool", "Job/report"),
        _pod("guest", "gpu1", "ReplicaSet/guest"),
        _pod("train-1", "gpu1", "Job/train", gpu="1"),
        _pod("train-2", "gpu2", "Job/train", gpu="1"),
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return file


def test_each_policy_says_why_and_what_it_would_change(
    stowplan: Stowplan, recording: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "proposed"
    ran = stowplan("init", folder, "--from-cluster", recording)
    assert (ran.status, ran.err) == (0, "")
    shown = [line for line in ran.out.splitlines() if line.endswith("policy.yaml")]
    assert shown == [str(folder / name / "policy.yaml") for name in _NAMES]
    # hot uses 7.5 of 8 cores, 94 %; the others 1 of 8, 12.5 %.
    assert "1 of 6 nodes use more than 65 % of their cpu" in ran.out
    assert "hot nodes 0 (stock; 1 as recorded) -> 0" in ran.out
    assert ran.out.count("simulated: ") == len(_NAMES) + 1  # and all of them
    for name in _NAMES:
        text = (folder / name / "policy.yaml").read_text()
        assert "\n# Simulated: " in text
    # 20 cores of limits on 8 are 250 %; the median is none, so the least bound is proposed.
    assert "{ cpu: 150%, memory: 110% }" in (folder / "limits-in-bounds/policy.yaml").read_text()
    assert f"stowplan simulate --cluster {recording} --arm {folder}" in ran.out


def test_proposed_policies_lint_clean_and_their_cases_pass(
    stowplan: Stowplan, recording: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "proposed"
    assert stowplan("init", folder, "--from-cluster", recording).status == 0
    linted = stowplan("lint", folder)
    assert (linted.status, linted.err) == (0, "")
    assert "warning" not in linted.out
    tested = stowplan("test", folder)
    assert (tested.status, tested.err) == (0, "")
    assert "9 passed, 0 failed\n" in tested.out
    simulated = stowplan("simulate", "--cluster", recording, "--arm", folder)
    assert simulated.status == 0


def test_a_cluster_without_a_reason_gets_none(stowplan: Stowplan, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    items = [*_node("n1", "a"), *_node("n2", "a")]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    ran = stowplan("init", tmp_path / "proposed", "--from-cluster", file)
    assert (ran.status, ran.out) == (1, "")
    assert "the recording gives no reason for a policy" in ran.err
    assert not (tmp_path / "proposed").exists()


def test_nothing_is_overwritten(stowplan: Stowplan, tmp_path: Path) -> None:
    folder = tmp_path / "proposed"
    arguments = ("init", folder, "--from-cluster", *CLUSTER[1:])
    assert stowplan(*arguments).status == 0
    before = (folder / "away-from-hot-nodes" / "policy.yaml").read_text()
    ran = stowplan(*arguments)
    assert (ran.status, ran.out) == (1, "")
    assert (folder / "away-from-hot-nodes" / "policy.yaml").read_text() == before


def test_the_next_step_shows_the_best_of_them(
    stowplan: Stowplan, recording: Path, tmp_path: Path
) -> None:
    # With limits in bounds the fullest node uses 42 %; others make it 55 %, all together 72.
    folder = tmp_path / "proposed"
    out = stowplan("init", folder, "--from-cluster", recording).out
    assert f"--arm {folder / 'limits-in-bounds'} --html report.html" in out


def test_where_they_are_best_together_the_next_step_shows_all(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    EksCluster().write(tmp_path / "cluster")
    folder = tmp_path / "proposed"
    out = stowplan("init", folder, "--from-cluster", tmp_path / "cluster").out
    assert f"--arm {folder} --html report.html" in out
    assert "spot-for-batch" not in out  # there are spot nodes, but no pod of a Job


@pytest.fixture
def folder(stowplan: Stowplan, tmp_path: Path) -> Path:
    """Return a folder with a new policy."""
    made = tmp_path / "My first policy"
    assert stowplan("init", made).status == 0
    return made


def test_the_policy_has_no_mistake_and_its_cases_pass(stowplan: Stowplan, folder: Path) -> None:
    linted = stowplan("lint", folder)
    assert (linted.status, linted.err) == (0, "")
    assert "my-first-policy" in linted.out
    assert "warning" not in linted.out
    tested = stowplan("test", folder)
    assert (tested.status, tested.err) == (0, "")
    assert tested.out.endswith("2 passed, 0 failed\n")


def test_its_cases_fail_where_a_rule_is_wrong(stowplan: Stowplan, folder: Path) -> None:
    policy = folder / "policy.yaml"
    text = policy.read_text()
    for right, wrong in (
        ("1.0 - node", "node"),
        ("|| !(", "|| ("),
        ("in pod.requests ||", "in pod.labels ||"),
    ):
        assert right in text
        policy.write_text(text.replace(right, wrong))
        assert stowplan("test", folder).status == 2


def test_editors_find_the_schema_of_this_version(folder: Path) -> None:
    first, _ = (folder / "policy.yaml").read_text().split("\n", 1)
    schema = folder / first.removeprefix("# yaml-language-server: $schema=")
    assert json.loads(schema.read_text()) == json.loads(
        (ROOT / "docs" / "placementpolicy.schema.json").read_text()
    )


def test_it_says_what_it_wrote_and_what_comes_next(
    stowplan: Stowplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "1st"
    here.mkdir()
    monkeypatch.chdir(here)
    ran = stowplan("init")
    assert ran.out.splitlines() == [
        "wrote policy.yaml",
        "wrote cases.yaml",
        "wrote README.md",
        "wrote .placementpolicy.schema.json",
        "next: stowplan test . --watch",
    ]
    assert "name: 1st" in (here / "policy.yaml").read_text()


def test_nothing_is_overwritten_in_init(stowplan: Stowplan, folder: Path) -> None:
    (folder / "policy.yaml").unlink()
    ran = stowplan("init", folder)
    assert (ran.status, ran.out) == (1, "")
    assert f"there is `{folder / 'cases.yaml'}`, " in ran.err
    assert not (folder / "policy.yaml").exists()
