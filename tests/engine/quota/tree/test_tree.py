from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.model.elastic_quota import UPSTREAM_GROUP
from engine.model.koordinator_quota import DEFAULT_QUOTA, ROOT_QUOTA, TreeSettings
from engine.quota.tree import QuotaTree, known_quota_name
from tests.engine.quota.tree.quotas import quota


def _above(tree: QuotaTree, name: str) -> list[str]:
    return [each.name for each in tree.ancestors_of(name)]


def test_a_quota_is_below_the_parent_that_its_label_names() -> None:
    tree = QuotaTree([quota("leaf", "mid"), quota("top"), quota("mid", "top")])
    assert _above(tree, "leaf") == ["mid", "top"]
    assert [each.name for each in tree] == ["top", "mid", "leaf"]


def test_a_quota_without_an_existing_parent_is_of_the_top_level() -> None:
    tree = QuotaTree([quota("orphan", "gone")])
    assert tree.is_top_level(tree.children_of(ROOT_QUOTA)[0])


@given(st.lists(st.integers(0, 7), min_size=8, max_size=8))
def test_any_parents_make_a_tree_in_which_every_quota_is_found_once(parents: list[int]) -> None:
    tree = QuotaTree([quota(f"q{i}", f"q{parent}") for i, parent in enumerate(parents)])
    found = [each.name for each in tree]
    assert sorted(found) == [f"q{i}" for i in range(len(parents))]
    for position, name in enumerate(found):
        assert all(above in found[:position] for above in _above(tree, name))


def test_a_pod_belongs_to_its_label_its_namespace_a_listing_quota_or_the_default_one() -> None:
    listing = quota("listing", tree=TreeSettings(namespaces=("shop",)))
    tree = QuotaTree([quota("team", namespace="team"), listing, quota("web")])
    assert known_quota_name(tree, "team", "web") == "web"
    assert known_quota_name(tree, "team", "") == "team"
    assert known_quota_name(tree, "shop", "") == "listing"
    assert known_quota_name(tree, "web", "") == DEFAULT_QUOTA  # in another namespace
    assert known_quota_name(tree, "team", "gone") == DEFAULT_QUOTA


def test_quotas_of_scheduler_plugins_are_not_of_the_tree() -> None:
    assert len(QuotaTree([replace(quota("team"), group=UPSTREAM_GROUP)])) == 0
