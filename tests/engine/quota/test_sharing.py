from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota import sharing
from tests.builders import elastic_quota

Member = tuple[ElasticQuota, Amounts]


def member(least: Amounts, greatest: Amounts, **used: int) -> Member:
    quota = elastic_quota(least=least, most=greatest)
    return quota, used


def of_cpu(least: int, used: int) -> Member:
    return member({"cpu": least}, {"cpu": 100}, cpu=used)


def shared(*members: Member, capacity: Amounts | None = None) -> list[tuple[Amounts, Amounts]]:
    return [(each.borrowed, each.lent) for each in sharing(members, capacity)]


def test_what_is_used_beyond_min_is_lent_by_those_who_leave_theirs_unused() -> None:
    # 12 - 4 are borrowed; 10 - 1 and 6 - 3 unused. Of 8, the first lends 8 * 9 // 12 = 6.
    assert shared(of_cpu(4, 12), of_cpu(10, 1), of_cpu(6, 3)) == [
        ({"cpu": 8}, {}),
        ({}, {"cpu": 6}),
        ({}, {"cpu": 2}),
    ]


def test_what_nobody_is_guaranteed_is_borrowed_first() -> None:
    # Of 20 cores 14 are guaranteed, so 6 of the 8 borrowed ones are lent by nobody.
    members = of_cpu(4, 12), of_cpu(10, 1)
    assert shared(*members, capacity={"cpu": 20}) == [({"cpu": 8}, {}), ({}, {"cpu": 2})]
    assert shared(*members, capacity={"cpu": 22}) == [({"cpu": 8}, {}), ({}, {})]


def test_more_cannot_be_lent_than_is_unused() -> None:
    assert shared(of_cpu(4, 12), of_cpu(10, 7)) == [({"cpu": 8}, {}), ({}, {"cpu": 3})]


def test_a_resource_without_min_is_borrowed_as_a_whole_but_the_number_of_pods_is_not() -> None:
    limits = {"memory": 100, "pods": 10}
    assert shared(member({}, limits, memory=7, pods=3, cpu=5)) == [({"memory": 7}, {})]
    guaranteed = member({"pods": 2}, limits, pods=3)
    assert shared(guaranteed) == [({"pods": 1}, {})]


amounts = st.integers(0, 1000)


@given(st.lists(st.tuples(amounts, amounts), max_size=6), st.none() | amounts)
def test_lent_amounts_add_up_and_are_nobodys_used_min(
    cohort: list[tuple[int, int]], capacity: int | None
) -> None:
    found = sharing(
        [of_cpu(least, used) for least, used in cohort],
        None if capacity is None else {"cpu": capacity},
    )
    lent = [each.lent.get("cpu", 0) for each in found]
    unused = [max(0, least - used) for least, used in cohort]
    borrowed = sum(each.borrowed.get("cpu", 0) for each in found)
    spare = 0 if capacity is None else max(0, capacity - sum(least for least, _ in cohort))
    assert all(amount <= most for amount, most in zip(lent, unused, strict=True))
    assert sum(lent) == min(sum(unused), max(0, borrowed - spare))
