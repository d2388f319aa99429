from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.webhook.conftest import Caller
from tests.webhook.contract import checked_answer, holds, patched

REVIEWS = sorted((Path(__file__).parent / "reviews").glob("*.json"))


@pytest.fixture(params=REVIEWS, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.param.read_text())
    return found


async def test_the_answer_keeps_the_contract(case: dict[str, Any], caller: Caller) -> None:
    review = case["review"]
    status, answer = await caller.post("/mutate?timeout=30s", review)
    assert status == 200
    response = checked_answer(review, answer)
    assert response["allowed"]
    assert "warnings" not in response
    assert ("patch" in response) is case["patched"], case["says"]


async def test_a_patch_applies_keeps_what_was_there_and_twice_is_once(
    case: dict[str, Any], caller: Caller
) -> None:
    if not case["patched"]:
        return
    review = case["review"]
    _, answer = await caller.post("/mutate", review)
    again = patched(review, answer["response"])
    assert holds(again["request"]["object"], review["request"]["object"])
    _, second = await caller.post("/mutate", again)
    assert "patch" not in checked_answer(again, second)


async def test_a_validating_webhook_never_patches(case: dict[str, Any], caller: Caller) -> None:
    review = case["review"]
    status, answer = await caller.post("/validate?timeout=30s", review)
    assert status == 200
    response = checked_answer(review, answer)
    assert response["allowed"]
    assert "patch" not in response
