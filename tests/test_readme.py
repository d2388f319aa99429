"""The README shows what really comes out: every console block is run and compared."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from engine.policy import load_policies
from tests.contents import anchors
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n\$ (stowplan .*?)\n(.*?)```", README, re.DOTALL)
POLICIES = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
HEAD = """\
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: part }
spec:
"""
(ON_PATH,) = re.findall(r"^export PATH=.*$", README, re.MULTILINE)
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "charts" / "stowplan" / "README.md",
]
WIDTH = 100  # columns of the terminal the README shows


def run(command: str) -> str:
    """Return what a command of the README prints, as wide as the README shows it.

    It is found as the README has it, by what it says about the PATH.
    """
    finished = subprocess.run(  # noqa: S603 - the README is ours
        ["/bin/bash", "-c", f"{ON_PATH}\n{command}"],
        cwd=ROOT,
        env={**os.environ, "PATH": os.defpath, "COLUMNS": str(WIDTH), "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert not finished.stderr
    lines = [line.rstrip() for line in finished.stdout.splitlines()]
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", "\n".join(lines)).strip()


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_console_block_shows_what_its_command_prints(command: str, shown: str) -> None:
    # A line of three dots stands for any lines.
    parts = re.split(r"^\.\.\.$", shown.strip(), flags=re.MULTILINE)
    pattern = ".*".join(re.escape(part.strip("\n")) for part in parts)
    assert re.fullmatch(pattern, run(command), re.DOTALL), run(command)


def test_the_readme_has_console_blocks() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("text", POLICIES)
def test_a_policy_that_the_readme_shows_has_no_mistake(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text if text.startswith("apiVersion:") else HEAD + text, encoding="utf-8")

    assert load_policies([file]).policies


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_file_and_a_heading_there_is(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for path, anchor in re.findall(r"\]\(((?!https?:)[\w./-]*)(?:#([\w-]+))?\)", text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text("utf-8")), f"{path}#{anchor}"


def test_the_readme_leads_to_every_page_there_is() -> None:
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages | {"SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= set(
        re.findall(r"\]\(([\w./-]+)\)", README)
    )
    for link in re.findall(r"\]\(((?!http)[\w./-]+)\)", README):
        assert (ROOT / link).exists(), link
