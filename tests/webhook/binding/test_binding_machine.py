"""No node is filled by a move, whatever comes late, twice, out of order or not at all."""

from __future__ import annotations

import pytest

from tests.webhook.binding.binding_machine import ASKED, BRIMFUL, QUIET, STORMY, WILD, Faults, World


@pytest.mark.parametrize(
    ("faults", "fill", "least_moved"),
    [(QUIET, 1.0, 100), (ASKED, 0.95, 20), (STORMY, 1.0, 20), (WILD, 0.97, 1)],
    ids=["quiet", "asked", "stormy", "wild"],
)
def test_a_move_never_binds_a_pod_to_a_full_node(
    faults: Faults, fill: float, least_moved: int
) -> None:
    result = World(1, faults, fill=fill).run(700)
    assert result.moved >= least_moved  # else it would say little
    assert not result.failures, result


@pytest.mark.parametrize(
    ("seed", "fill"),
    [(3, 1.0), (8, 1.0), (14, 0.95)],
    ids=["any", "a denial comes too late", "a denied pod escapes later"],
)
def test_moves_that_fill_nodes_completely_never_overfill_them(seed: int, fill: float) -> None:
    result = World(seed, BRIMFUL, fill=fill, has_margin=False).run(1000)
    assert not result.failures, result


def test_where_a_binding_fails_without_an_answer_nothing_escapes() -> None:
    faults = Faults(late_call=0.05, lost_call=0.05, slow_watch=0.05, freeze=5, fails_closed=True)
    result = World(2, faults, fill=1.0).run(500)
    assert not result.failures, result
    assert not result.by_escape, result
