from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from engine.errors import InvalidFileError
from engine.policy_tests.runner import run_cases

_POLICY = """\
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: p}
spec:
  mode: Audit
  filters:
    - name: small
      expression: double(node.labels.n) < 10.0
      message: too large
  scores:
    - name: large
      expression: double(node.labels.n)
"""
_CASE = """\
- name: the largest that is not too large wins
  now: 2026-01-01T00:00:00Z
  cluster:
    nodes:
      - {metadata: {name: n1, labels: {n: "1"}}, status: {allocatable: &a {cpu: 4, pods: 9}}}
      - {metadata: {name: n3, labels: {n: "3"}}, status: {allocatable: *a}}
      - {metadata: {name: n5, labels: {n: "5"}}, status: {allocatable: *a}}
      - {metadata: {name: n5b, labels: {n: "5"}}, status: {allocatable: *a}}
      - {metadata: {name: n20, labels: {n: "20"}}, status: {allocatable: *a}}
  pod: {spec: {containers: [{}]}}
  expect:
"""


def _failures(folder: Path, expect: str) -> tuple[str, ...]:
    (folder / "policy.yaml").write_text(_POLICY, encoding="utf-8")
    text = _CASE + indent(dedent(expect), "    ")
    (folder / "cases.yaml").write_text(text, encoding="utf-8")
    (result,) = run_cases(folder).results
    return result.failures


def test_a_case_whose_expectations_hold_passes_even_for_a_policy_in_audit_mode(
    tmp_path: Path,
) -> None:
    expect = """
    verdict: Place
    message: 4 of 5 nodes fit
    best: [n5, n5b]
    order: [n5, n3, n1]
    rejected: {n20: "small: too large"}
    scores: {large: {n1: 0, n3: 50, n5: 100}}
    """
    assert _failures(tmp_path, expect) == ()


@pytest.mark.parametrize(
    ("expect", "failure"),
    [
        ("verdict: Deny", "verdict: expected Deny, got Place ("),
        ("message: none", "message: expected `none` in `4 of 5 nodes fit"),
        ("best: n3", "best: expected n3, got n5"),
        ("best: [n5, n5b, n3]", "best: expected n5, n5b, n3, got n5"),
        ("order: [n3, n5]", "order: expected n3, n5, got n5"),
        ("order: [n5, n5b]", "order: expected n5, n5b, got n5"),
        ("order: [n5, n20]", "order: expected n5, n20, got n5"),
        ("rejected: {n20: too small}", "rejected: expected `too small` for n20, got small: too l"),
        ("rejected: {n1: small}", "rejected: expected `small` for n1, got no rejection"),
        ("rejected: {n2: small}", "rejected: expected `small` for n2, got no such node"),
        ("scores: {large: {n3: 51}}", "scores: expected large to give n3 51 points, got 50 points"),
        (
            "scores: {large: {n20: 51}}",
            "scores: expected large to give n20 51 points, got none: it is not a candidate",
        ),
        ("scores: {none: {n3: 51}}", "scores: there is no score none (those that apply: large)"),
        ("errors: [variable]", "errors: expected `variable`, got no error"),
    ],
)
def test_each_expectation_that_does_not_hold_is_told(
    tmp_path: Path, expect: str, failure: str
) -> None:
    (told,) = _failures(tmp_path, expect)
    assert told.startswith(failure)


def test_points_are_called_points_and_a_tie_a_tie(tmp_path: Path) -> None:
    (line,) = _failures(tmp_path, "best: n3")
    assert set(line.removeprefix("best: expected n3, got ").split(", ")) >= {"n3 50", "n1 0"}
    assert "n5 and n5b with 100 points each" in line or "n5b and n5 with 100 points each" in line


@pytest.mark.parametrize(
    ("expect", "cause"),
    [
        ("best: n20", "n20 is not a candidate: small: too large"),
        ("order: [n5, gone]", "gone is not a candidate: the cluster has no such node"),
    ],
)
def test_a_failure_comes_with_its_cause(tmp_path: Path, expect: str, cause: str) -> None:
    assert _failures(tmp_path, expect)
    (result,) = run_cases(tmp_path).results
    assert result.causes == (cause,)


def test_a_pod_that_is_never_placed_fails_a_case_that_expects_otherwise(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(_POLICY, encoding="utf-8")
    case = _CASE.replace("pod: {", "pod: {metadata: {namespace: kube-system}, ")
    (tmp_path / "cases.yaml").write_text(case + "    verdict: Place\n", encoding="utf-8")
    (result,) = run_cases(tmp_path).results
    assert result.failures == (
        "verdict: expected Place, got Abstain (namespace kube-system is excluded)",
    )


def test_what_could_not_be_evaluated_is_a_cause(tmp_path: Path) -> None:
    _failures(tmp_path, "best: n5")
    policy = tmp_path / "policy.yaml"
    policy.write_text(_POLICY.replace("double(node.labels.n)\n", "double(node.labels.x)\n"))
    (result,) = run_cases(tmp_path).results
    assert [cause for cause in result.causes if "large could not be evaluated for 4" in cause]


def test_folders_are_searched_and_each_is_tested_against_its_own_policies(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        assert _failures(tmp_path / name, "best: [n5, n5b]") == ()
    results = run_cases(tmp_path).results
    assert [Path(result.file).parent.name for result in results] == ["a", "b"]
    assert [result.decision.policies for result in results] == [("p",), ("p",)]


def test_mistakes_in_policies_and_cases_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("kind: Polcy")
    (tmp_path / "cases.yaml").write_text("- {}")
    report = "\n".join(map(str, run_cases(tmp_path).problems))
    assert "policy.yaml:1:7" in report
    assert "cases.yaml:1:3" in report


def test_a_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _failures(tmp_path / name, "best: [n5, n5b]")
    (tmp_path / "a" / "cases.yaml").write_text("- {}")
    run = run_cases(tmp_path)
    assert [Path(result.file).parent.name for result in run.results] == ["b"]
    assert run.problems
    assert {problem.file for problem in run.problems} == {str(tmp_path / "a" / "cases.yaml")}


def test_policies_that_no_case_applies_are_named(tmp_path: Path) -> None:
    assert _failures(tmp_path, "best: [n5, n5b]") == ()
    (tmp_path / "other").mkdir()
    other = _POLICY.replace("name: p}", "name: other}")
    matching = "spec:\n  match: {objectSelector: {matchLabels: {a: b}}}\n"
    text = other.replace("spec:\n", matching)
    (tmp_path / "other" / "policy.yaml").write_text(text, encoding="utf-8")
    run = run_cases(tmp_path)
    assert (run.problems, run.untested) == ([], ("other",))


def test_expressions_that_read_the_moment_need_one_in_cases(tmp_path: Path) -> None:
    _failures(tmp_path, "best: [n5, n5b]")
    cases, policy = tmp_path / "cases.yaml", tmp_path / "policy.yaml"
    cases.write_text(cases.read_text().replace("  now: 2026-01-01T00:00:00Z\n", ""))
    assert run_cases(tmp_path).problems == []
    age = "(now - node.creationTimestamp).getHours()"
    policy.write_text(_POLICY.replace("double(node.labels.n)\n", f"{age}\n"))
    (problem,) = run_cases(tmp_path).problems
    assert problem.message == "missing key `now`"


def test_a_folder_without_cases_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidFileError, match=r"holds no `cases\.yaml`"):
        run_cases(tmp_path)
