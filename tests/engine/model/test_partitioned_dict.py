from __future__ import annotations

from engine.model.partitioned_dict import PARTS, PartitionedDict


def test_a_string_is_always_in_the_same_part() -> None:
    table: PartitionedDict[int] = PartitionedDict()
    keys = [f"shop/pod-{number}" for number in range(1_000)]
    for number, key in enumerate(keys):
        table.part(key)[key] = number
    assert [table.part("".join(key))[key] for key in keys] == list(range(1_000))
    assert sum(map(len, table.parts)) == 1_000


def test_no_part_has_many_more_than_its_share() -> None:
    # 64,000 strings in 64 parts: 1,000 each, with a standard deviation of 31
    table: PartitionedDict[None] = PartitionedDict()
    for number in range(1_000 * PARTS):
        key = f"shop/pod-{number}"
        table.part(key)[key] = None
    assert len(table.parts) == PARTS
    assert max(map(len, table.parts)) < 1_300
    assert min(map(len, table.parts)) > 700
