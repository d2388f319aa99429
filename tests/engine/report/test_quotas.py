from __future__ import annotations

import pytest

from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, quota_of
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.quota.queueing import QueueRules
from engine.report import QuotaAmount, quotas_report
from engine.view import ClusterState

BOTH = (UPSTREAM_GROUP, KOORDINATOR_GROUP)


def cluster(*, mode: str = "Enforce") -> ClusterState:
    """Return `shop` with a quota and two pods of 1 and 2 cores, and `bank` with another quota."""
    state = ClusterState()
    for group, namespace, name in (
        (UPSTREAM_GROUP, "shop", "team"),
        (UPSTREAM_GROUP, "bank", "vault"),
        (KOORDINATOR_GROUP, "kube-system", "tree"),
    ):
        state.set_namespace(namespace, {}, quota_mode=mode)
        wire = api.ElasticQuota(
            api_version=f"{group}/v1alpha1",
            metadata=api.ObjectMeta(namespace=namespace, name=name),
            spec=api.ElasticQuotaSpec(min={"cpu": "2"}, max={"cpu": "8", "pods": "10"}),
            status=api.ElasticQuotaStatus(used={"cpu": "500m"}),
        )
        state.set_quota(quota_of(wire))
    for name, cpu in (("a", "1"), ("b", "2")):
        resources = api.ResourceRequirements(requests={"cpu": cpu})
        wire_pod = api.Pod(
            metadata=api.ObjectMeta(namespace="shop", name=name),
            spec=api.PodSpec(containers=[api.Container(name="main", resources=resources)]),
        )
        state.set_pod(pod_of(wire_pod), seen_at=Micros(0))
    return state


def test_a_quota_says_what_is_used_of_it() -> None:
    report = quotas_report(cluster(), QueueRules(mode="Enforce"), namespace="shop", groups=BOTH)
    (row,) = report.quotas
    assert (report.total, row.namespace, row.name, row.mode) == (1, "shop", "team", "Enforce")
    assert row.amounts == (
        QuotaAmount(resource="cpu", used=3_000, min=2_000, max=8_000),
        QuotaAmount(resource="pods", used=2, max=10),
    )


def test_where_pods_wait_it_says_what_is_borrowed() -> None:
    rules = QueueRules(mode="Queue")
    report = quotas_report(cluster(mode="Queue"), rules, namespace="shop", groups=BOTH)
    (row,) = report.quotas
    assert row.amounts[0].borrowed == 1_000  # 3 cores, of which 2 are guaranteed
    assert (row.queued, row.max_queued) == (0, 1_000)


def test_what_a_quota_of_a_tree_uses_is_what_its_controller_says() -> None:
    report = quotas_report(
        cluster(), QueueRules(mode="Enforce"), namespace="kube-system", groups=BOTH
    )
    assert report.quotas[0].amounts[0].used == 500


@pytest.mark.parametrize(
    ("namespace", "groups", "names"),
    [
        ("", BOTH, ["vault", "tree", "team"]),
        ("", [UPSTREAM_GROUP], ["vault", "team"]),
        ("", [], []),
        ("bank", BOTH, ["vault"]),
        ("none", BOTH, []),
    ],
)
def test_quotas_of_other_namespaces_and_groups_are_left_out(
    namespace: str, groups: list[str], names: list[str]
) -> None:
    rules = QueueRules(mode="Enforce")
    report = quotas_report(cluster(), rules, namespace=namespace, groups=groups)
    assert [row.name for row in report.quotas] == names
