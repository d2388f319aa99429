"""Run what depends on the API server and the scheduler on several versions of Kubernetes.

`python -m tests.e2e.matrix 1.35 1.37` runs the files of `GROUPS` on each version, one after the
other, and prints a table; without versions, on every one whose modules are pinned. What does not
depend on the version runs in `make e2e` alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.build import MINOR_VERSION, versions

GROUPS: Mapping[str, Sequence[str]] = {
    "admission": ("builtin_admission", "chart_match_conditions", "chart_reviews", "placement"),
    "bindings": ("binding", "chart_binding", "chart_bindings_policy"),
    "nominations": ("nomination_facts",),
    "held pods": ("held_admission", "held_queue", "held_release", "held_rights", "held_writes"),
    "gangs": ("gang", "pod_groups", "scheduler_gangs"),
    "quota": ("quota", "quota_cohort", "quota_evasion", "quota_queue", "quota_upkeep"),
    "policies": ("chart_admission_policy", "policy_definitions", "policy_resources"),
    "evictions": ("preemption", "reclaim"),
    "chart": ("chart_manifests", "chart_installed"),
    "scheduler": ("scheduler_filters",),
}
"""Files of tests, without `test_` and `.py`, by the part that they test."""

_HERE = Path(__file__).parent


_OUTCOMES = ("passed", "failed", "skipped")


def main() -> None:
    """Run the files on the versions that are asked for; exit 1 if any test fails."""
    pinned = versions()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=", ".join(pinned))
    asked: list[str] = parser.parse_args().versions or list(pinned)
    for minor in asked:
        if minor not in pinned:
            parser.error(f"no modules of Kubernetes {minor}: there are {', '.join(pinned)}")
    counts = {pinned[minor]: _run(minor) for minor in asked}
    print(table(counts))
    if any(outcomes["failed"] for groups in counts.values() for outcomes in groups.values()):
        sys.exit(1)


def table(counts: Mapping[str, Mapping[str, Counter[str]]]) -> str:
    """Return the outcomes as a table of Markdown.

    Args:
        counts: numbers of outcomes, by version and group.
    """
    rows = [["tests", *counts], ["---"] * (len(counts) + 1)]
    rows += [[group, *(_cell(groups[group]) for groups in counts.values())] for group in GROUPS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[each]} {each}" for each in _OUTCOMES if outcomes[each])


def _run(minor: str) -> dict[str, Counter[str]]:
    """Run all groups on a version; return the numbers of outcomes by group."""
    environment = {**os.environ, MINOR_VERSION: minor}
    python = (sys.executable, "-m")
    print(f"Kubernetes {minor}", flush=True)
    subprocess.run([*python, "tests.e2e.build"], env=environment, check=True)  # noqa: S603
    files = [file for names in GROUPS.values() for file in files_of(names)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        flags = ("-q", "--numprocesses", "2", "--dist", "loadfile", f"--junit-xml={report}")
        subprocess.run([*python, "pytest", *flags, *files], env=environment, check=False)  # noqa: S603
        return outcomes_in(report)


def files_of(names: Sequence[str]) -> list[Path]:
    """Return the files of a group."""
    return [_HERE / f"test_{name}.py" for name in names]


def outcomes_in(report: Path) -> dict[str, Counter[str]]:
    """Return the numbers of outcomes by group.

    Args:
        report: JUnit XML that pytest has written.
    """
    counts = {group: Counter[str]() for group in GROUPS}
    groups = {f"test_{name}": group for group, names in GROUPS.items() for name in names}
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 (pytest wrote it)
        module = case.attrib["classname"].rpartition(".")[2]
        counts[groups[module]][_outcome(case)] += 1
    return counts


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


if __name__ == "__main__":
    main()
