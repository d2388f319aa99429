from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.view.pod_table import NO_ROW, PodEntry, PodTable
from tests.engine.measured_cluster import pod

SHAPES = [pod(requests={"cpu": f"{cores}"}).shape for cores in range(1, 5)]

ENTRIES = st.builds(
    PodEntry,
    st.integers(NO_ROW, 3),
    st.sampled_from(SHAPES),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
)
STEPS = st.lists(st.tuples(st.sampled_from("pqrst"), ENTRIES | st.none()), max_size=40)
"""A key with what is put under it; None deletes."""


@given(STEPS)
def test_the_table_holds_what_was_put_last(steps: list[tuple[str, PodEntry | None]]) -> None:
    table, left = PodTable(), dict[str, PodEntry]()
    most_shapes = 0
    for key, entry in steps:
        if entry is not None:
            table.put(key, entry)
            left[key] = entry
        elif left.pop(key, None) is not None:
            table.delete(key)
        most_shapes = max(most_shapes, len({id(entry.shape) for entry in left.values()}))
    assert {key: table.get(key) for key in "pqrst"} == {key: left.get(key) for key in "pqrst"}
    assert len(table) == len(left)
    for row in range(4):
        expected = {key: entry for key, entry in left.items() if entry.row == row}
        assert dict(table.on_row(row)) == expected
        assert table.count_on(row) == len(expected)
    # Numbers of shapes that no pod has any more are used again.
    assert len(table.shapes) <= most_shapes + 1
    assert sum(shape is not None for shape in table.shapes) == len(
        {id(entry.shape) for entry in left.values()}
    )
