"""The guides show policies as they are shipped, and plugins as they are written."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

from engine.binding.decision import REASON_TEXTS
from engine.model.hold import QueuedReason
from engine.plugins import PLUGINS
from tests.contents import long_pages, with_contents
from tests.docs import EXAMPLES, PAGE, plugin_reference
from tests.engine.policy.worlds import policy

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
SHIPPED = {
    path.read_text(encoding="utf-8").strip(): path for path in ROOT.glob("policies/*/*.yaml")
}
PACKAGES = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for root in ("engine", "webhook")
    for path in sorted(ROOT.glob(f"{root}/**/__init__.py"))
    if "__all__" in path.read_text(encoding="utf-8")
]
WHOLE = [
    block.strip()
    for block in re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    if "kind: PlacementPolicy" in block
]


@pytest.mark.parametrize("block", WHOLE)
def test_a_policy_in_the_guide_is_the_shipped_one(block: str) -> None:
    assert block in SHIPPED


def test_the_guide_shows_policies_and_links_all_of_them() -> None:
    assert WHOLE
    for path in ROOT.glob("policies/*/policy.yaml"):
        assert f"../policies/{path.parent.name}" in GUIDE


def test_the_plugin_reference_is_what_the_plugins_say_of_themselves() -> None:
    assert PAGE.read_text(encoding="utf-8") == plugin_reference(), "run `make docs`"


@pytest.mark.parametrize("path", long_pages(), ids=lambda path: path.name)
def test_a_long_page_begins_with_links_to_its_sections(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert with_contents(page) == page, "run `make docs`"


def test_sections_are_linked_by_the_anchors_of_their_headings() -> None:
    page = "# P\n\nIn short.\n\n## `a.b`, and C-d\n\n```\n## no heading\n```\n## E\n"
    linked = with_contents(page)
    assert "\n\n**On this page:** [a.b, and C-d](#ab-and-c-d) · [E](#e)\n\n## `a.b`" in linked
    assert with_contents(linked) == linked


def _explained(page: str, heading: str) -> set[str]:
    """Return the words in capitals that the tables of a section explain."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    rows = re.findall(r"^\|.*", text.partition("\n## ")[0], re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([A-Z]\w+)`", row)}


def test_every_reason_why_a_pod_waits_is_explained() -> None:
    assert set(QueuedReason) <= _explained("held-pods.md", "Why a pod waits")


def test_every_reason_of_a_binding_is_explained() -> None:
    assert set(REASON_TEXTS) <= _explained("binding.md", "Reasons")


def test_every_arg_of_a_plugin_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", plugin_reference(), re.MULTILINE)
    assert rows
    assert [name for name, meaning in rows if not meaning.strip()] == []


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_has_an_example_that_is_a_policy(name: str) -> None:
    compiled = policy(EXAMPLES[name])
    filters, scores = compiled.filters, compiled.scores
    assert name in [*(rule.name for rule in filters), *(rule.name for rule in scores)]


@pytest.mark.parametrize("name", PACKAGES)
def test_what_a_package_exports_is_described(name: str) -> None:
    package = import_module(name)
    exported = {each: getattr(package, each) for each in package.__all__}
    parts = {
        each: part
        for each, part in exported.items()
        if inspect.isclass(part) or inspect.isfunction(part)
    }
    methods = {
        f"{each}.{method}": function
        for each, part in parts.items()
        if inspect.isclass(part)
        for method, function in vars(part).items()
        if isinstance(function, FunctionType | property) and not method.startswith("_")
        if method not in getattr(part, "__dataclass_fields__", ())
    }
    assert [each for each, part in (parts | methods).items() if not inspect.getdoc(part)] == []
