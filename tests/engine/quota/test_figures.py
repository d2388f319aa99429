from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.hold import QueuedReason
from engine.model.node import Node
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.quota import (
    CAPACITY_SCHEDULING_RULES,
    RESOURCE_QUOTA_RULES,
    Allowance,
    QuotaFigures,
    Reservation,
    Reservations,
    quota_figures,
    quota_usages,
    reserved_amounts,
    sharing,
)
from engine.quota.queueing import BorrowingQuota, Lack, QuotaWait
from engine.quota.reservations import encode
from engine.view import ClusterState
from tests.builders import elastic_quota, pod_from, quota_from


def quota(name: str = "team", *, reservations: str = "", **maximum: int) -> ElasticQuota:
    return elastic_quota(name, most=maximum, uid="q", version=1, reservations=reservations)


def cluster(*quotas: ElasticQuota) -> ClusterState:
    """Return a cluster with a pod of 2 cores in `shop` that waits for a node."""
    state = ClusterState()
    for each in quotas:
        state.set_quota(each)
    resources = {"requests": {"cpu": "2", "memory": "1"}}
    pod = {
        "metadata": {"namespace": "shop", "name": "a"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    state.set_pod(pod_from(pod), seen_at=Micros(0))
    return state


def test_usage_is_of_the_resources_that_a_quota_limits() -> None:
    view = cluster(quota(cpu=3000, pods=5)).view()
    (usage,) = quota_usages(view, RESOURCE_QUOTA_RULES)
    assert usage.used == {"cpu": 2000, "pods": 1}
    assert usage.maximum == {"cpu": 3000, "pods": 5}
    assert usage.exceeded == ()


def test_usage_above_max_names_the_resources() -> None:
    view = cluster(quota(cpu=1500, pods=1, memory=1)).view()
    (usage,) = quota_usages(view, RESOURCE_QUOTA_RULES)
    assert usage.exceeded == ("cpu",)
    assert usage.clause == "exceeded quota: team, requested: , used: cpu=2, limited: cpu=1500m"


def test_pods_count_by_the_rules() -> None:
    view = cluster(quota(cpu=3000)).view()
    (usage,) = quota_usages(view, CAPACITY_SCHEDULING_RULES)
    assert usage.used["cpu"] == 0  # it has no node


def test_what_is_reserved_for_pods_in_the_view_is_not_counted_again() -> None:
    reservations = Reservations(
        by_key={
            "u1": Reservation("u1", "a", {"cpu": 2000}),  # in the view
            "u2": Reservation("u2", "b", {"cpu": 300}),
            "u3": Reservation("u3", "b", {"cpu": 400}),  # only one of the name can be stored
            "r1": Reservation("u1", "a", {"cpu": 50}, 7, "r1"),
        },
        allowances={"replica-1": Allowance("replica-1", 1, {"cpu": 1000})},
    )
    full = quota(cpu=9000, reservations=encode(reservations, "q"))
    state = cluster(full)
    reserved = reserved_amounts(full, lambda name: state.requests(f"shop/{name}"))
    assert reserved == {"cpu": 400 + 50 + 1000}


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


KEY: QuotaKey = ("shop", "scheduling.x-k8s.io", "team")


def quota_with_figures(namespace: str, minimum: dict[str, str], **maximum: str) -> ElasticQuota:
    written: dict[str, Any] = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "metadata": {"namespace": namespace, "name": "team"},
        "spec": {"min": minimum, "max": maximum},
    }
    return quota_from(written)


def cluster_of_quotas() -> ClusterState:
    """A cluster in which `shop` borrows 2 of 4 cores, and a pod more of it waits."""
    state = ClusterState()
    for name, mode in (("shop", "Queue"), ("mail", "Queue"), ("dev", "Enforce")):
        state.set_namespace(name, {}, quota_mode=mode)
    state.set_quota(quota_with_figures("shop", {"cpu": "2"}, cpu="8", memory="8Gi"))
    state.set_quota(quota_with_figures("mail", {"cpu": "3", "memory": "1Gi"}, cpu="8"))
    state.set_quota(quota_with_figures("dev", {"cpu": "1"}, cpu="8"))
    for name, queued in (("a", False), ("b", False), ("c", True)):
        annotations = {"stowplan.dev/hold-reasons": "quota"} if queued else {}
        gates = [{"name": "stowplan.dev/hold"}] if queued else []
        requests = {"requests": {"cpu": "2"}}
        pod: dict[str, Any] = {
            "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
            "spec": {
                "schedulingGates": gates,
                "containers": [{"name": "c", "resources": requests}],
            },
        }
        state.set_pod(pod_from(pod), seen_at=Micros(0))
    return state


def figures(capacity: Amounts | None = None) -> list[QuotaFigures]:
    view = cluster_of_quotas().view()
    return quota_figures(view, RESOURCE_QUOTA_RULES, "Enforce", capacity=capacity)


def wait(*lacks: Lack, blocked_by: tuple[BorrowingQuota, ...] = ()) -> QuotaWait:
    reason = QueuedReason.WAITING_FOR_QUOTA
    return QuotaWait(
        reason, KEY, 1, 1, is_within_min=False, since=Micros(0), lacks=lacks, blocked_by=blocked_by
    )


def test_what_queues_has_figures_and_what_is_enforced_has_none() -> None:
    found = figures()
    assert [each.usage.quota.namespace for each in found] == ["mail", "shop"]
    assert [each.queued for each in found] == [0, 1]
    # shop uses 4 of its 2; mail leaves 3 unused, of which shop has 2.
    assert [each.sharing.borrowed for each in found] == [{}, {"cpu": 2000}]
    assert [each.sharing.lent for each in found] == [{"cpu": 2000}, {}]


def test_of_a_larger_cohort_nothing_need_be_lent() -> None:
    # 8 cores less the 5 that are guaranteed leave 3 for the 2 that are borrowed.
    assert [each.sharing.lent for each in figures({"cpu": 8000})] == [{}, {}]


def test_figures_are_written_as_kubernetes_quantities() -> None:
    mail, shop = figures()
    assert mail.annotations(None, None) == {"stowplan.dev/lent": '{"cpu":"2"}'}
    assert shop.annotations(None, None) == {
        "stowplan.dev/borrowed": '{"cpu":"2"}',
        "stowplan.dev/queued": "1",
    }


def test_why_the_first_waits_is_among_them() -> None:
    first = wait(
        Lack("cpu", 2000, 1500, KEY),
        Lack("cpu", 2000, -500, None),
        Lack("memory", 2**30, 2**29, None),
        blocked_by=(
            BorrowingQuota(("mail", "g", "team"), "cpu", 5),
            BorrowingQuota(("mail", "g", "team"), "memory", 5),
            BorrowingQuota(("dev", "g", "ci"), "memory", 1),
        ),
    )
    _, shop = figures()
    written = shop.annotations(first, Micros(12_345_678))
    assert written["stowplan.dev/free"] == '{"cpu":"0","memory":"512Mi"}'
    assert written["stowplan.dev/blocked-by"] == "mail/team,dev/ci"
    assert written["stowplan.dev/seconds-per-release"] == "12"


def test_the_time_between_releases_has_two_digits() -> None:
    _, shop = figures()
    name = "stowplan.dev/seconds-per-release"
    texts = [shop.annotations(None, Micros(int(s * SECOND)))[name] for s in (117, 1.26, 0.0123)]
    assert texts == ["120", "1.3", "0.012"]


def test_quotas_of_a_tree_have_their_runtime_wherever_their_pods_are() -> None:
    state = ClusterState()
    node = Node(name="a", labels={}, allocatable={"cpu": 10_000, "pods": 100})
    state.set_node(node)
    state.set_namespace("shop", {}, quota_mode="Queue")
    for name, least in (("team", "4"), ("other", "6")):
        written: dict[str, Any] = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "metadata": {"namespace": "koordinator-system", "name": name},
            "spec": {"min": {"cpu": least}, "max": {"cpu": "10"}},
        }
        state.set_quota(quota_from(written))
    for name, queued in (("a", False), ("b", True)):
        labels = {"quota.scheduling.koordinator.sh/name": "team"}
        annotations = {"stowplan.dev/hold-reasons": "quota"}
        container = {"name": "c", "resources": {"requests": {"cpu": "7"}}}
        pod: dict[str, Any] = {
            "metadata": {
                "namespace": "shop",
                "name": name,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "schedulingGates": [{"name": "stowplan.dev/hold"}] if queued else [],
                "containers": [container],
            },
        }
        state.set_pod(pod_from(pod), seen_at=Micros(0))
    found = {
        each.usage.quota.name: each
        for each in quota_figures(state.view(), RESOURCE_QUOTA_RULES, "Enforce")
    }
    # team requests 14 and may use 10, other requests nothing and lends all of its 6.
    assert found["team"].runtime == {"cpu": 10_000}
    assert (found["team"].queued, found["other"].queued) == (1, 0)
    assert found["team"].sharing.borrowed == {"cpu": 3000}
    assert found["other"].sharing.lent == {"cpu": 6000}
