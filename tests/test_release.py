"""A release by a tag: its notes, and what its workflow reads of other files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOW = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
CHANGES = (
    "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 - 2026-11-26\n\n- b\n\n## 0.1.0\n\n- a\n"
)


def _notes(root: Path, tag: str, *, version: str, chart: str) -> subprocess.CompletedProcess[str]:
    """Return what the script says of a tag in a project with the changes above."""
    (root / "charts/stowplan").mkdir(parents=True)
    text = f"version: {chart}\nappVersion: {version}\n"
    (root / "charts/stowplan/Chart.yaml").write_text(text, encoding="utf-8")
    (root / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n', encoding="utf-8")
    (root / "CHANGELOG.md").write_text(CHANGES, encoding="utf-8")
    command = [sys.executable, str(ROOT / ".ci/release_notes.py"), tag]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603 - ours


@pytest.mark.parametrize(("version", "notes"), [("0.2.0", "- b\n"), ("0.1.0", "- a\n")])
def test_notes_are_the_changes_of_that_version_alone(
    tmp_path: Path, version: str, notes: str
) -> None:
    made = _notes(tmp_path, f"v{version}", version=version, chart=version)
    assert (made.returncode, made.stdout) == (0, notes)


@pytest.mark.parametrize(
    ("tag", "version", "chart", "reason"),
    [
        ("v0.2.0", "0.1.0", "0.2.0", "tag v0.2.0, but pyproject.toml has 0.1.0"),
        ("v0.2.0", "0.2.0", "0.1.0", "tag v0.2.0, but `version` of Chart.yaml has 0.1.0"),
        ("0.2.0", "0.2.0", "0.2.0", "tag 0.2.0, but pyproject.toml has 0.2.0"),
        ("v0.3.0", "0.3.0", "0.3.0", "CHANGELOG.md has nothing below `## 0.3.0`"),
    ],
)
def test_what_does_not_fit_together_is_not_released(
    tmp_path: Path, tag: str, version: str, chart: str, reason: str
) -> None:
    made = _notes(tmp_path, tag, version=version, chart=chart)
    assert (made.returncode, made.stdout) == (1, "")
    assert made.stderr.startswith(reason)


def test_the_base_image_is_found_in_the_dockerfile() -> None:
    (command,) = re.findall(r"tag=\$\((sed .*)\)\n", WORKFLOW)
    found = subprocess.run(  # noqa: S602 - ours
        command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"docker\.io/library/python:\S+\n", found.stdout)


def test_what_is_released_is_what_the_rest_of_the_project_passes() -> None:
    jobs = re.findall(r"^  (\w+):\n    name: .*\n    needs: (.*)$", WORKFLOW, re.MULTILINE)
    needs = {job: re.findall(r"\w+", names) for job, names in jobs}
    published = {"image", "chart", "pypi", "github"}
    assert published <= set(needs)
    for job in published:
        reached, open_jobs = set[str](), [job]
        while open_jobs:
            for each in needs.get(open_jobs.pop(), []):
                reached.add(each)
                open_jobs.append(each)
        assert {"ci", "packages"} <= reached


# What is said for machines.


def test_a_vulnerability_of_what_is_not_there_is_of_what_the_image_removes() -> None:
    document = json.loads((ROOT / ".github/stowplan.openvex.json").read_text(encoding="utf-8"))
    final = (ROOT / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]
    (removed,) = re.findall(r"pip uninstall (.*?)\\\n", final)
    for statement in document["statements"]:
        assert statement["justification"] == "component_not_present"
        for product in statement["products"]:
            for component in product["subcomponents"]:
                assert component["@id"].removeprefix("pkg:pypi/") in removed.split()


def test_addresses_in_security_insights_lead_to_what_is_there() -> None:
    text = (ROOT / "SECURITY-INSIGHTS.yml").read_text(encoding="utf-8")
    pages = re.findall(r"stowplan/stowplan/(?:blob/)?main/([^\s#]+)(?:#(\S+))?", text)
    assert pages
    for name, section in pages:
        page = (ROOT / name).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
        assert not section or section in {each.lower().replace(" ", "-") for each in headings}
