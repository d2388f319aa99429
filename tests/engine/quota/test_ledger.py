from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from engine.model.elastic_quota import ElasticQuota
from engine.model.pod import Pod, pod_of
from engine.model.time import SECOND, Micros
from engine.quota import QuotaLedger
from engine.view import ClusterState

NOW = Micros(1_000_000 * SECOND)


def pod(name: str, cpu: str) -> Pod:
    container = api.Container(resources=api.ResourceRequirements(requests={"cpu": cpu}))
    return pod_of(
        api.Pod(
            metadata=api.ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}"),
            spec=api.PodSpec(containers=[container]),
        )
    )


def cluster(max_cpu: int) -> ClusterState:
    state = ClusterState()
    state.set_quota(
        ElasticQuota(
            namespace="shop",
            name="team",
            group="scheduling.x-k8s.io",
            min=None,
            max={"cpu": max_cpu},
            used={},
        )
    )
    return state


def test_a_reservation_counts_before_the_pod_is_seen() -> None:
    view, ledger = cluster(1000).view(), QuotaLedger()
    assert ledger.admit(pod("a", "600m"), view, NOW, uid="a").allowed
    # 600m reserved + 600m = 1200m > 1000m
    assert not ledger.admit(pod("b", "600m"), view, NOW, uid="b").allowed


def test_a_seen_pod_counts_once() -> None:
    state, ledger = cluster(1000), QuotaLedger()
    seen = pod("a", "600m")
    ledger.admit(seen, state.view(), NOW, uid="a")
    state.set_pod(seen, seen_at=NOW)
    ledger.settle("a")
    # 600m seen + 400m = 1000m
    assert ledger.admit(pod("b", "400m"), state.view(), NOW, uid="b").allowed


def test_a_reservation_whose_pod_never_came_expires() -> None:
    view, ledger = cluster(1000).view(), QuotaLedger(reservation_seconds=60)
    ledger.admit(pod("a", "600m"), view, NOW, uid="a")
    just_before = Micros(NOW + 60 * SECOND - 1)
    assert not ledger.admit(pod("b", "600m"), view, just_before, uid="b").allowed
    assert ledger.admit(pod("b", "600m"), view, Micros(just_before + 1), uid="b").allowed


def test_a_dry_run_is_judged_but_reserves_nothing() -> None:
    view, ledger = cluster(1000).view(), QuotaLedger()
    assert ledger.admit(pod("a", "600m"), view, NOW, uid="a", dry_run=True).allowed
    assert len(ledger) == 0
    assert not ledger.admit(pod("b", "1200m"), view, NOW, uid="b", dry_run=True).allowed


def test_a_retry_does_not_count_twice() -> None:
    view, ledger = cluster(1000).view(), QuotaLedger()
    for _ in range(3):
        assert ledger.admit(pod("a", "600m"), view, NOW, uid="a").allowed
    assert len(ledger) == 1


def test_a_namespace_without_quota_is_free_and_leaves_no_trace() -> None:
    ledger = QuotaLedger()
    assert ledger.admit(pod("a", "600m"), ClusterState().view(), NOW, uid="a").allowed
    assert len(ledger) == 0


@given(
    st.integers(0, 4000),
    st.lists(
        st.tuples(
            st.integers(0, 7), st.integers(1, 1500), st.sampled_from(["admit", "see", "delete"])
        ),
        max_size=40,
    ),
)
def test_admitted_pods_never_exceed_max(max_cpu: int, steps: list[tuple[int, int, str]]) -> None:
    state, ledger = cluster(max_cpu), QuotaLedger()
    alive: dict[str, int] = {}
    waiting: dict[str, Pod] = {}
    for number, cpu, action in steps:
        name = f"p{number}"
        if action == "admit" and name not in alive:
            new = pod(name, f"{cpu}m")
            if ledger.admit(new, state.view(), NOW, uid=name).allowed:
                alive[name], waiting[name] = cpu, new
        elif action == "see" and name in waiting:
            state.set_pod(waiting.pop(name), seen_at=NOW)
            ledger.settle(name)
        elif action == "delete" and name in alive and name not in waiting:
            state.delete_pod(f"shop/{name}")
            del alive[name]
        assert sum(alive.values()) <= max_cpu
