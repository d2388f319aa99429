"""`stowplan lint` for machines: JSON, and SARIF by the models of its published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Log

from engine.policy_lint import Check
from tests.webhook.cli.running import ROOT, Stowplan
from webhook.cli.lint import LintReport

Json = dict[str, Any]

POLICY = """\
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: mixed }
spec:
  filters:
    - { name: small, expression: node.usage.memory < 4096.0 }
    - { name: zone, expression: "node.labels['zone'] == 'a'" }
  scores:
    - { name: dense, weight: 3, expression: node.podCount }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with a policy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy 1.yaml").write_text(POLICY)
    return tmp_path


def sarif(file: Path) -> Json:
    """Return the run of a log; refuses what the schema does not allow."""
    text = file.read_bytes()
    Log.model_validate_json(text)
    (run,) = json.loads(text)["runs"]
    return cast("Json", run)


def test_rules_and_warnings_are_printed_as_json(stowplan: Stowplan, folder: Path) -> None:
    ran = stowplan("lint", folder / "policy 1.yaml", "--json")
    assert (ran.status, ran.err) == (0, "")
    report = msgspec.json.decode(ran.out, type=LintReport)
    assert not report.mistakes
    (policy,) = report.policies
    assert (policy.name, policy.file) == ("mixed", str(folder / "policy 1.yaml"))
    small, zone, empty = policy.rules
    assert (small.kind, zone.enforced_by, empty.kind, empty.weight) == (
        "filter",
        "labels",
        "score",
        3,
    )
    assert empty.cost_millis is not None
    (warning,) = report.warnings
    assert (warning.check, warning.rule, warning.line, warning.column) == (
        "meaning",
        "small",
        6,
        52,
    )
    assert warning.hint == "for 4096 Mi write `4294967296.0`"


def test_mistakes_are_printed_as_json_and_lead_to_the_same_exit_status(
    stowplan: Stowplan, folder: Path
) -> None:
    (folder / "policy 1.yaml").write_text(POLICY.replace("node.podCount", "node.podCuont"))
    ran = stowplan("lint", folder, "--json")
    assert (ran.status, ran.err) == (3, "")
    report = msgspec.json.decode(ran.out, type=LintReport)
    assert not report.policies
    (mistake,) = report.mistakes
    assert (mistake.check, mistake.line) == ("mistake", 9)
    assert mistake.hint == "did you mean `podCount`?"


def test_mistakes_are_results_of_level_error(stowplan: Stowplan, folder: Path) -> None:
    (folder / "policy 1.yaml").write_text(POLICY.replace("node.podCount", "node.podCuont"))
    ran = stowplan("lint", "policy 1.yaml", "--sarif", "lint.sarif")
    assert ran.status == 3
    assert ran.err.startswith("policy 1.yaml:9:")
    (result,) = sarif(folder / "lint.sarif")["results"]
    assert (result["level"], result["ruleId"]) == ("error", "mistake")
    assert "hint: did you mean `podCount`?" in result["message"]["text"]
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "policy%201.yaml"
    assert location["region"]["startLine"] == 9


def test_warnings_are_results_with_the_rule_that_found_them(
    stowplan: Stowplan, folder: Path
) -> None:
    assert stowplan("lint", folder, "--sarif", "lint.sarif").status == 0
    run = sarif(folder / "lint.sarif")
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["mistake", *(check.value for check in Check)]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("meaning", "warning")


def test_a_file_beyond_the_working_folder_is_named_in_full(
    stowplan: Stowplan, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    policy = (ROOT / "policies" / "limit-aware" / "policy.yaml").read_text(encoding="utf-8")
    warned = policy.replace("at: Binding", "dynamicFilters: Required")
    (elsewhere / "policy.yaml").write_text(warned, encoding="utf-8")
    assert stowplan("lint", elsewhere, "--sarif", "lint.sarif").status == 0
    (result,) = sarif(folder / "lint.sarif")["results"]
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == (elsewhere / "policy.yaml").as_uri()
