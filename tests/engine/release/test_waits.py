from __future__ import annotations

import pytest

from engine.release import WaitFacts, wait_reason

ALL = {
    "has_other_gates": True,
    "is_refused": True,
    "noted": "WaitingForReclaim",
    "quota": "WaitingForQuota",
    "gang": "WaitingForGang",
    "finds_no_node": True,
    "is_behind_binding": True,
}
REASONS = [
    "WaitingForOtherGates",
    "ReleaseRefused",
    "WaitingForReclaim",
    "WaitingForQuota",
    "WaitingForGang",
    "WaitingForCapacity",
    "WaitingForBindings",
    "WaitingInOrder",
]


@pytest.mark.parametrize("row", range(len(REASONS)))
def test_the_first_row_that_holds_is_the_reason(row: int) -> None:
    facts = dict(list(ALL.items())[row:])
    assert wait_reason(WaitFacts(**facts)) == REASONS[row]  # type: ignore[arg-type]
