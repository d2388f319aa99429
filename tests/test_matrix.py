"""The versions of Kubernetes that the end-to-end tests run on, and what is said of them."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.build import versions
from tests.e2e.matrix import GROUPS, files_of, outcomes_in, table

_PAGE = Path(__file__).parent.parent / "docs" / "live-cluster.md"
_REPORT = """<testsuites><testsuite>
<testcase classname="tests.e2e.test_binding" name="one" />
<testcase classname="tests.e2e.test_chart_binding" name="two"><failure message="x" /></testcase>
<testcase classname="tests.e2e.test_quota" name="three"><skipped message="x" /></testcase>
</testsuite></testsuites>"""


def test_every_file_of_the_matrix_exists() -> None:
    assert not [file for names in GROUPS.values() for file in files_of(names) if not file.exists()]


def test_outcomes_are_counted_by_group(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(_REPORT)
    shown = table({"1.36.3": outcomes_in(report)}).splitlines()
    assert shown[0] == "| tests | 1.36.3 |"
    assert "| bindings | 1 passed, 1 failed |" in shown
    assert "| quota | 1 skipped |" in shown


def test_the_table_of_supported_versions_has_the_versions_and_groups_of_the_matrix() -> None:
    page = _PAGE.read_text(encoding="utf-8")
    section = page.partition("\n## Versions of Kubernetes\n")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("| ")]
    assert rows[0][1:] == list(versions().values())
    assert [row[0] for row in rows[1:]] == list(GROUPS)
