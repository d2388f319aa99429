"""Lists of the sections of long pages; `make docs` keeps them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_DOCS: Final = Path(__file__).parent.parent / "docs"
_LONG: Final = 11_000  # characters
_MARK: Final = "**On this page:** "


def long_pages() -> list[Path]:
    """Return the pages that need a list of their sections."""
    return [path for path in sorted(_DOCS.glob("*.md")) if len(path.read_text("utf-8")) > _LONG]


def with_contents(page: str) -> str:
    """Return a page with links to its sections before the first of them."""
    headings = _headings(page, "##")
    links = " · ".join(f"[{_plain(each)}](#{_anchor(each)})" for each in headings)
    head, first, sections = page.partition("\n## ")
    head = re.sub(rf"^{re.escape(_MARK)}.*\n\n?", "", head, flags=re.MULTILINE).rstrip("\n")
    return f"{head}\n\n{_MARK}{links}\n{first}{sections}"


def anchors(page: str) -> set[str]:
    """Return the anchors of the headings of a page."""
    return {_anchor(heading) for heading in _headings(page, "#+")}


def _headings(page: str, level: str) -> list[str]:
    """Return the headings of a page of a level, which is a pattern."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"^{level} (.+)$", text, re.MULTILINE)


def _plain(heading: str) -> str:
    return heading.replace("`", "")


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
