from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.webhook.cli.running import ROOT, Stowplan


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


def test_nothing_is_overwritten(stowplan: Stowplan, folder: Path) -> None:
    (folder / "policy.yaml").unlink()
    ran = stowplan("init", folder)
    assert (ran.status, ran.out) == (1, "")
    assert f"there is `{folder / 'cases.yaml'}`, " in ran.err
    assert not (folder / "policy.yaml").exists()
