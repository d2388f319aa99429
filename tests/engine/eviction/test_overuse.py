from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.eviction import (
    Candidate,
    GuardState,
    OveruseSituation,
    overusing,
    plan_revocations,
    running_pod_of,
    with_eviction,
)
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import NAME_LABEL, PREEMPTIBLE_LABEL, ROOT_QUOTA, ElasticQuota
from engine.model.gang import GangKey
from engine.model.pod import Pod
from engine.model.selectors import LabelSelector
from engine.quota.tree import bounds_in, tree_in
from engine.view import ClusterState
from tests.engine.eviction.worlds import GANG_LABEL, running
from tests.engine.measured_cluster import NOW, node, seconds_ago
from tests.engine.quota.tree.quotas import quota, tree_pod

_NODE_CPU = 10
_NO_GANGS: Mapping[str, int] = {}


def _of(
    name: str,
    cpu: int,
    to: str = "left",
    *,
    priority: int = 0,
    gang: str = "",
    **more: Any,  # noqa: ANN401 (any further field of a pod)
) -> Pod:
    """Return a pod of a quota that runs, cpu in cores."""
    labels = {NAME_LABEL: to} | ({GANG_LABEL: gang} if gang else {})
    return running(name, "a", cpu, priority=priority, labels=labels, **more)


def _quota(name: str, least: int = 0, parent: str = ROOT_QUOTA, most: int = 10) -> ElasticQuota:
    return quota(name, parent, least={"cpu": 1000 * least}, most={"cpu": 1000 * most})


def _revoked(
    quotas: Sequence[ElasticQuota],
    pods: Sequence[Pod],
    *,
    waiting: int = 0,
    budgets: Sequence[DisruptionBudget] = (),
    guards: GuardState | None = None,
    leaving: frozenset[str] = frozenset(),
    gangs: Mapping[str, int] = _NO_GANGS,
) -> dict[str, list[str]]:
    """Return the names of the pods that each quota gives; pods of `right` wait for some cores."""
    state = ClusterState(leave_out_queued=True)
    state.set_node(node("a", cpu=str(_NODE_CPU), memory="64Gi", pods="50"))
    for each in quotas:
        state.set_quota(each)
    queued = tree_pod("shop", "waits", str(waiting), "right", queued=True)
    for pod in (*pods, queued):
        state.set_pod(pod, seen_at=NOW)
    view = state.view()
    tree = tree_in(view)
    bounds = bounds_in(view, tree)
    candidates = []
    for pod in pods:
        found, entry, named = running_pod_of(pod), state.entry(pod.key), pod.labels[NAME_LABEL]
        own = tree.get(named)
        assert found is not None
        assert entry is not None
        assert own is not None
        above = [each.key for each in tree.ancestors_of(named)]
        candidates.append(Candidate(pod=found, entry=entry, quotas=(own.key, *above)))
    situation = OveruseSituation(
        bounds=bounds,
        candidates=candidates,
        node_names=view.names,
        gangs={GangKey("batch", name): size for name, size in gangs.items()},
        budgets=budgets,
        guards=guards or GuardState(),
        leaving=leaving,
        now=NOW,
    )
    return {
        each.quota.name: [victim.key.partition("/")[2] for victim in each.victims]
        for each in plan_revocations(list(overusing(bounds)), situation)
    }


# `left` and `right` share 10 cores: each gets its min, and half of the rest that both want.
_BOTH = (_quota("left", 2), _quota("right", 4))
_EIGHT = [_of(f"p{i}", 1, age=1000 + i) for i in range(8)]


def test_a_quota_gives_back_what_it_uses_above_its_runtime_the_newest_first() -> None:
    # 10 - 2 - 4 = 4 are left, 2 for each: the runtime of `left` is 4, and it uses 8.
    assert _revoked(_BOTH, _EIGHT, waiting=8) == {"left": ["p0", "p1", "p2", "p3"]}


def test_nobody_gives_while_nobody_else_wants_anything() -> None:
    assert _revoked(_BOTH, _EIGHT) == {}


def test_the_least_important_goes_first() -> None:
    pods = [*_EIGHT[:7], _of("low", 1, priority=-1, age=9999)]
    assert _revoked(_BOTH, pods, waiting=8) == {"left": ["low", "p0", "p1", "p2"]}


def test_pods_on_their_way_out_count_no_longer() -> None:
    pods = [_of("p0", 1, deleting=True), *_EIGHT[1:]]
    revoked = _revoked(_BOTH, pods, waiting=8, leaving=frozenset({"uid-p1"}))
    assert revoked == {"left": ["p2", "p3"]}


def test_no_quota_gives_what_its_min_guarantees() -> None:
    # Guarantees come to twice what there is, so the runtime of `left` is 5; its min stays 10.
    assert _revoked((_quota("left", 10), _quota("right", 10)), _EIGHT, waiting=8) == {}
    # Its runtime is 6: of 9 used one pod of 3 may go, another would leave 3 of a min of 4.
    pods = [_of(f"p{i}", 3, age=1000 + i) for i in range(3)]
    assert _revoked((_quota("left", 4), _quota("right", 1)), pods, waiting=8) == {"left": ["p0"]}


def test_protected_pods_and_those_that_came_back_stay() -> None:
    labels = {NAME_LABEL: "left", PREEMPTIBLE_LABEL: "false"}
    pods = [
        running("kept", "a", 1, labels=labels, age=1000),
        _of("back", 1, age=10, owner="set"),
        *[_of(f"p{i}", 1, age=2000 + i, owner="set") for i in range(6)],
    ]
    guards = with_eviction(
        GuardState(), "uid-before", "set", assigned_at=seconds_ago(90), now=seconds_ago(40)
    )
    assert _revoked(_BOTH, pods, waiting=8, guards=guards) == {"left": ["p0", "p1", "p2", "p3"]}


def test_a_budget_keeps_all_but_as_many_as_it_allows() -> None:
    budget = DisruptionBudget(
        namespace="batch", name="one", selector=LabelSelector(), disruptions_allowed=1
    )
    assert _revoked(_BOTH, _EIGHT, waiting=8, budgets=[budget]) == {"left": ["p0"]}


def test_what_a_budget_allows_is_given_once_by_all_quotas_together() -> None:
    budget = DisruptionBudget(
        namespace="batch", name="one", selector=LabelSelector(), disruptions_allowed=1
    )
    quotas = (_quota("left", 1), _quota("mid", 1), _quota("right", 6))
    pods = [_of(f"{to}-{i}", 1, to, age=1000 + i) for to in ("left", "mid") for i in range(5)]
    assert _revoked(quotas, pods, waiting=8).keys() == {"left", "mid"}
    revoked = _revoked(quotas, pods, waiting=8, budgets=[budget])
    assert sum(map(len, revoked.values())) == 1


def test_what_the_quota_below_gives_that_above_need_not_give() -> None:
    # `left` may use 3 and gives 5; with that `top` uses 4 of the 4 that are its runtime.
    quotas = (_quota("top", 2), _quota("left", 2, "top", most=3), _quota("right", 4))
    pods = [*_EIGHT, _of("own", 1, "top", age=900)]
    assert _revoked(quotas, pods, waiting=8) == {"left": ["p0", "p1", "p2", "p3", "p4"]}


def test_pods_that_request_nothing_of_it_stay() -> None:
    pods = [*_EIGHT, _of("small", 0, priority=-5, age=1000)]
    assert "small" not in _revoked(_BOTH, pods, waiting=8)["left"]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=8),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 10),
)
def test_none_falls_below_min_and_nobody_goes_without_need(
    sizes: list[tuple[int, int]], left: int, right: int, waiting: int
) -> None:
    quotas = (_quota("left", left), _quota("right", right))
    pods = [_of(f"p{i}", cpu, priority=rank, age=1000 + i) for i, (cpu, rank) in enumerate(sizes)]
    revoked = set(_revoked(quotas, pods, waiting=waiting).get("left", ()))
    before = sum(cpu for cpu, _ in sizes)
    stay = [pod for pod in pods if pod.name not in revoked]
    after = sum(pod.shape.requests.get("cpu", 0) for pod in stay) // 1000
    assert after >= min(before, left)
    # With one victim fewer the quota would use too much, or less than could be given is left.
    assert all(_revoked(quotas, stay, waiting=waiting).get("left") is None for _ in revoked)


def test_a_gang_goes_as_a_whole_or_not_at_all() -> None:
    # 10 - 2 = 8 are shared: `left` may use 4 of the 8 that it uses, so two members would do.
    gang = [_of(f"g{number}", 2, gang="gang") for number in range(3)]
    pods = [*gang, _of("single", 2, priority=9)]
    both = (_quota("left"), _quota("right", 2))
    assert _revoked(both, pods, waiting=10, gangs={"gang": 3}) == {"left": ["g0", "g1", "g2"]}
    # One member counts for another quota, so the gang would not go as a whole.
    assert _revoked(both, pods, waiting=10, gangs={"gang": 4}) == {"left": ["single"]}
    # Without a PodGroup they are single pods.
    assert _revoked(both, pods, waiting=10) == {"left": ["g0", "g1"]}


def test_a_gang_of_which_a_quota_needs_a_part_stays() -> None:
    gang = [_of(f"g{number}", 4, gang="gang") for number in range(2)]
    assert _revoked(_BOTH, gang, waiting=10, gangs={"gang": 2}) == {}  # `left` keeps its 2
    assert _revoked(_BOTH, gang, waiting=10) == {"left": ["g0"]}
