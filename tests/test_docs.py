"""The guides show policies as they are shipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
SHIPPED = {
    path.read_text(encoding="utf-8").strip(): path for path in ROOT.glob("policies/*/*.yaml")
}
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
