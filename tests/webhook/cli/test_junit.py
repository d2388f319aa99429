from __future__ import annotations

import shutil
from pathlib import Path

import junitparser
import pytest

from tests.webhook.cli.running import ROOT, Stowplan

GUARD = ROOT / "policies" / "gpu-guard"
RIGHT = "plain: the node has no GPU"


@pytest.fixture
def guard(tmp_path: Path) -> Path:
    """Return a folder with a copy of a policy with cases."""
    copy = tmp_path / "policies" / "gpu-guard"
    shutil.copytree(GUARD, copy)
    return copy


def read(file: Path) -> dict[str, junitparser.TestCase]:
    """Return the tests of a report, by name."""
    suites = junitparser.JUnitXml.fromfile(str(file))
    counted = {name: getattr(suites, name) for name in ("tests", "failures", "errors", "skipped")}
    for suite in suites:
        suite.update_statistics()  # type: ignore[no-untyped-call]  # the library has none
    suites.update_statistics()  # type: ignore[no-untyped-call]  # the same
    assert counted == {name: getattr(suites, name) for name in counted}
    return {test.name: test for suite in suites for test in suite}


def test_cases_that_hold_are_tests_that_passed(stowplan: Stowplan, tmp_path: Path) -> None:
    report = tmp_path / "results.xml"
    assert stowplan("test", ROOT / "policies", "--junit", report).status == 0
    tests = read(report)
    assert len(tests) >= 19
    assert all(test.is_passed for test in tests.values())


def test_a_case_that_fails_says_why(stowplan: Stowplan, guard: Path, tmp_path: Path) -> None:
    cases, report = guard / "cases.yaml", tmp_path / "results.xml"
    cases.write_text(cases.read_text().replace(RIGHT, "plain: because it rains"))
    assert stowplan("test", guard, "--junit", report).status == 2
    (failed,) = (test for test in read(report).values() if not test.is_passed)
    assert failed.classname == str(cases)
    (failure,) = failed.result
    assert isinstance(failure, junitparser.Failure)
    assert failure.message.startswith("rejected: expected `because it rains` for plain, got ")


def test_mistakes_are_errors_and_untested_policies_are_skipped(
    stowplan: Stowplan, guard: Path, tmp_path: Path
) -> None:
    cases, report = guard / "cases.yaml", tmp_path / "results.xml"
    (guard / "pack-dev.yaml").write_text((ROOT / "policies/pack-dev/policy.yaml").read_text())
    stowplan("test", guard, "--junit", report)
    assert read(report)["pack-dev"].is_skipped
    cases.write_text(cases.read_text().replace("  expect:", "  expct:", 1))
    assert stowplan("test", guard, "--junit", report).status == 3
    errors = [test for test in read(report).values() if test.is_error]
    assert any("hint: did you mean `expect`?" in str(test.result[0].text) for test in errors)


def test_a_name_that_is_no_xml_is_written_all_the_same(
    stowplan: Stowplan, guard: Path, tmp_path: Path
) -> None:
    cases, report = guard / "cases.yaml", tmp_path / "results.xml"
    text = cases.read_text()
    first = text[: text.index("\n")]
    cases.write_text(text.replace(first, r'- name: "a bell \x07 & <more>"', 1))
    assert stowplan("test", guard, "--junit", report).status == 0
    assert "a bell \ufffd & <more>" in read(report)
