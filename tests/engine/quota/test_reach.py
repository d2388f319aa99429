from __future__ import annotations

from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from engine.quota import reach_of


def test_a_quota_reaches_the_pods_of_its_namespace() -> None:
    quotas = [("shop", UPSTREAM_GROUP, "team"), ("data", UPSTREAM_GROUP, "team")]
    assert reach_of(quotas) == frozenset(["shop", "data"])


def test_one_of_a_tree_reaches_pods_of_all_namespaces_by_a_label() -> None:
    quotas = [("shop", UPSTREAM_GROUP, "team"), ("kube-system", KOORDINATOR_GROUP, "tree")]
    assert reach_of(quotas) is None


def test_built_in_quotas_of_koordinator_limit_nobody() -> None:
    built_in = [("kube-system", KOORDINATOR_GROUP, "koordinator-default-quota")]
    assert reach_of(built_in) == frozenset()
