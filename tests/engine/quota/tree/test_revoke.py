from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import Micros
from engine.quota.bounds import sum_of
from engine.quota.tree.revoke import RevocablePod, overused, pods_to_revoke


def _pod(name: str, cpu: int, priority: int = 0, started: int = 0) -> RevocablePod:
    return RevocablePod(f"shop/{name}", priority, Micros(started), {"cpu": cpu})


def _revoked(pods: list[RevocablePod], runtime: int) -> list[str]:
    used = sum_of(pod.requests for pod in pods)
    revoked = pods_to_revoke(pods, used, {"cpu": runtime})
    return [pod.key.removeprefix("shop/") for pod in revoked]


def test_the_least_important_pods_go_first_of_equal_ones_the_latest() -> None:
    pods = [_pod("high", 4, priority=10), _pod("old", 4, started=1), _pod("new", 4, started=2)]
    assert _revoked(pods, 8) == ["new"]
    assert _revoked(pods, 7) == ["old", "new"]


def test_a_small_pod_comes_back_where_a_larger_one_goes() -> None:
    # 1 + 6 are taken to come from 13 to 6 of 7; the small one fits beside what is left.
    assert _revoked([_pod("base", 6, 2), _pod("large", 6, 1), _pod("small", 1, 0)], 7) == ["large"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=8), st.integers(0, 40))
def test_what_is_left_fits_and_nobody_goes_without_need(
    sizes: list[tuple[int, int]], runtime: int
) -> None:
    pods = [_pod(f"p{i}", cpu, priority) for i, (cpu, priority) in enumerate(sizes)]
    used, bound = sum_of(pod.requests for pod in pods), {"cpu": runtime}
    revoked = pods_to_revoke(pods, used, bound)
    left = sum_of(pod.requests for pod in pods if pod not in revoked)
    assert not overused(left, bound)
    assert all(overused(sum_of((left, pod.requests)), bound) for pod in revoked)
