from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.amounts_table import AmountsTable
from engine.model.usage import PodUsage, PodUsages

NAMES = st.sampled_from(["cpu", "memory", "example.com/gpu"])
AMOUNTS = st.dictionaries(NAMES, st.integers(-(2**63) + 1, 2**63 - 1))
KEYS = st.text(max_size=3)


@given(st.dictionaries(KEYS, AMOUNTS))
def test_a_table_reads_as_what_it_was_made_from(amounts: dict[str, dict[str, int]]) -> None:
    table = AmountsTable(amounts)
    assert table == amounts
    assert list(table) == sorted(amounts)
    assert len(table) == len(amounts)


@given(st.dictionaries(KEYS, st.builds(PodUsage, AMOUNTS, st.booleans())))
def test_packed_usage_of_pods_reads_as_what_it_was_made_from(usages: dict[str, PodUsage]) -> None:
    assert PodUsages(usages) == usages


def test_what_is_not_in_a_table_is_not_found() -> None:
    table, usages = AmountsTable({"a": {"cpu": 1}}), PodUsages({})
    assert table.get("b") is None
    assert usages.get("b") is None
    with pytest.raises(KeyError):
        table["b"]
    with pytest.raises(KeyError):
        usages["b"]
