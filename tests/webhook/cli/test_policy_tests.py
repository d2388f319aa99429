from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.webhook.cli.running import ROOT, Stowplan

GUARD = ROOT / "policies" / "gpu-guard"
RIGHT = "plain: the node has no GPU"


@pytest.fixture
def guard(tmp_path: Path) -> Path:
    """Return a copy of a policy that ships with cases, with one expectation that is wrong."""
    copy = tmp_path / "gpu-guard"
    shutil.copytree(GUARD, copy)
    cases = copy / "cases.yaml"
    text = cases.read_text()
    assert text.count(RIGHT) == 1
    cases.write_text(text.replace(RIGHT, "plain: because it rains"))
    return copy


def test_cases_that_hold_are_listed(stowplan: Stowplan) -> None:
    ran = stowplan("test", ROOT / "policies")
    assert (ran.status, ran.err) == (0, "")
    assert "ok   " + str(GUARD / "cases.yaml") in ran.out
    assert ran.out.endswith(" passed, 0 failed\n")
    assert "FAIL" not in ran.out


def test_a_case_that_does_not_hold_says_what_came_instead(stowplan: Stowplan, guard: Path) -> None:
    ran = stowplan("test", guard)
    assert (ran.status, ran.err) == (2, "")
    assert f"FAIL {guard / 'cases.yaml'}" in ran.out
    assert "       rejected: expected `because it rains` for plain, got " in ran.out
    assert ran.out.endswith(", 1 failed\n")
    assert "left out" not in ran.out


def test_verbose_adds_the_decision_of_a_failed_case(stowplan: Stowplan, guard: Path) -> None:
    ran = stowplan("test", guard, "--verbose")
    assert ran.status == 2
    assert "\nAbstain " in ran.out
    assert "left out" in ran.out


def test_one_file_of_cases_can_be_run(stowplan: Stowplan) -> None:
    assert stowplan("test", GUARD / "cases.yaml").status == 0


@pytest.mark.parametrize("path", [GUARD / "policy.yaml", Path("nowhere")])
def test_anything_else_is_refused(stowplan: Stowplan, path: Path) -> None:
    ran = stowplan("test", path)
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.startswith(f"{path}: not a folder, nor a `cases.yaml`\nhint: ")


def test_a_folder_without_cases_is_refused(stowplan: Stowplan, tmp_path: Path) -> None:
    ran = stowplan("test", tmp_path)
    assert (ran.status, ran.err) == (3, f"{tmp_path}: holds no `cases.yaml`\n")


def test_a_mistake_in_a_case_is_told_with_its_place(stowplan: Stowplan, guard: Path) -> None:
    cases = guard / "cases.yaml"
    cases.write_text(cases.read_text().replace("  expect:", "  expct:", 1))
    ran = stowplan("test", guard)
    assert ran.status == 3
    assert ran.out.endswith(" failed; some could not be run\n")
    assert f"{cases}:" in ran.err
    assert "hint: did you mean `expect`?" in ran.err


def test_a_policy_without_cases_is_named_and_counted(stowplan: Stowplan, guard: Path) -> None:
    policy = (ROOT / "policies" / "pack-dev" / "policy.yaml").read_text()
    (guard / "pack-dev.yaml").write_text(policy)
    ran = stowplan("test", guard)
    assert "no case applies policy pack-dev\n" in ran.out
    assert ran.out.endswith(" 1 failed; 1 policy without a case\n")


def test_a_cause_is_shown_without_verbose(stowplan: Stowplan, guard: Path) -> None:
    cases = guard / "cases.yaml"
    cases.write_text(cases.read_text().replace("best: ", "best: gone # ", 1))
    ran = stowplan("test", guard)
    assert "       cause: gone is not a candidate: the cluster has no such node\n" in ran.out
