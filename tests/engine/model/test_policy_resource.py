from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from engine.model.policy_resource import PlacementOptions

_ROOT = Path(__file__).parents[3]
_DECIDING = ("engine/pipeline.py", "engine/policy/policy_set.py")
_DECIDING_ROOMS = ("engine/binding", "engine/placement", "webhook/controllers", "webhook/placement")
_FILES = [_ROOT / name for name in _DECIDING] + [
    file for room in _DECIDING_ROOMS for file in sorted((_ROOT / room).rglob("*.py"))
]
_DECISIONS = "\n".join(file.read_text(encoding="utf-8") for file in _FILES)


def _derived(option: str) -> set[str]:
    """Return the properties of the options that read one of them."""
    properties = inspect.getmembers(PlacementOptions, lambda each: isinstance(each, property))
    return {name for name, each in properties if f"self.{option}" in inspect.getsource(each.fget)}


@pytest.mark.parametrize("option", [each.name for each in fields(PlacementOptions)])
def test_every_option_of_a_policy_is_read_where_pods_are_decided(option: str) -> None:
    read = set(re.findall(r"\bplacement\.(\w+)", _DECISIONS))
    assert read & {option, *_derived(option)}, f"validated, and then read by nobody: {option}"
