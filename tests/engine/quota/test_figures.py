from __future__ import annotations

from typing import Any

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.node import Node
from engine.model.queued_condition import QueuedReason
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.quota import RESOURCE_QUOTA_RULES, QuotaFigures, quota_figures
from engine.quota.queueing import Borrower, Lack, QuotaWait
from engine.view import ClusterState
from tests.builders import pod_from, quota_from

KEY: QuotaKey = ("shop", "scheduling.x-k8s.io", "team")


def quota(namespace: str, minimum: dict[str, str], **maximum: str) -> ElasticQuota:
    written: dict[str, Any] = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "metadata": {"namespace": namespace, "name": "team"},
        "spec": {"min": minimum, "max": maximum},
    }
    return quota_from(written)


def cluster() -> ClusterState:
    """A cluster in which `shop` borrows 2 of 4 cores, and a pod more of it waits."""
    state = ClusterState()
    for name, mode in (("shop", "Queue"), ("mail", "Queue"), ("dev", "Enforce")):
        state.set_namespace(name, {}, quota_mode=mode)
    state.set_quota(quota("shop", {"cpu": "2"}, cpu="8", memory="8Gi"))
    state.set_quota(quota("mail", {"cpu": "3", "memory": "1Gi"}, cpu="8"))
    state.set_quota(quota("dev", {"cpu": "1"}, cpu="8"))
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
    view = cluster().view()
    return quota_figures(view, RESOURCE_QUOTA_RULES, "Enforce", capacity=capacity)


def wait(*lacks: Lack, blocked_by: tuple[Borrower, ...] = ()) -> QuotaWait:
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
            Borrower(("mail", "g", "team"), "cpu", 5),
            Borrower(("mail", "g", "team"), "memory", 5),
            Borrower(("dev", "g", "ci"), "memory", 1),
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
