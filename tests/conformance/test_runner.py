from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.conformance.__main__ import main
from tests.conformance.runner import Case, Outcome, outcome_of, read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.outcome import Json

ONE_MORE = {
    "name": "one more",
    "stage": "add",
    "args": {"x": "1", "y": "1"},
    "expect": {"string": "2"},
}
ONE_LESS = ONE_MORE | {"name": "one less", "expect": {"string": "0"}}


def _write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def _case(plugin: str = "adder") -> Case:
    return Case("sums", {"name": "one more"}, {"plugin": plugin, "stage": "add"})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            [{"plugin": "a", "stage": "s", "cases": [{"name": "x"}]}],
            [("a", "s", "x")],
        ),
        (
            {"plugin": "a", "stage": "s|t", "cases": [{"name": "x", "stage": "t", "plugin": "b"}]},
            [("b", "t", "x")],
        ),
        (
            [{"id": "basic/x", "name": "x", "expr": "1"}],
            [("CEL", "evaluate", "basic/x")],
        ),
    ],
)
def test_every_shape_of_file_is_read(content: Json, expected: object, tmp_path: Path) -> None:
    cases = read_cases(_write(tmp_path / "any.json", content))
    assert [(case.plugin, case.stage, case.label) for case in cases] == expected


def test_a_case_without_a_runner_fails_by_name() -> None:
    assert outcome_of(_case("subtractor"), plugins={}) == Outcome(
        "failed", "no runner for subtractor/add"
    )


def test_a_stage_that_raises_fails_its_case() -> None:
    def broken(_case: Json, _group: Json) -> str | None:
        raise LookupError("no\nsuch node")

    assert outcome_of(_case(), plugins={"adder": {"add": broken}}) == Outcome(
        "failed", "raised LookupError: no such node"
    )


@pytest.mark.parametrize(
    ("wrong", "verdict"), [("expected 2, got 3", "expected failure"), (None, "failed")]
)
def test_an_expected_failure_must_fail(wrong: str | None, verdict: str) -> None:
    listed = {("sums", "one more"): "upstream cannot add"}
    outcome = outcome_of(
        _case(),
        plugins={"adder": {"add": lambda _case, _group: wrong}},
        expected_failures=listed,
    )
    assert outcome.verdict == verdict
    assert "upstream cannot add" in outcome.text


def test_the_totals_stand_alone_on_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = {"plugin": "resource.Quantity", "cases": [ONE_MORE, ONE_LESS]}
    path = _write(tmp_path / "sums.json", group)
    assert main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "failed: sums.json: one less: expected {'string': '0'}, got {'string': '2'}",
        "1 passed, 1 failed",
    ]


def test_the_run_succeeds_when_nothing_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = {"plugin": "resource.Quantity", "cases": [ONE_MORE]}
    path = _write(tmp_path / "sums.json", group)
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


def test_a_file_that_cannot_be_read_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "absent.json")]) == 1
    assert capsys.readouterr().out.endswith("0 passed, 1 failed\n")


def test_what_is_not_supported_is_counted_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = {
        "plugin": "CapacityScheduling",
        "stage": "preempt-eligible",
        "cases": [{"name": "may"}],
    }
    path = _write(tmp_path / "evictions.json", group)
    (case,) = read_cases(path)
    assert outcome_of(case).text.startswith("the scheduler decides")
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["1 not supported", "0 passed, 0 failed"]
