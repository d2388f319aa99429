from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.webhook.cli.running import ROOT, Stowplan
from webhook.cli.shipped_files import SCHEMA, shipped_policies


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
