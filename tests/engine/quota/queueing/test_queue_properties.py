"""Any queues: a slow and plain judge releases the same pods, and the promises are kept."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.time import SECOND, Micros
from engine.quota.queueing import (
    Bound,
    Cohort,
    QueuedPod,
    QueueQuota,
    is_within_min,
    next_releases,
)
from tests.engine.quota.queueing.plain_queue import PlainQueue, plain_releases
from tests.engine.quota.queueing.queues import NOW, key, released

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from engine.model.elastic_quota import QuotaKey
    from engine.model.resources import Amounts
    from engine.quota.queueing import QueueDecision

NAMES = ("a", "b", "c")
RESOURCES = ("cpu", "memory", "pods")


class Queues(NamedTuple):
    queued: list[QueuedPod]
    quotas: dict[QuotaKey, QueueQuota]
    usage: dict[QuotaKey, Amounts]
    cohort: Cohort

    def decide(self) -> QueueDecision:
        return next_releases(*self, NOW)


def amounts(most: int, *, least: int = -1) -> st.SearchStrategy[dict[str, int]]:
    """Return amounts of resources, without those that are below 0."""
    values = st.integers(least, most)
    return st.tuples(values, values, values).map(_amounts)


def _amounts(values: tuple[int, ...]) -> dict[str, int]:
    return {name: value for name, value in zip(RESOURCES, values, strict=True) if value >= 0}


@st.composite
def queues(draw: st.DrawFn) -> Queues:
    parent = Bound(key("parent"), draw(amounts(12)))
    shapes = draw(st.lists(amounts(5), min_size=1, max_size=4))
    quotas = {}
    for name in NAMES:
        bounds = [Bound(key(name), draw(amounts(12)))]
        if draw(st.booleans()):
            bounds.append(parent)
        weight = draw(st.integers(1, 4))
        quotas[key(name)] = QueueQuota(key(name), draw(amounts(6)), weight, tuple(bounds))
    usage: dict[QuotaKey, Mapping[str, int]] = {each: draw(amounts(6)) for each in quotas}
    held = sum((Counter(usage[each]) for each in quotas), Counter[str]())
    under = [each for each, quota in quotas.items() if parent in quota.bounds]
    usage[parent.key] = sum((Counter(usage[each]) for each in under), Counter[str]())
    outside = Counter(draw(amounts(4)))
    cohort = Cohort(draw(amounts(24, least=0)), held + outside)
    pods = st.tuples(
        st.sampled_from(NAMES), st.sampled_from(shapes), st.sampled_from((0, 299, 300))
    )
    queued = [
        QueuedPod(f"{name}/{number}", key(name), shape, Micros(NOW - waited * SECOND))
        for number, (name, shape, waited) in enumerate(draw(st.lists(pods, max_size=10)))
    ]
    return Queues(queued, quotas, usage, cohort)


@settings(max_examples=300, deadline=None)
@given(queues())
def test_a_slow_and_plain_judge_releases_the_same_pods_in_the_same_order(given_: Queues) -> None:
    assert released(given_.decide()) == plain_releases(*given_, NOW)


@given(queues())
def test_each_pod_is_released_or_waits_for_a_reason(given_: Queues) -> None:
    decision = given_.decide()
    keys = released(decision)
    assert sorted([*keys, *decision.waits]) == sorted(pod.key for pod in given_.queued)
    assert all(wait.message for wait in decision.waits.values())


@given(queues())
def test_no_bound_and_no_borrower_is_ever_exceeded(given_: Queues) -> None:
    pods = {pod.key: pod for pod in given_.queued}
    state = PlainQueue(*given_[1:])
    for release in given_.decide().released:
        pod = pods[release.key]
        assert release.is_within_min == state.is_within_min(pod)
        assert state.fits(pod)  # of each resource within all bounds, and within min or the room
        state.release(pod)


@given(queues())
def test_no_borrower_goes_before_a_head_within_min(given_: Queues) -> None:
    pods = {pod.key: pod for pod in given_.queued}
    left = [pod.key for pod in given_.queued]
    state = PlainQueue(*given_[1:])
    for release in given_.decide().released:
        if not release.is_within_min:
            heads = {pods[each].quota: pods[each] for each in reversed(left)}
            for head in heads.values():
                assert not (state.is_within_min(head) and state.fits(head))
        left.remove(release.key)
        state.release(pods[release.key])


@given(queues())
def test_nothing_waits_that_fits_when_all_others_are_released(given_: Queues) -> None:
    """But what is behind a pod that has waited for long, and what would take kept room."""
    decision, state = given_.decide(), PlainQueue(*given_[1:])
    pods = {pod.key: pod for pod in given_.queued}
    for each in released(decision):
        state.release(pods[each])
    for each, wait in decision.waits.items():
        if wait.is_within_min and not wait.behind:
            state.refuse(pods[each])
    for each, wait in decision.waits.items():
        assert wait.behind or not state.fits(pods[each])


@given(queues(), st.randoms(use_true_random=False))
def test_the_order_in_which_quotas_are_known_does_not_matter(
    given_: Queues, random: Random
) -> None:
    names = list(given_.quotas)
    random.shuffle(names)
    other = given_._replace(quotas={name: given_.quotas[name] for name in names})
    assert other.decide() == given_.decide()


@given(queues())
def test_what_is_released_may_be_decided_again_as_under_way(given_: Queues) -> None:
    """A later cycle with the released pods among the used releases nothing more at once."""
    decision, state = given_.decide(), PlainQueue(*given_[1:])
    pods = {pod.key: pod for pod in given_.queued}
    for each in released(decision):
        state.release(pods[each])
    left = [pod for pod in given_.queued if pod.key in decision.waits]
    again = next_releases(
        left, given_.quotas, state.used, Cohort(given_.cohort.capacity, state.cohort_used), NOW
    )
    kept = any(wait.is_within_min for wait in decision.waits.values())
    assert kept or released(again) == []


def test_within_min_needs_a_resource_that_min_names() -> None:
    assert not is_within_min({"memory": 1}, {}, {"cpu": 1})
    assert is_within_min({"memory": 1, "cpu": 1}, {}, {"cpu": 1})
    assert not is_within_min({"memory": 1, "cpu": 1}, {"cpu": 1}, {"cpu": 1})
