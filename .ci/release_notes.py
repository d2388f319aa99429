"""Print the notes of a release: `release_notes.py v0.1.0`, in the root of the project.

They are what CHANGELOG.md has under the heading of the version. A tag that is not the version of
the project and of its chart, or whose changes are still "Unreleased", is refused.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def notes(root: Path, tag: str) -> str:
    """Return the notes of a tag; exit with a message if it is not to be released."""
    version = tag.removeprefix("v")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = (root / "charts/stowplan/Chart.yaml").read_text(encoding="utf-8")
    versions = {"pyproject.toml": project["version"]}
    for key, found in re.findall(r"^(version|appVersion): (\S+)$", chart, re.MULTILINE):
        versions[f"`{key}` of Chart.yaml"] = found
    for place, found in versions.items():
        if tag != f"v{found}":
            sys.exit(f"tag {tag}, but {place} has {found}")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)"
    section = re.search(heading, changes, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        sys.exit(f"CHANGELOG.md has nothing below `## {version}`: rename `## Unreleased`")
    return section[1].strip()


if __name__ == "__main__":
    sys.stdout.write(f"{notes(Path(), sys.argv[1])}\n")
