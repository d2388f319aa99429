from __future__ import annotations

from engine.eviction import quota_standing
from engine.model import api
from engine.model.pod_shape import shape_of
from engine.quota.queueing import Cohort, QueueQuota, QueueSituation

SHOP, LAB, TREE = (("ns", "group", name) for name in ("shop", "lab", "tree"))


def situation() -> QueueSituation:
    """Return two quotas that share 10 cores, and one that shares nothing."""
    quotas = {
        SHOP: QueueQuota(SHOP, {"cpu": 4}, weight=2, bounds=()),
        LAB: QueueQuota(LAB, {}, weight=1, bounds=()),
        TREE: QueueQuota(TREE, {"cpu": 9}, weight=1, bounds=(), is_in_cohort=False),
    }
    usage = {SHOP: {"cpu": 3, "pods": 2}, LAB: {"cpu": 5}}
    return QueueSituation(quotas, usage, Cohort({"cpu": 10}, {"cpu": 8, "pods": 3}))


def test_quotas_that_share_the_cohort_have_accounts() -> None:
    standing = quota_standing(situation(), [shape_of(api.Pod())])
    assert standing.accounts.keys() == {SHOP, LAB}
    shop = standing.accounts[SHOP]
    assert (shop.guaranteed, shop.used, shop.weight) == ({"cpu": 4}, {"cpu": 3, "pods": 2}, 2)
    assert standing.lendable == {"cpu": 10}
    assert standing.cohort_room == {"cpu": 2, "pods": -3}  # 10 - 8, and nothing offers pods


def test_a_pod_that_is_counted_already_is_left_out() -> None:
    counted = {"cpu": 2, "pods": 1}
    standing = quota_standing(situation(), [shape_of(api.Pod())], {SHOP: counted})
    assert standing.accounts[SHOP].used == {"cpu": 1, "pods": 1}
    assert standing.accounts[LAB].used == {"cpu": 5}
    assert standing.cohort_room == {"cpu": 4, "pods": -2}
