from __future__ import annotations

from engine.model.caches import PARTS, ByteLimitedCache, PartitionedDict


def cache_of(most_bytes: int) -> ByteLimitedCache[str, str]:
    return ByteLimitedCache(most_bytes, lambda key, value: len(key) + len(value))


def test_it_never_holds_more_than_its_bytes() -> None:
    cache = cache_of(1_000)
    for number in range(500):
        cache.put(str(number), "x" * (number % 90))
        assert cache.size <= 1_000
    assert len(cache) > 5


def test_what_is_used_stays_while_others_pass_through() -> None:
    cache = cache_of(1_000)
    cache.put("used", "x" * 90)
    cache.put("unused", "x" * 90)
    for number in range(500):
        cache.put(str(number), "x" * 90)
        assert cache.get("used") is not None
    assert cache.get("unused") is None


def test_a_value_larger_than_half_of_all_drops_no_others() -> None:
    cache = cache_of(1_000)
    cache.put("small", "x")
    cache.put("large", "x" * 600)
    assert (cache.get("small"), cache.get("large")) == ("x", None)


def test_a_cleared_cache_is_empty_and_takes_values_again() -> None:
    cache = cache_of(100)
    cache.put("a", "x" * 40)
    cache.clear()
    cache.put("b", "x" * 40)
    assert (cache.get("a"), cache.get("b"), len(cache)) == (None, "x" * 40, 1)


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
