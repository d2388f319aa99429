from __future__ import annotations

from pathlib import Path

import pytest

from engine.policy import load_policies
from engine.policy.loader import CASES_FILE
from engine.policy_tests.runner import run_cases

_POLICIES = Path(__file__).parents[2] / "policies"
_FOLDERS = sorted(path for path in _POLICIES.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", _FOLDERS, ids=lambda folder: folder.name)
def test_a_policy_ships_with_cases_and_bears_the_name_of_its_folder(folder: Path) -> None:
    assert (folder / CASES_FILE).is_file()
    assert [policy.name for policy in load_policies([folder])] == [folder.name]


def test_the_shipped_policies_can_be_loaded_together() -> None:
    assert len(load_policies([_POLICIES])) == len(_FOLDERS)


@pytest.mark.parametrize("folder", _FOLDERS, ids=lambda folder: folder.name)
def test_the_cases_of_a_shipped_policy_hold(folder: Path) -> None:
    run = run_cases(folder)
    assert (run.problems, run.untested) == ([], ())
    results = run.results
    assert {result.name: result.failures for result in results if result.failures} == {}
    assert {
        result.name: result.decision.errors for result in results if result.decision.errors
    } == {}
