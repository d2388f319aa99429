"""The scorer that CONTRIBUTING adds is added to a copy of the project, as the text says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(
    re.findall(r"all of\s`([\w/]+\.py)`[^`]*```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
)
ENTRIES = re.findall(r"add [^`]*?`(\"FewPods\": .*?)`", GUIDE)
COPIED = ("docs", "engine", "policies", "tests/engine")
COPIED_FILES = (
    "pyproject.toml",
    "tests/__init__.py",
    "tests/builders.py",
    "tests/conftest.py",
    "tests/contents.py",
    "tests/docs.py",
    "tests/searching.py",
    "tests/test_docs.py",
)


def _insert(file: Path, new: str, before: str) -> None:
    """Put a line before the first that begins like another one."""
    text = file.read_text(encoding="utf-8")
    assert before in text
    file.write_text(text.replace(before, f"{new}\n{before}", 1), encoding="utf-8")


def _run(folder: Path, *command: str) -> None:
    finished = subprocess.run(  # noqa: S603 - nothing but what CONTRIBUTING says
        [sys.executable, "-m", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_scorer_and_its_test_are_short() -> None:
    assert [Path(name).name for name in FILES] == ["few_pods.py", "test_few_pods.py"]
    assert sum(text.count("\n") for text in FILES.values()) < 60


def test_the_scorer_is_added_as_the_text_says(tmp_path: Path) -> None:
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for name in COPIED_FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    in_registry, example = ENTRIES

    registry = tmp_path / "engine/plugins/__init__.py"
    _insert(registry, "    few_pods,", "    image_locality,\n")
    _insert(registry, f"        {in_registry},", '        "ImageLocality"')
    _insert(tmp_path / "tests/docs.py", f"    {example},", '    "ImageLocality"')
    rows, docs = "tests/engine/plugins/test_row_wise.py", "tests/test_docs.py"

    _run(tmp_path, "ruff", "format", "--check", *FILES)
    _run(tmp_path, "ruff", "check", *FILES)
    _run(tmp_path, "tests.docs")
    _run(tmp_path, "pytest", "-q", "-k", "few_pods or FewPods or docs", *FILES, rows, docs)
