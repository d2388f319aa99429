from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.webhook.cli.running import Stowplan

ENTRY = "{name: LoadAwareScheduling, args: {usageThresholds: {cpu: 1}}}\n"


def test_the_policy_is_all_there_is_on_standard_output(
    stowplan: Stowplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ENTRY.encode())))
    ran = stowplan("import", "-")
    assert ran.status == 0
    file = tmp_path / "policy.yaml"
    file.write_text(ran.out)
    assert stowplan("lint", file).status == 0


def test_it_ends_by_linting_what_it_wrote(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text(ENTRY)
    ran = stowplan("import", tmp_path / "scheduler.yaml")
    warning, end = ran.err.splitlines()
    assert warning.startswith("warning: load-aware-scheduling: LoadAware: `usageThresholds` of cpu")
    assert end == "<stdout>: 1 policy, no mistakes"


def test_a_file_is_written_and_not_overwritten(stowplan: Stowplan, tmp_path: Path) -> None:
    source, made = tmp_path / "scheduler.yaml", tmp_path / "policy.yaml"
    source.write_text(ENTRY)
    assert stowplan("import", source, "-o", made, "--name", "ours").status == 0
    assert "  name: ours\n" in made.read_text()
    ran = stowplan("import", source, "-o", made)
    assert (ran.status, ran.err) == (1, f"`{made}` exists\nhint: `--force` replaces it\n")
    assert stowplan("import", source, "-o", made, "--force").status == 0
    assert "  name: load-aware-scheduling\n" in made.read_text()


def test_a_plugin_that_cannot_be_imported_is_told_with_its_place_and_the_rest_is_written(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("profiles:\n- plugins:\n    score: {enabled: [{name: Peaks}]}\n")
    ran = stowplan("import", file)
    assert ran.status == 3
    assert ran.err.startswith(f"left out: {file}:3:23: missing key `nodePowerModel`\n")
    assert "- plugin: NodeResourcesFit\n" in ran.out


def test_a_name_that_no_policy_can_have_is_refused(stowplan: Stowplan, tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text(ENTRY)
    ran = stowplan("import", tmp_path / "scheduler.yaml", "--name", "Our Policy")
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.startswith("<stdout>:5:9: `Our Policy` is no name\n")
