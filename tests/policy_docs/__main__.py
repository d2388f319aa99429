"""Write the pages of the manual that are made of code, and the schema for editors."""

from __future__ import annotations

from tests.policy_docs.pages import PAGES

for path, make in PAGES.items():
    path.write_text(make(), encoding="utf-8")
