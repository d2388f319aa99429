from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.stages.cel import run

if TYPE_CHECKING:
    from tests.conformance.outcome import Json

_FILE = Path(__file__).parent / "cases" / "cel_conformance.json"


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in json.loads(_FILE.read_bytes())]
)
def test_the_language_agrees_with_the_conformance_suite(case: Json) -> None:
    assert run(case) is None
